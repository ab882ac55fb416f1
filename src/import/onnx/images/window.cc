// SPDX-License-Identifier: Apache-2.0
#include "import/onnx/images/window.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr int64_t kMost = int64_t{1} << 20;

Result<std::vector<int64_t>> numbers(const OnnxCall& c, const char* key, size_t count, int64_t fallback,
                                     int64_t least) {
  TS_ASSIGN(std::vector<int64_t> list, c.integers(key));
  if (list.empty()) list.assign(count, fallback);
  if (list.size() != count ||
      !std::all_of(list.begin(), list.end(), [&](int64_t n) { return n >= least && n < kMost; }))
    return bad_input(
        cat("attribute '", key, "' is ", to_string(list), "; wanted ", count, " numbers from ", least, " to 2^20"));
  return list;
}

void pad_to_same(WindowAxis& a, bool upper) {
  const int64_t count = divide_up(a.size, a.stride),
                total = std::max<int64_t>(0, (count - 1) * a.stride + a.extent() - a.size);
  a.before = upper ? total / 2 : total - total / 2;
  a.after = total - a.before;
}

Status count_windows(WindowAxis& a, bool ceil) {
  const int64_t room = a.size + a.before + a.after - a.extent();
  if (room < 0)
    return bad_input(cat("a kernel of ", a.kernel, " with dilation ", a.dilation, " does not fit into ", a.size,
                         " elements padded by ", a.before, " and ", a.after));
  a.count = (ceil ? divide_up(room, a.stride) : room / a.stride) + 1;
  if ((a.count - 1) * a.stride >= a.size + a.before) --a.count;  // a window that would begin in the pads behind x
  return {};
}

// What attributes say of every axis; pads by auto_pad where `padded`.
Result<std::vector<WindowAxis>> read_axes(const OnnxCall& c, const Shape& x, std::vector<int64_t> kernel, bool padded) {
  if (x.size() < 3) return bad_input(cat("images of ", to_string(x), "; at least one axis follows batch and channels"));
  const size_t axes = x.size() - 2;
  TS_ASSIGN(const std::vector<int64_t> given, c.integers("kernel_shape"));
  if (kernel.empty()) kernel = given;
  const auto fits = [](int64_t k) { return k >= 1 && k < kMost; };
  if (kernel.size() != axes || (!given.empty() && given != kernel) || !std::all_of(kernel.begin(), kernel.end(), fits))
    return bad_input(
        cat("a kernel of ", to_string(kernel), " over ", to_string(x), ", kernel_shape ", to_string(given)));
  TS_ASSIGN(const std::vector<int64_t> strides, numbers(c, "strides", axes, 1, 1));
  TS_ASSIGN(const std::vector<int64_t> dilations, numbers(c, "dilations", axes, 1, 1));
  TS_ASSIGN(const std::vector<int64_t> pads, numbers(c, "pads", 2 * axes, 0, 0));
  TS_ASSIGN(const std::string auto_pad, c.word("auto_pad", "NOTSET"));
  const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
  if (!same && auto_pad != "NOTSET" && auto_pad != "VALID")
    return bad_input(cat("auto_pad '", shown(auto_pad), "'; known: NOTSET, VALID, SAME_UPPER, SAME_LOWER"));
  std::vector<WindowAxis> out;
  for (size_t i = 0; i < axes; ++i) {
    WindowAxis a{.size = x[2 + i], .kernel = kernel[i], .stride = strides[i], .dilation = dilations[i]};
    if (a.size < 1) return bad_input(cat("images of ", to_string(x)));
    if (same && padded) pad_to_same(a, auto_pad == "SAME_UPPER");
    if (auto_pad == "NOTSET") a.before = pads[i], a.after = pads[axes + i];
    out.push_back(a);
  }
  return out;
}

}  // namespace

Result<std::vector<WindowAxis>> read_windows(const OnnxCall& c, const Shape& x, std::vector<int64_t> kernel) {
  TS_ASSIGN(std::vector<WindowAxis> out, read_axes(c, x, std::move(kernel), true));
  TS_ASSIGN(const int64_t ceil, c.integer("ceil_mode", 0));
  for (WindowAxis& a : out) TS_TRY(count_windows(a, ceil != 0));
  return out;
}

Result<std::vector<WindowAxis>> read_spread(const OnnxCall& c, const Shape& x, std::vector<int64_t> kernel) {
  return read_axes(c, x, std::move(kernel), false);
}

}  // namespace tessera
