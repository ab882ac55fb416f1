// SPDX-License-Identifier: Apache-2.0
// Products with weights or of two activations: MatMul and Gemm.
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

void name_weight(OnnxCall& c, ValueId weight, const std::string& layer) {
  Value& v = c.b.graph().at(weight);
  if (v.constant && v.name.find('.') == std::string::npos && !layer.empty()) v.name = layer + ".weight";
}

namespace {

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

}  // namespace

std::span<const OnnxOp> onnx_product_ops() {
  static const OnnxOp kOps[] = {
      {"MatMul", matmul},
      {"Gemm", gemm},
  };
  return kOps;
}

}  // namespace tessera
