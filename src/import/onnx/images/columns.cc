// SPDX-License-Identifier: Apache-2.0
// Col2Im, the inverse of cutting an image into columns: x [b, c * block, windows] becomes an image, in which the
// numbers that windows put on one pixel are summed. Axis by axis:
//   y[at] = sum over the pairs (t, i) with at = i stride + t dilation - pad of x[t, i]
// As many gathers as one pixel has windows along the axis; one, where they do not overlap.
#include <algorithm>

#include "import/onnx/convert.h"
#include "import/onnx/images/window.h"

namespace tessera {
namespace {

constexpr size_t kMostOverlaps = 64;

// For each pixel of an axis, the numbers t * windows + i of what is added up there.
std::vector<std::vector<int64_t>> sources_of(const WindowAxis& a) {
  std::vector<std::vector<int64_t>> out(static_cast<size_t>(a.size));
  for (int64_t t = 0; t < a.kernel; ++t) {
    for (int64_t i = 0; i < a.count; ++i) {
      const int64_t at = i * a.stride + t * a.dilation - a.before;
      if (at >= 0 && at < a.size) out[static_cast<size_t>(at)].push_back(t * a.count + i);
    }
  }
  return out;
}

// x has windows' numbers, kernel * count, along the axis, and gets the image's pixels there.
Result<ValueId> add_up(OnnxCall& c, ValueId x, size_t axis, const WindowAxis& a) {
  if (a.count > kMaxListed || a.kernel * a.count > kMaxListed)
    return bad_input(cat("Col2Im: ", a.count, " windows of ", a.kernel, " pixels along an axis are too many"));
  const std::vector<std::vector<int64_t>> sources = sources_of(a);
  size_t most = 0;
  bool holes = false;
  for (const auto& s : sources) most = std::max(most, s.size());
  for (const auto& s : sources) holes = holes || s.size() < std::max<size_t>(1, most);
  if (most > kMostOverlaps)
    return bad_input(cat("Col2Im: ", most, " windows overlap in one pixel; at most ", kMostOverlaps, " are supported"));
  const int64_t none = c.b.shape(x)[axis];
  if (holes) {
    Shape one = c.b.shape(x);
    one[axis] = 1;
    TS_ASSIGN(const ValueId zero, c.b.expand(c.b.scalar(0, c.b.element(x)), one));
    TS_ASSIGN(x, c.b.concat({x, zero}, static_cast<int64_t>(axis), c.name()));
  }
  ValueId sum = kNoValue;
  for (size_t turn = 0; turn < std::max<size_t>(1, most); ++turn) {
    std::vector<int64_t> ids;
    for (const auto& s : sources) ids.push_back(turn < s.size() ? s[turn] : none);
    TS_ASSIGN(const ValueId part, take(c, x, axis, c.b.integer_list(ids)));
    if (sum == kNoValue) {
      sum = part;
    } else {
      TS_ASSIGN(sum, c.b.map("add", {sum, part}, c.name()));
    }
  }
  return sum;
}

Result<Values> columns_to_image(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId image_given, c.operand(1));
  TS_ASSIGN(const ValueId block_given, c.operand(2));
  TS_ASSIGN(const std::vector<int64_t> image, c.b.integers(image_given, "the image's shape"));
  TS_ASSIGN(const std::vector<int64_t> block, c.b.integers(block_given, "the block's shape"));
  const Shape s = c.b.shape(x);
  const auto cells = checked_elements(block, kMaxElements);
  const bool listed = std::all_of(image.begin(), image.end(), [](int64_t n) { return n >= 1 && n <= kMaxListed; });
  if (s.size() != 3 || !listed || image.empty() || image.size() > 3 || block.size() != image.size() || !cells ||
      *cells < 1 || s[1] % *cells != 0)
    return bad_input(
        cat("Col2Im of ", to_string(s), " to an image ", to_string(image), " by blocks ", to_string(block)));
  Shape whole = {s[0], s[1] / *cells};
  whole.insert(whole.end(), image.begin(), image.end());
  TS_ASSIGN(const std::vector<WindowAxis> windows, read_windows(c, whole, block));
  int64_t count = 1;
  for (const WindowAxis& a : windows) count *= a.count;
  if (count != s[2]) return bad_input(cat("Col2Im: ", s[2], " columns for ", count, " windows"));
  // [b, c, block..., windows...] -> [b, c, block, windows, block, windows ...]
  const int64_t axes = static_cast<int64_t>(image.size());
  Shape apart = {whole[0], whole[1]}, joined = apart;
  std::vector<int64_t> perm = {0, 1};
  apart.insert(apart.end(), block.begin(), block.end());
  for (int64_t a = 0; a < axes; ++a) {
    const WindowAxis& w = windows[static_cast<size_t>(a)];
    apart.push_back(w.count);
    joined.push_back(w.kernel * w.count);
    perm.insert(perm.end(), {2 + a, 2 + axes + a});
  }
  TS_ASSIGN(ValueId y, c.b.reshape(x, apart));
  TS_ASSIGN(y, c.b.permute(y, perm));
  TS_ASSIGN(y, c.b.reshape(y, joined, c.name()));
  for (size_t a = 0; a < windows.size(); ++a) {
    TS_ASSIGN(y, add_up(c, y, 2 + a, windows[a]));
  }
  return Values{y};
}

}  // namespace

std::span<const OnnxOp> onnx_column_ops() {
  static const OnnxOp kOps[] = {{"Col2Im", columns_to_image}};
  return kOps;
}

}  // namespace tessera
