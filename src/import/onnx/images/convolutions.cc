// SPDX-License-Identifier: Apache-2.0
// Convolutions. Where patches do not overlap (kernel = stride) they are products of reordered pixels; all others are
// conv2d, whose images have their channels last, those over three axes sums of it. Transposed ones are products whose
// results are blocks of pixels, or convolutions of images with zeros between the pixels.
#include <algorithm>

#include "import/onnx/images/window.h"

namespace tessera {
namespace {

// The result of a product of any number of axes, [batch, pixels ..., channels], with its bias, channels first again.
Result<Values> finish(OnnxCall& c, ValueId y, int64_t channels) {
  if (c.has(2)) {
    if (c.b.shape(c.in[2]) != Shape{channels})
      return bad_input(
          cat(c.node.op, " with a bias of ", to_string(c.b.shape(c.in[2])), " for ", channels, " channels"));
    TS_ASSIGN(y, c.b.map("add", {y, c.in[2]}, c.name()));
  }
  std::vector<int64_t> channels_first = {0, static_cast<int64_t>(c.b.rank(y)) - 1};
  for (size_t i = 1; i + 1 < c.b.rank(y); ++i) channels_first.push_back(static_cast<int64_t>(i));
  return single(c.b.permute(y, channels_first));
}

// [b, c, pixels ...] -> [b, pixels ..., c]
Result<ValueId> channels_last(OnnxCall& c, ValueId x) {
  std::vector<int64_t> perm = {0};
  for (size_t i = 2; i < c.b.rank(x); ++i) perm.push_back(static_cast<int64_t>(i));
  perm.push_back(1);
  return c.b.permute(x, perm);
}

// Patches as rows: [b, c, H, W] -> [b, c, h, kh, w, kw] -> [b, h, w, c, kh, kw]: the pixels of a patch in the order of
// the kernel's weights.
Result<Values> patches(OnnxCall& c, ValueId x, ValueId w, const std::vector<WindowAxis>& windows) {
  const Shape weight = c.b.shape(w), image = c.b.shape(x);
  const size_t axes = windows.size();
  Shape cells = {image[0], image[1]}, grid = {image[0]};
  std::vector<int64_t> perm = {0};
  for (size_t i = 0; i < axes; ++i) {
    const int64_t count = windows[i].count, kernel = windows[i].kernel;
    if (count * kernel != image[2 + i]) {  // pixels beyond the last whole patch are not looked at
      TS_ASSIGN(x, c.b.slice(x, static_cast<int64_t>(2 + i), 0, 1, count * kernel));
    }
    cells.push_back(count);
    cells.push_back(kernel);
    grid.push_back(count);
    perm.push_back(static_cast<int64_t>(2 + 2 * i));
  }
  perm.push_back(1);
  for (size_t i = 0; i < axes; ++i) perm.push_back(static_cast<int64_t>(3 + 2 * i));
  const int64_t count = elements(Shape(grid.begin() + 1, grid.end())),
                pixels = elements(Shape(weight.begin() + 1, weight.end()));
  const std::string name = c.name_by(1);
  name_weight(c, w, name);
  TS_ASSIGN(x, c.b.reshape(x, cells));
  TS_ASSIGN(x, c.b.permute(x, perm));
  TS_ASSIGN(x, c.b.reshape(x, {image[0], count, pixels}, name + ".patches"));
  TS_ASSIGN(w, c.b.reshape(w, {weight[0], pixels}));
  TS_ASSIGN(ValueId y, c.b.emit("matmul", {x, w}, {}, name));
  if (c.has(2)) {
    if (c.b.shape(c.in[2]) != Shape{weight[0]})
      return bad_input(cat("Conv with a bias of ", to_string(c.b.shape(c.in[2]))));
    TS_ASSIGN(y, c.b.map("add", {y, c.in[2]}, c.name()));
  }
  grid.push_back(weight[0]);
  std::vector<int64_t> channels_first = {0, static_cast<int64_t>(axes) + 1};
  for (size_t i = 0; i < axes; ++i) channels_first.push_back(static_cast<int64_t>(i) + 1);
  TS_ASSIGN(y, c.b.reshape(y, grid));
  return single(c.b.permute(y, channels_first));
}

// Codes keep the order that their scales are for.
Status check_plain(OnnxCall& c, ValueId w) {
  if (!c.file.decoded.contains(c.b.place(w).base)) return {};
  return bad_input(cat(c.node.op,
                       " with quantized weights; plain ones are supported, a Conv over one or two axes, and a ",
                       "ConvTranspose whose stride equals the kernel, without padding, dilation and groups"));
}

// conv2d of x [b, c, h, w] or [b, c, w] with w [n, c / groups, kernel ...]; its result has the channels last.
Result<ValueId> channels_last_result(OnnxCall& c, ValueId x, ValueId w, std::vector<WindowAxis> windows, int64_t groups,
                                     const std::string& name) {
  const bool line = windows.size() == 1;
  if (line) {
    TS_ASSIGN(x, c.b.unsqueeze(x, {2}));
    TS_ASSIGN(w, c.b.unsqueeze(w, {2}));
    windows.insert(windows.begin(), WindowAxis{.size = 1, .count = 1});
  }
  const Shape weight = c.b.shape(w);
  TS_ASSIGN(x, channels_last(c, x));
  TS_ASSIGN(w, channels_last(c, w));
  TS_ASSIGN(w, c.b.reshape(w, {weight[0], weight[1] * weight[2] * weight[3]}));
  const WindowAxis &i = windows[0], &j = windows[1];
  const auto both = [&](int64_t WindowAxis::*field) { return std::vector<int64_t>{i.*field, j.*field}; };
  const Attrs attrs = {{"kernel", both(&WindowAxis::kernel)},
                       {"strides", both(&WindowAxis::stride)},
                       {"dilations", both(&WindowAxis::dilation)},
                       {"pads", std::vector<int64_t>{i.before, j.before, i.after, j.after}},
                       {"groups", groups}};
  TS_ASSIGN(const ValueId y, c.b.emit("conv2d", {x, w}, attrs, name));
  return line ? c.b.squeeze(y, {1}) : Result<ValueId>(y);
}

// Over three axes: along the one with the shortest kernel, each of its elements is a convolution over the other two,
// whose batch has the slices that it meets; their results are summed.
Result<Values> convolve_volume(OnnxCall& c, ValueId x, ValueId w, std::vector<WindowAxis> windows, int64_t groups) {
  size_t axis = 0;
  for (size_t i = 1; i < windows.size(); ++i) {
    if (windows[i].kernel < windows[axis].kernel) axis = i;
  }
  const WindowAxis along = windows[axis];
  constexpr int64_t kMostTaps = 64;
  if (along.kernel > kMostTaps)
    return bad_input(cat("a convolution over three axes whose shortest kernel has ", along.kernel,
                         " elements; at most ", kMostTaps, " are supported"));
  windows.erase(windows.begin() + static_cast<std::ptrdiff_t>(axis));
  const std::string name = c.name_by(1);
  const int64_t channels = c.b.shape(w)[0], at = static_cast<int64_t>(axis);
  std::vector<int64_t> slices_first = {0, 2 + at, 1};  // [b, slices, c, pixels ...]
  for (int64_t i = 0; i < 3; ++i) {
    if (i != at) slices_first.push_back(2 + i);
  }
  TS_ASSIGN(x, c.b.permute(x, slices_first));
  Values parts = {x};
  for (const bool front : {true, false}) {
    const int64_t pad = front ? along.before : along.after;
    if (pad == 0) continue;
    Shape zeros = c.b.shape(x);
    zeros[1] = pad;
    TS_ASSIGN(const ValueId nothing, c.b.expand(c.b.scalar(0, c.b.element(x)), zeros));
    parts.insert(front ? parts.begin() : parts.end(), nothing);
  }
  if (parts.size() > 1) {
    TS_ASSIGN(x, c.b.concat(parts, 1, name + ".padded"));
  }
  const Shape padded = c.b.shape(x);
  ValueId sum = kNoValue;
  for (int64_t t = 0; t < along.kernel; ++t) {
    TS_ASSIGN(ValueId met, c.b.slice(x, 1, t * along.dilation, along.stride, along.count));
    TS_ASSIGN(met, c.b.reshape(met, {padded[0] * along.count, padded[2], padded[3], padded[4]}, name + ".slices"));
    TS_ASSIGN(ValueId kernel, c.b.slice(w, 2 + at, t, 1, 1));
    TS_ASSIGN(kernel, c.b.squeeze(kernel, {2 + at}));
    const std::string part_name = along.kernel == 1 ? name : cat(name, ".", t);
    TS_ASSIGN(const ValueId part, channels_last_result(c, met, kernel, windows, groups, part_name));
    if (sum == kNoValue) {
      sum = part;
    } else {
      TS_ASSIGN(sum, c.b.map("add", {sum, part}, name));
    }
  }
  // [b slices, pixels ..., n] -> [b, pixels ... with the slices among them, n]
  const Shape each = c.b.shape(sum);
  TS_ASSIGN(ValueId y, c.b.reshape(sum, {padded[0], along.count, each[1], each[2], channels}));
  std::vector<int64_t> in_order = {0, 2, 3, 4};
  in_order.insert(in_order.begin() + 1 + at, 1);
  TS_ASSIGN(y, c.b.permute(y, in_order));
  return finish(c, y, channels);
}

Result<Values> convolve(OnnxCall& c, ValueId x, ValueId w, std::vector<WindowAxis> windows, int64_t groups) {
  if (windows.size() > 2) {
    TS_TRY(check_plain(c, w));
    return convolve_volume(c, x, w, std::move(windows), groups);
  }
  const std::string name = c.name_by(1);
  name_weight(c, w, name);
  const int64_t channels = c.b.shape(w)[0];
  TS_ASSIGN(const ValueId y, channels_last_result(c, x, w, std::move(windows), groups, name));
  return finish(c, y, channels);
}

Result<Values> conv(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId w, c.operand(1));
  const Shape weight = c.b.shape(w), image = c.b.shape(x);
  TS_ASSIGN(const int64_t groups, c.integer("group", 1));
  if (weight.size() < 3 || weight.size() > 5 || image.size() != weight.size() || groups < 1 || weight[1] < 1 ||
      image[1] % groups != 0 || image[1] / groups != weight[1] || weight[0] % groups != 0) {
    return bad_input(cat("Conv of ", to_string(image), " with a kernel of ", to_string(weight), " and ", groups,
                         groups == 1 ? " group" : " groups"));
  }
  TS_ASSIGN(const std::vector<WindowAxis> windows, read_windows(c, image, {weight.begin() + 2, weight.end()}));
  const bool apart = groups == 1 && std::all_of(windows.begin(), windows.end(), [](const WindowAxis& a) {
                       return a.stride == a.kernel && a.dilation == 1 && a.before == 0 && a.after == 0;
                     });
  return apart ? patches(c, x, w, windows) : convolve(c, x, w, windows, groups);
}

// How ConvTranspose pads: what it cuts off its result at both ends of an axis.
struct Cut {
  int64_t before = 0, after = 0;  // after: less the output padding
};

Result<std::vector<Cut>> cuts_of(OnnxCall& c, const std::vector<WindowAxis>& windows) {
  TS_ASSIGN(const std::vector<int64_t> more, c.integers("output_padding"));
  TS_ASSIGN(const std::vector<int64_t> wanted, c.integers("output_shape"));
  TS_ASSIGN(const std::string auto_pad, c.word("auto_pad", "NOTSET"));
  const size_t axes = windows.size();
  if ((!more.empty() && more.size() != axes) || (!wanted.empty() && wanted.size() < axes))
    return bad_input("output_padding and output_shape have a number for each axis");
  std::vector<Cut> cuts;
  for (size_t i = 0; i < axes; ++i) {
    const WindowAxis& a = windows[i];
    const int64_t extra = more.empty() ? 0 : more[i], full = (a.size - 1) * a.stride + a.extent();
    if (extra < 0 || extra >= std::max(a.stride, a.dilation))
      return bad_input(cat("output_padding ", extra, " with stride ", a.stride));
    Cut cut{.before = a.before, .after = a.after - extra};
    if (!wanted.empty() || auto_pad.starts_with("SAME")) {
      const int64_t size = wanted.empty() ? a.size * a.stride : wanted[wanted.size() - axes + i];
      const int64_t total = full + extra - size;
      if (size < 1 || total < 0)
        return bad_input(cat("a result of ", size, " along an axis that has ", full + extra, " at most"));
      cut.before = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
      cut.after = total - cut.before - extra;
    }
    if (cut.before >= a.extent() || cut.after >= a.extent() || full - cut.before - cut.after < 1)
      return bad_input(cat("pads ", cut.before, " and ", cut.after, " of a kernel that reaches over ", a.extent()));
    cuts.push_back(cut);
  }
  return cuts;
}

// Zeros between neighbours of an axis: size -> (size - 1) stride + 1.
Result<ValueId> spread(OnnxCall& c, ValueId x, size_t axis, int64_t stride) {
  if (stride == 1 || c.b.shape(x)[axis] == 1) return x;
  const int64_t at = static_cast<int64_t>(axis), size = c.b.shape(x)[axis];
  if (size > kMaxListed / stride)
    return bad_input(cat("ConvTranspose spreads an axis of ", size, " with stride ", stride,
                         "; pixels and the zeros between them are at most ", kMaxListed));
  TS_ASSIGN(const ValueId apart, c.b.unsqueeze(x, {at + 1}));
  Shape zeros = c.b.shape(apart);
  zeros[axis + 1] = stride - 1;
  TS_ASSIGN(const ValueId between, c.b.expand(c.b.scalar(0, c.b.element(x)), zeros));
  TS_ASSIGN(const ValueId both, c.b.concat({apart, between}, at + 1, c.name()));
  Shape shape = c.b.shape(x);
  shape[axis] = size * stride;
  TS_ASSIGN(const ValueId flat, c.b.reshape(both, shape));
  return c.b.slice(flat, at, 0, 1, (size - 1) * stride + 1);
}

// Every pixel becomes a block of its own: x [b, c, h, w] with w [c, n, kh, kw] is a product with kh kw n results.
Result<Values> blocks(OnnxCall& c, ValueId x, ValueId w, const std::vector<WindowAxis>& windows) {
  const Shape weight = c.b.shape(w), image = c.b.shape(x);
  const std::string name = c.name_by(1);
  name_weight(c, w, name);
  const int64_t channels = weight[0], n = weight[1], block = elements(Shape(weight.begin() + 2, weight.end()));
  std::vector<int64_t> kernel_first;  // [kernel ..., n, c]
  for (size_t i = 2; i < weight.size(); ++i) kernel_first.push_back(static_cast<int64_t>(i));
  kernel_first.push_back(1);
  kernel_first.push_back(0);
  TS_ASSIGN(w, c.b.permute(w, kernel_first));
  TS_ASSIGN(w, c.b.reshape(w, {block * n, channels}));
  TS_ASSIGN(x, channels_last(c, x));
  TS_ASSIGN(ValueId y, c.b.emit("matmul", {x, w}, {}, name));
  // [b, h, w, kh kw n] -> [b, h, kh, w, kw, n]
  Shape split(image.begin(), image.begin() + 1), joined = split;
  const size_t axes = windows.size();
  split.insert(split.end(), image.begin() + 2, image.end());
  std::vector<int64_t> perm = {0};
  for (size_t i = 0; i < axes; ++i) {
    split.push_back(windows[i].kernel);
    joined.push_back(image[2 + i] * windows[i].kernel);
    perm.push_back(static_cast<int64_t>(1 + i));
    perm.push_back(static_cast<int64_t>(1 + axes + i));
  }
  split.push_back(n), joined.push_back(n);
  perm.push_back(static_cast<int64_t>(1 + 2 * axes));
  TS_ASSIGN(y, c.b.reshape(y, split));
  TS_ASSIGN(y, c.b.permute(y, perm));
  TS_ASSIGN(y, c.b.reshape(y, joined, name + ".blocks"));
  return finish(c, y, n);
}

Result<Values> conv_transpose(OnnxCall& c) {
  TS_ASSIGN(ValueId x, c.operand(0));
  TS_ASSIGN(ValueId w, c.operand(1));
  const Shape weight = c.b.shape(w), image = c.b.shape(x);
  TS_ASSIGN(const int64_t groups, c.integer("group", 1));
  if (weight.size() < 3 || weight.size() > 4 || image.size() != weight.size() || groups < 1 || weight[1] < 1 ||
      image[1] != weight[0] || weight[0] % groups != 0) {
    return bad_input(cat("ConvTranspose of ", to_string(image), " with a kernel of ", to_string(weight), " and ",
                         groups, groups == 1 ? " group" : " groups", "; over one or two axes it is supported"));
  }
  TS_ASSIGN(std::vector<WindowAxis> windows, read_spread(c, image, {weight.begin() + 2, weight.end()}));
  TS_ASSIGN(const std::vector<Cut> cuts, cuts_of(c, windows));
  bool apart = groups == 1;
  for (size_t i = 0; i < windows.size(); ++i)
    apart = apart && windows[i].stride == windows[i].kernel && windows[i].dilation == 1 && cuts[i].before == 0 &&
            cuts[i].after == 0;
  if (apart) return blocks(c, x, w, windows);
  TS_TRY(check_plain(c, w));
  // w [g c, n, kernel ...] -> [g n, c, kernel ...], the kernel backwards.
  Shape split = {groups, weight[0] / groups};
  split.insert(split.end(), weight.begin() + 1, weight.end());
  std::vector<int64_t> perm = {0, 2, 1};
  for (size_t i = 3; i < split.size(); ++i) perm.push_back(static_cast<int64_t>(i));
  if (!c.is_weight(w)) return bad_input("the kernel of ConvTranspose must be known at build");
  const std::string weight_name = c.b.graph().at(w).name;
  TS_ASSIGN(w, c.b.reshape(w, split));
  TS_ASSIGN(w, c.b.permute(w, perm));
  TS_ASSIGN(w, c.b.reshape(w, [&] {
    Shape merged = {groups * weight[1], weight[0] / groups};
    merged.insert(merged.end(), weight.begin() + 2, weight.end());
    return merged;
  }()));
  for (size_t i = 0; i < windows.size(); ++i) {
    WindowAxis& a = windows[i];
    TS_ASSIGN(w, c.b.slice(w, static_cast<int64_t>(2 + i), a.kernel - 1, -1, a.kernel));
    TS_ASSIGN(x, spread(c, x, 2 + i, a.stride));
    a.before = a.extent() - 1 - cuts[i].before;
    a.after = a.extent() - 1 - cuts[i].after;
    a.stride = 1;
  }
  c.b.graph().at(w).name = weight_name;
  return convolve(c, x, w, windows, groups);
}

}  // namespace

std::span<const OnnxOp> onnx_convolution_ops() {
  static const OnnxOp kOps[] = {{"Conv", conv}, {"ConvTranspose", conv_transpose}};
  return kOps;
}

}  // namespace tessera
