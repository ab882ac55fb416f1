// SPDX-License-Identifier: Apache-2.0
// Operators that move numbers without computing on them: views, joins, shapes. Shapes are known at build, so shape
// arithmetic folds away.
#include <algorithm>

#include "import/onnx/convert.h"

namespace tessera {
namespace {

Result<Values> reshape(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId wanted, c.operand(1));
  TS_ASSIGN(Shape shape, c.b.integers(wanted, "the shape"));
  TS_ASSIGN(const int64_t allow_zero, c.integer("allowzero", 0));
  const Shape& from = c.b.shape(x);
  int64_t known = 1;
  size_t open = shape.size();
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0 && allow_zero == 0) {
      if (i >= from.size())
        return bad_input(cat("shape ", to_string(shape), " keeps axis ", i, " of ", to_string(from)));
      shape[i] = from[i];
    }
    if (shape[i] == -1) {
      if (open != shape.size()) return bad_input(cat("shape ", to_string(shape), " leaves two sizes open"));
      open = i;
      continue;
    }
    const auto product = checked_elements({known, shape[i]}, kMaxElements);
    if (!product) return bad_input(cat("shape ", to_string(shape), " is negative or too large"));
    known = *product;
  }
  if (open != shape.size()) {
    if (known == 0 || elements(from) % known != 0)
      return bad_input(cat("cannot reshape ", to_string(from), " to ", to_string(shape)));
    shape[open] = elements(from) / known;
  }
  return single(c.b.reshape(x, shape, c.name()));
}

Result<Values> flatten(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(int64_t axis, c.integer("axis", 1));
  const Shape& from = c.b.shape(x);
  const int64_t rank = static_cast<int64_t>(from.size());
  if (axis < -rank || axis > rank) return bad_input(cat("axis ", axis, " does not exist in ", to_string(from)));
  if (axis < 0) axis += rank;
  const int64_t rows = elements(Shape(from.begin(), from.begin() + axis)),
                cols = elements(Shape(from.begin() + axis, from.end()));
  return single(c.b.reshape(x, {rows, cols}, c.name()));
}

Result<Values> transpose(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(std::vector<int64_t> perm, c.integers("perm"));
  if (perm.empty()) {
    for (size_t i = c.b.rank(x); i-- > 0;) perm.push_back(static_cast<int64_t>(i));
  }
  return single(c.b.permute(x, perm));
}

Result<Values> concat(OnnxCall& c) {
  if (c.in.empty()) return bad_input("Concat without operands");
  for (size_t i = 0; i < c.in.size(); ++i) TS_TRY(c.operand(i).status());
  TS_ASSIGN(const int64_t axis, c.integer("axis", 0));
  return single(c.b.concat(c.in, axis, c.name()));
}

Result<Values> split(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const int64_t axis_given, c.integer("axis", 0));
  TS_ASSIGN(const size_t axis, resolve_axis(axis_given, c.b.rank(x)));
  TS_ASSIGN(std::vector<int64_t> sizes, c.integers("split", 1));
  const int64_t total = c.b.shape(x)[axis], parts = static_cast<int64_t>(c.node.outputs.size());
  if (sizes.empty() && parts > 0) {
    const int64_t each = (total + parts - 1) / parts;  // the last part may be smaller
    for (int64_t i = 0, left = total; i < parts; ++i, left -= std::min(left, each))
      sizes.push_back(std::min(left, each));
  }
  if (static_cast<int64_t>(sizes.size()) != parts)
    return bad_input(cat(sizes.size(), " sizes for ", parts, " results"));
  Values out;
  int64_t start = 0;
  for (int64_t size : sizes) {
    if (size < 0 || size > total - start)
      return bad_input(cat("sizes ", to_string(sizes), " do not add up to ", total));
    TS_ASSIGN(const ValueId part, c.b.slice(x, static_cast<int64_t>(axis), start, 1, size));
    out.push_back(part);
    start += size;
  }
  if (start != total) return bad_input(cat("sizes ", to_string(sizes), " do not add up to ", total));
  return out;
}

// x[..., start + step i, ...]; backwards along the axis of a value that is no constant it is a gather.
Result<ValueId> walk(OnnxCall& c, ValueId x, size_t axis, int64_t start, int64_t step, int64_t count) {
  if (step > 0 || count < 2 || c.b.is_constant(x)) return c.b.slice(x, static_cast<int64_t>(axis), start, step, count);
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(start + i * step);
  return take(c, x, axis, c.b.integer_list(ids));
}

Result<Values> slice(OnnxCall& c) {
  TS_ASSIGN(ValueId x, c.operand(0));
  TS_ASSIGN(const std::vector<int64_t> starts, c.integers("starts", 1));
  TS_ASSIGN(const std::vector<int64_t> ends, c.integers("ends", 2));
  TS_ASSIGN(std::vector<int64_t> axes, c.integers("axes", 3));
  TS_ASSIGN(std::vector<int64_t> steps, c.integers("steps", 4));
  for (size_t i = axes.size(); i < starts.size() && !c.has(3) && !c.node.attrs.contains("axes"); ++i)
    axes.push_back(static_cast<int64_t>(i));
  if (steps.empty()) steps.assign(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    return bad_input("starts, ends, axes and steps differ in length");
  for (size_t i = 0; i < starts.size(); ++i) {
    TS_ASSIGN(const size_t axis, resolve_axis(axes[i], c.b.rank(x)));
    const int64_t size = c.b.shape(x)[axis], step = steps[i];
    if (step == 0 || step == INT64_MIN) return bad_input(cat("a slice with step ", step));
    const auto from_front = [&](int64_t at) {
      return at < 0 ? at + size : at;
    };  // at >= INT64_MIN, size >= 0: no overflow
    const int64_t start =
        std::clamp(from_front(starts[i]), int64_t{0}, step > 0 ? size : std::max<int64_t>(0, size - 1));
    const int64_t end = step > 0 ? std::clamp(from_front(ends[i]), int64_t{0}, size)
                                 : std::clamp(from_front(ends[i]), int64_t{-1}, size - 1);
    const int64_t distance = step > 0 ? end - start : start - end, stride = step > 0 ? step : -step;
    const int64_t count = distance <= 0 || size == 0 ? 0 : (distance - 1) / stride + 1;
    TS_ASSIGN(x, walk(c, x, axis, start, step, count));
  }
  return Values{x};
}

Result<Values> unsqueeze(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const std::vector<int64_t> axes, c.integers("axes", 1));
  return single(c.b.unsqueeze(x, axes));
}

Result<Values> squeeze(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(std::vector<int64_t> axes, c.integers("axes", 1));
  if (axes.empty() && !c.has(1)) {
    for (size_t i = 0; i < c.b.rank(x); ++i) {
      if (c.b.shape(x)[i] == 1) axes.push_back(static_cast<int64_t>(i));
    }
  }
  return single(c.b.squeeze(x, axes));
}

Result<Values> expand(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId wanted, c.operand(1));
  TS_ASSIGN(const Shape shape, c.b.integers(wanted, "the shape"));
  if (!checked_elements(shape, kMaxElements))
    return bad_input(cat("shape ", to_string(shape), " is negative or too large"));
  TS_ASSIGN(const Shape both, broadcast_shape(c.b.shape(x), shape));
  return single(c.b.expand(x, both));
}

Result<Values> tile(OnnxCall& c) {
  TS_ASSIGN(ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId wanted, c.operand(1));
  TS_ASSIGN(const std::vector<int64_t> repeats, c.b.integers(wanted, "repeats"));
  if (repeats.size() != c.b.rank(x)) return bad_input(cat(repeats.size(), " repeats for ", to_string(c.b.shape(x))));
  for (size_t i = 0; i < repeats.size(); ++i) {
    if (repeats[i] == 1) continue;
    if (repeats[i] < 1 || repeats[i] > 4096) return bad_input(cat("axis ", i, " repeated ", repeats[i], " times"));
    if (c.b.shape(x)[i] == 1) {
      Shape shape = c.b.shape(x);
      shape[i] = repeats[i];
      TS_ASSIGN(x, c.b.expand(x, shape));
    } else {
      TS_ASSIGN(x, c.b.concat(Values(static_cast<size_t>(repeats[i]), x), static_cast<int64_t>(i), c.name()));
    }
  }
  return Values{x};
}

Result<Values> shape_of(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  const Shape& shape = c.b.shape(x);
  const int64_t rank = static_cast<int64_t>(shape.size());
  TS_ASSIGN(const int64_t start_given, c.integer("start", 0));
  TS_ASSIGN(const int64_t end_given, c.integer("end", rank));
  const int64_t start = std::clamp(start_given < 0 ? start_given + rank : start_given, int64_t{0}, rank);
  const int64_t end = std::clamp(end_given < 0 ? end_given + rank : end_given, start, rank);
  return Values{c.b.integer_list({shape.begin() + start, shape.begin() + end}, c.name())};
}

Result<Values> size_of(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  return single(c.b.reshape(c.b.integer_list({elements(c.b.shape(x))}, c.name()), {}));
}

Result<ValueId> filled(OnnxCall& c, ValueId value, Shape shape, size_t axis, int64_t size) {
  shape[axis] = size;
  return c.b.expand(value, shape);
}

// Where position `at` of the padded axis reads an axis of `size`.
int64_t source_of(const std::string& mode, int64_t at, int64_t size) {
  if (mode == "edge") return std::clamp<int64_t>(at, 0, size - 1);
  const int64_t period = mode == "wrap" ? size : std::max<int64_t>(1, 2 * size - 2);
  const int64_t folded = ((at % period) + period) % period;
  return folded < size ? folded : period - folded;  // reflect: the edge is not repeated
}

Result<ValueId> pad_axis(OnnxCall& c, ValueId x, size_t axis, int64_t before, int64_t after, const std::string& mode,
                         ValueId value) {
  const int64_t size = c.b.shape(x)[axis], at = static_cast<int64_t>(axis);
  constexpr int64_t kMost = int64_t{1} << 30;
  if (std::max(before, after) > kMost || std::min(before, after) < -kMost || size + before + after < 0)
    return bad_input(cat("axis ", axis, " of ", to_string(c.b.shape(x)), " padded by ", before, " and ", after));
  if (mode != "constant") {
    if (size == 0 || size + before + after > kMaxListed) return bad_input("Pad: nothing to repeat, or too much");
    std::vector<int64_t> ids;
    for (int64_t i = -before; i < size + after; ++i) ids.push_back(source_of(mode, i, size));
    return take(c, x, axis, c.b.integer_list(ids));
  }
  const int64_t skip = std::min(size, std::max<int64_t>(0, -before));
  const int64_t keep = std::max<int64_t>(0, size - skip - std::max<int64_t>(0, -after));
  TS_ASSIGN(x, c.b.slice(x, at, skip, 1, keep));
  Values parts = {x};
  if (before > 0) {
    TS_ASSIGN(const ValueId part, filled(c, value, c.b.shape(x), axis, before));
    parts.insert(parts.begin(), part);
  }
  if (after > 0) {
    TS_ASSIGN(const ValueId part, filled(c, value, c.b.shape(x), axis, after));
    parts.push_back(part);
  }
  return c.b.concat(parts, at, c.name());
}

Result<Values> pad(OnnxCall& c) {
  TS_ASSIGN(ValueId x, c.operand(0));
  TS_ASSIGN(const std::string mode, c.word("mode", "constant"));
  TS_ASSIGN(const std::vector<int64_t> pads, c.integers("pads", 1));
  TS_ASSIGN(std::vector<int64_t> axes, c.integers("axes", 3));
  if (mode != "constant" && mode != "edge" && mode != "reflect" && mode != "wrap")
    return bad_input(cat("Pad with mode '", shown(mode), "'; known: constant, edge, reflect, wrap"));
  for (size_t i = 0; i < c.b.rank(x) && !c.has(3); ++i) axes.push_back(static_cast<int64_t>(i));
  if (pads.size() != 2 * axes.size()) return bad_input(cat(pads.size(), " pads for ", axes.size(), " axes"));
  ValueId value = c.b.scalar(0, c.b.element(x));
  if (c.has(2)) {
    TS_ASSIGN(value, c.b.reshape(c.in[2], {}));
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    TS_ASSIGN(const size_t axis, resolve_axis(axes[i], c.b.rank(x)));
    const int64_t before = pads[i], after = pads[axes.size() + i];
    if (before == 0 && after == 0) continue;
    TS_ASSIGN(x, pad_axis(c, x, axis, before, after, mode, value));
  }
  return Values{x};
}

// Blocks of pixels and channels trade places: [b, c, h, w] <-> [b, c block^2, h / block, w / block].
Result<Values> depth_and_space(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const int64_t block, c.integer("blocksize", 0));
  TS_ASSIGN(const std::string mode, c.word("mode", "DCR"));
  const Shape s = c.b.shape(x);
  if (s.size() != 4 || block < 1 || block > 65536) return bad_input(cat("blocks of ", block, " in ", to_string(s)));
  const bool to_space = c.node.op == "DepthToSpace";
  const int64_t cells = block * block;
  if (to_space ? s[1] % cells != 0 : s[2] % block != 0 || s[3] % block != 0)
    return bad_input(cat("blocks of ", block, " do not divide ", to_string(s)));
  Shape split, result;
  std::vector<int64_t> perm;
  if (to_space) {
    split = mode == "CRD" ? Shape{s[0], s[1] / cells, block, block, s[2], s[3]}
                          : Shape{s[0], block, block, s[1] / cells, s[2], s[3]};
    perm = mode == "CRD" ? std::vector<int64_t>{0, 1, 4, 2, 5, 3} : std::vector<int64_t>{0, 3, 4, 1, 5, 2};
    result = {s[0], s[1] / cells, s[2] * block, s[3] * block};
  } else {
    split = {s[0], s[1], s[2] / block, block, s[3] / block, block};
    perm = {0, 3, 5, 1, 2, 4};
    result = {s[0], s[1] * cells, s[2] / block, s[3] / block};
  }
  TS_ASSIGN(const ValueId parts, c.b.reshape(x, split));
  TS_ASSIGN(const ValueId turned, c.b.permute(parts, perm));
  return single(c.b.reshape(turned, result, c.name()));
}

}  // namespace

std::span<const OnnxOp> onnx_shape_ops() {
  static const OnnxOp kOps[] = {
      {"Reshape", reshape},     {"Flatten", flatten}, {"Transpose", transpose},
      {"Concat", concat},       {"Split", split},     {"Slice", slice},
      {"Unsqueeze", unsqueeze}, {"Squeeze", squeeze}, {"Expand", expand},
      {"Tile", tile},           {"Pad", pad},         {"DepthToSpace", depth_and_space},
      {"Shape", shape_of},      {"Size", size_of},    {"SpaceToDepth", depth_and_space},
  };
  return kOps;
}

}  // namespace tessera
