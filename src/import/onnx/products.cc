// SPDX-License-Identifier: Apache-2.0
// Products with weights or of two activations: MatMul, Gemm, and Conv over patches that do not overlap.
#include <algorithm>

#include "import/onnx/convert.h"

namespace tessera {

Result<ValueId> product(OnnxCall& c, ValueId x, ValueId w, const std::string& name) {
  if (c.b.rank(w) > 2) {
    Shape xs = c.b.shape(x), ws = c.b.shape(w);
    TS_ASSIGN(const Shape lead, broadcast_shape(Shape(xs.begin(), xs.end() - 2), Shape(ws.begin(), ws.end() - 2)));
    Shape x_full = lead, w_full = lead;
    x_full.insert(x_full.end(), xs.end() - 2, xs.end());
    w_full.insert(w_full.end(), ws.end() - 2, ws.end());
    TS_ASSIGN(x, c.b.expand(x, x_full));
    TS_ASSIGN(w, c.b.expand(w, w_full));
  }
  return c.b.emit("matmul", {x, w}, {}, name);
}

namespace {

// The constant that holds a layer's weight carries the layer's name, whatever the exporter called it; codes keep the
// name that messages about them and their scales use.
void name_weight(OnnxCall& c, ValueId weight, const std::string& layer) {
  Value& v = c.b.graph().at(weight);
  if (v.constant && v.name.find('.') == std::string::npos && !layer.empty()) v.name = layer + ".weight";
}

// The product with operand 1 of the node, turned to w [..., n, k]; where that is a constant, it is a layer.
Result<ValueId> layer_product(OnnxCall& c, ValueId x, ValueId w) {
  const bool ones = elements(Shape(c.b.shape(w).begin(), c.b.shape(w).end() - 2)) == 1;
  if (c.b.rank(w) > 2 && ones && c.is_weight(w) && c.b.rank(w) <= c.b.rank(x)) {
    TS_ASSIGN(w, c.b.reshape(w, Shape(c.b.shape(w).end() - 2, c.b.shape(w).end())));
  }
  const bool weighted = (c.b.graph().at(w).constant || c.file.decoded.contains(c.b.place(w).base)) && c.b.rank(w) == 2;
  const std::string name = weighted ? c.name_by(1) : c.name();
  if (weighted) name_weight(c, w, name);
  return product(c, x, w, name);
}

Result<Values> matmul(OnnxCall& c) {
  TS_ASSIGN(ValueId x, c.operand(0));
  TS_ASSIGN(ValueId w, c.operand(1));
  if (c.b.rank(x) == 0 || c.b.rank(w) == 0) return bad_input("MatMul of a scalar");
  const bool row = c.b.rank(x) == 1, column = c.b.rank(w) == 1;
  if (row) {
    TS_ASSIGN(x, c.b.unsqueeze(x, {0}));
  }
  if (column) {
    TS_ASSIGN(w, c.b.unsqueeze(w, {1}));
  }
  TS_ASSIGN(w, c.b.transpose(w));
  TS_ASSIGN(ValueId y, layer_product(c, x, w));
  if (column) {
    TS_ASSIGN(y, c.b.squeeze(y, {-1}));
  }
  if (row) {
    TS_ASSIGN(y, c.b.squeeze(y, {column ? -1 : -2}));
  }
  return Values{y};
}

Result<Values> gemm(OnnxCall& c) {
  TS_ASSIGN(ValueId x, c.operand(0));
  TS_ASSIGN(ValueId w, c.operand(1));
  if (c.b.rank(x) != 2 || c.b.rank(w) != 2) return bad_input("Gemm wants two matrices");
  TS_ASSIGN(const int64_t trans_a, c.integer("transA", 0));
  TS_ASSIGN(const int64_t trans_b, c.integer("transB", 0));
  TS_ASSIGN(const double alpha, c.number("alpha", 1));
  TS_ASSIGN(const double beta, c.number("beta", 1));
  if (trans_a != 0) {
    TS_ASSIGN(x, c.b.transpose(x));
  }
  if (trans_b == 0) {
    TS_ASSIGN(w, c.b.transpose(w));
  }
  const bool stored = c.b.is_constant(w);  // else the product is scaled: codes stay as they are
  if (alpha != 1 && stored) {
    TS_ASSIGN(w, c.b.map("mul", {w, c.b.scalar(alpha, c.b.element(w))}, c.b.graph().at(w).name));
  }
  TS_ASSIGN(ValueId y, layer_product(c, x, w));
  if (alpha != 1 && !stored) {
    TS_ASSIGN(y, c.b.map("mul", {y, c.b.scalar(alpha, c.b.element(y))}, c.name()));
  }
  if (c.has(2)) {
    ValueId bias = c.in[2];
    if (beta != 1) {
      TS_ASSIGN(bias, c.b.map("mul", {bias, c.b.scalar(beta, c.b.element(bias))}, c.b.graph().at(bias).name));
    }
    TS_ASSIGN(const Shape both, broadcast_shape(c.b.shape(y), c.b.shape(bias)));
    if (both != c.b.shape(y))
      return bad_input(cat("Gemm adds ", to_string(c.b.shape(bias)), " to ", to_string(c.b.shape(y))));
    TS_ASSIGN(y, c.b.map("add", {y, bias}, c.name()));
  }
  return Values{y};
}

struct Window {
  std::vector<int64_t> kernel;
};

// Kernel equal to stride, no padding: the patches do not overlap, so that the convolution is a matrix product of
// reordered pixels.
Result<Window> patch_window(OnnxCall& c, const Shape& weight) {
  TS_ASSIGN(const int64_t group, c.integer("group", 1));
  TS_ASSIGN(const std::string auto_pad, c.word("auto_pad", "NOTSET"));
  TS_ASSIGN(std::vector<int64_t> strides, c.integers("strides"));
  TS_ASSIGN(const std::vector<int64_t> kernel, c.integers("kernel_shape"));
  TS_ASSIGN(const std::vector<int64_t> pads, c.integers("pads"));
  TS_ASSIGN(const std::vector<int64_t> dilations, c.integers("dilations"));
  Window w{.kernel = {weight.begin() + 2, weight.end()}};
  if (strides.empty()) strides.assign(w.kernel.size(), 1);
  const auto all = [](const std::vector<int64_t>& list, int64_t n) {
    return std::all_of(list.begin(), list.end(), [n](int64_t x) { return x == n; });
  };
  const bool wide = std::all_of(w.kernel.begin(), w.kernel.end(), [](int64_t k) { return k >= 1; });
  if (group != 1 || (auto_pad != "NOTSET" && auto_pad != "VALID") || strides != w.kernel ||
      (!kernel.empty() && kernel != w.kernel) || !all(pads, 0) || !all(dilations, 1) || !wide) {
    return bad_input(
        cat("only convolutions whose stride equals the kernel, without padding, dilation and groups, are supported; "
            "this one has kernel ",
            to_string(w.kernel), ", stride ", to_string(strides), ", pads ", to_string(pads), ", group ", group));
  }
  return w;
}

Result<Values> conv(OnnxCall& c) {
  TS_ASSIGN(ValueId x, c.operand(0));
  TS_ASSIGN(ValueId w, c.operand(1));
  const Shape weight = c.b.shape(w);
  Shape image = c.b.shape(x);
  if (weight.size() < 3 || weight.size() > 5 || image.size() != weight.size() || image[1] != weight[1]) {
    return bad_input(cat("Conv of ", to_string(image), " with a kernel of ", to_string(weight)));
  }
  TS_ASSIGN(const Window window, patch_window(c, weight));
  const size_t axes = window.kernel.size();
  // [b, c, H, W] -> [b, c, h, kh, w, kw] -> [b, h, w, c, kh, kw]: the pixels of a patch in the order of the kernel's
  // weights.
  Shape cells = {image[0], image[1]}, grid = {image[0]};
  std::vector<int64_t> perm = {0};
  for (size_t i = 0; i < axes; ++i) {
    const int64_t count = image[2 + i] / window.kernel[i];
    if (count * window.kernel[i] != image[2 + i]) {  // pixels beyond the last whole patch are not looked at
      TS_ASSIGN(x, c.b.slice(x, static_cast<int64_t>(2 + i), 0, 1, count * window.kernel[i]));
    }
    cells.push_back(count);
    cells.push_back(window.kernel[i]);
    grid.push_back(count);
    perm.push_back(static_cast<int64_t>(2 + 2 * i));
  }
  perm.push_back(1);
  for (size_t i = 0; i < axes; ++i) perm.push_back(static_cast<int64_t>(3 + 2 * i));
  const int64_t patches = elements(Shape(grid.begin() + 1, grid.end())),
                pixels = elements(Shape(weight.begin() + 1, weight.end()));
  const std::string name = c.name_by(1);
  name_weight(c, w, name);
  TS_ASSIGN(x, c.b.reshape(x, cells));
  TS_ASSIGN(x, c.b.permute(x, perm));
  TS_ASSIGN(x, c.b.reshape(x, {image[0], patches, pixels}, name + ".patches"));
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

}  // namespace

std::span<const OnnxOp> onnx_product_ops() {
  static const OnnxOp kOps[] = {
      {"MatMul", matmul},
      {"Gemm", gemm},
      {"Conv", conv},
  };
  return kOps;
}

}  // namespace tessera
