// SPDX-License-Identifier: Apache-2.0
// Pools: maxima and means of windows. A window's elements along an axis are as many slices of x, folded into one by
// maps: no copy of x, on every target. One window over a whole axis is a reduction.
#include <algorithm>
#include <cmath>

#include "import/onnx/images/window.h"

namespace tessera {
namespace {

constexpr int64_t kMostTaps = 128;  // of a window along one axis

// x between `before` and `after` copies of a number along an axis, or of the elements at its ends.
Result<ValueId> padded(OnnxCall& c, ValueId x, size_t axis, int64_t before, int64_t after, ValueId number) {
  Values parts;
  const auto add = [&](int64_t count, int64_t end) -> Status {
    if (count <= 0) return {};
    ValueId part = number;
    if (number == kNoValue) {
      TS_ASSIGN(part, c.b.slice(x, static_cast<int64_t>(axis), end, 1, 1));
    }
    Shape shape = c.b.shape(x);
    shape[axis] = count;
    TS_ASSIGN(part, c.b.expand(part, shape));
    parts.push_back(part);
    return {};
  };
  TS_TRY(add(before, 0));
  parts.push_back(x);
  TS_TRY(add(after, c.b.shape(x)[axis] - 1));
  return c.b.concat(parts, static_cast<int64_t>(axis), c.name());
}

// The windows along an axis, each folded into one element: by "max", or by "add". What lies outside of x changes none.
Result<ValueId> fold(OnnxCall& c, ValueId x, size_t axis, const WindowAxis& a, const std::string& fn) {
  const int64_t at = static_cast<int64_t>(axis), behind = a.after + a.beyond();
  if (a.count == 1 && a.dilation == 1) {
    TS_ASSIGN(x, c.b.slice(x, at, 0, 1, std::min(a.size, a.kernel - a.before)));
    std::vector<bool> reduced(c.b.rank(x), false);
    reduced[axis] = true;
    return reduce_axes(c, x, reduced, true, fn == "add" ? "sum" : fn);
  }
  if (a.kernel > kMostTaps)
    return bad_input(cat("a window of ", a.kernel, " elements that slides; at most ", kMostTaps, " are supported"));
  // A maximum whose window reaches over the end of x has the element there in it, unless it skips elements: no number
  // of x's range changes, which decides what types hold it.
  const ValueId nothing = fn == "add"       ? c.b.scalar(0, c.b.element(x))
                          : a.dilation == 1 ? kNoValue
                                            : c.b.scalar(-INFINITY, c.b.element(x));
  TS_ASSIGN(x, padded(c, x, axis, a.before, behind, nothing));
  ValueId y = kNoValue;
  for (int64_t t = 0; t < a.kernel; ++t) {
    TS_ASSIGN(const ValueId tap, c.b.slice(x, at, t * a.dilation, a.stride, a.count));
    if (y == kNoValue) {
      y = tap;
    } else {
      TS_ASSIGN(y, c.b.map(fn, {y, tap}, c.name()));
    }
  }
  return y;
}

// Every window sees x; pads are no wider than it.
Status check_pads(const std::vector<WindowAxis>& windows) {
  for (const WindowAxis& a : windows) {
    if (a.before >= a.extent() || a.after >= a.extent() || a.before >= a.kernel * a.dilation)
      return bad_input(cat("pads ", a.before, " and ", a.after, " of windows that reach over ", a.extent()));
    if (a.dilation > 1 && (a.before > 0 || a.after > 0) && a.extent() > a.size)
      return bad_input(cat("windows of ", a.kernel, " elements ", a.dilation, " apart may see nothing but pads"));
  }
  return {};
}

Result<ValueId> float_image(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  if (info(c.b.element(x)).kind != ElementKind::kFloat)
    return bad_input(cat(c.node.op, " of ", info(c.b.element(x)).name, "; floats are supported"));
  return x;
}

Result<Values> max_pool(OnnxCall& c) {
  TS_ASSIGN(ValueId x, float_image(c));
  TS_ASSIGN(const std::vector<WindowAxis> windows, read_windows(c, c.b.shape(x), {}));
  TS_TRY(check_pads(windows));
  for (size_t i = 0; i < windows.size(); ++i) {
    TS_ASSIGN(x, fold(c, x, 2 + i, windows[i], "max"));
  }
  return Values{x};
}

// 1 / the elements that each window along an axis counts: those of x, and of the pads that the file asks for where
// these count.
std::vector<float> shares(const WindowAxis& a, bool count_pads) {
  std::vector<float> out;
  for (int64_t i = 0; i < a.count; ++i) {
    int64_t seen = 0;
    for (int64_t t = 0; t < a.kernel; ++t) {
      const int64_t at = i * a.stride - a.before + t * a.dilation;
      seen += count_pads ? at < a.size + a.after : at >= 0 && at < a.size;
    }
    out.push_back(static_cast<float>(1.0 / static_cast<double>(std::max<int64_t>(1, seen))));
  }
  return out;
}

Result<Values> average_pool(OnnxCall& c) {
  TS_ASSIGN(ValueId x, float_image(c));
  TS_ASSIGN(const int64_t count_pads, c.integer("count_include_pad", 0));
  TS_ASSIGN(const std::vector<WindowAxis> windows, read_windows(c, c.b.shape(x), {}));
  TS_TRY(check_pads(windows));
  double all = 1;  // of axes whose windows count the same number of elements
  for (size_t i = 0; i < windows.size(); ++i) {
    const WindowAxis& a = windows[i];
    if (a.count > kMaxListed || a.kernel > kMaxListed || a.count * a.kernel > 16 * kMaxListed)
      return bad_input(cat(a.count, " windows of ", a.kernel, " elements along an axis are too many to be counted"));
    TS_ASSIGN(x, fold(c, x, 2 + i, a, "add"));
    const std::vector<float> share = shares(a, count_pads != 0);
    if (std::all_of(share.begin(), share.end(), [&](float s) { return s == share[0]; })) {
      all *= static_cast<double>(share[0]);
      continue;
    }
    Shape along(c.b.rank(x), 1);
    along[2 + i] = a.count;
    const ValueId factor = c.b.graph().add_constant(c.name() + ".shares", along, share);
    TS_ASSIGN(x, c.b.map("mul", {x, factor}, c.name()));
  }
  if (all == 1) return Values{x};
  return single(c.b.map("mul", {x, c.b.scalar(all, c.b.element(x))}, c.name()));
}

Result<ValueId> over_the_image(OnnxCall& c, const std::string& fn) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  if (c.b.rank(x) < 3) return bad_input(cat(c.node.op, " of ", to_string(c.b.shape(x))));
  std::vector<bool> reduced(c.b.rank(x), true);
  reduced[0] = reduced[1] = false;
  return reduce_axes(c, x, reduced, true, fn);
}

Result<Values> global_average_pool(OnnxCall& c) { return single(over_the_image(c, "mean")); }
Result<Values> global_max_pool(OnnxCall& c) { return single(over_the_image(c, "max")); }

}  // namespace

std::span<const OnnxOp> onnx_pooling_ops() {
  static const OnnxOp kOps[] = {
      {"MaxPool", max_pool},
      {"AveragePool", average_pool},
      {"GlobalAveragePool", global_average_pool},
      {"GlobalMaxPool", global_max_pool},
  };
  return kOps;
}

}  // namespace tessera
