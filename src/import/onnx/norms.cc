// SPDX-License-Identifier: Apache-2.0
// Norms over the last axes, and Softmax.
#include <utility>

#include "import/onnx/convert.h"

namespace tessera {
namespace {

Result<Values> softmax(OnnxCall& c) {
  TS_ASSIGN(ValueId x, c.operand(0));
  const bool flattened = c.node.opset < 13;  // before opset 13: all axes from `axis` on together
  TS_ASSIGN(const int64_t axis_given, c.integer("axis", flattened ? 1 : -1));
  const Shape shape = c.b.shape(x);
  TS_ASSIGN(const size_t axis, resolve_axis(axis_given, shape.size()));
  if (axis + 1 == shape.size()) return single(c.b.emit("softmax", {x}, {}, c.name()));
  if (flattened) {
    const auto middle = shape.begin() + static_cast<std::ptrdiff_t>(axis);
    TS_ASSIGN(x, c.b.reshape(x, {elements(Shape(shape.begin(), middle)), elements(Shape(middle, shape.end()))}));
    TS_ASSIGN(x, c.b.emit("softmax", {x}, {}, c.name()));
    return single(c.b.reshape(x, shape));
  }
  std::vector<int64_t> swap;
  for (size_t i = 0; i < shape.size(); ++i) swap.push_back(static_cast<int64_t>(i));
  std::swap(swap[axis], swap.back());
  TS_ASSIGN(x, c.b.permute(x, swap));
  TS_ASSIGN(x, c.b.emit("softmax", {x}, {}, c.name()));
  return single(c.b.permute(x, swap));
}

Result<Values> normalise(OnnxCall& c, const std::string& kind) {
  TS_ASSIGN(ValueId x, c.operand(0));
  TS_ASSIGN(const int64_t axis_given, c.integer("axis", -1));
  TS_ASSIGN(const double eps, c.number("epsilon", 1e-5));
  const Shape shape = c.b.shape(x);
  TS_ASSIGN(const size_t axis, resolve_axis(axis_given, shape.size()));
  const Shape inner(shape.begin() + static_cast<std::ptrdiff_t>(axis), shape.end());
  Shape rows(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(axis));
  rows.push_back(elements(inner));
  Values operands = {kNoValue, kNoValue, kNoValue};
  for (size_t i : {1, 2}) {
    if (!c.has(i)) continue;
    TS_ASSIGN(const ValueId full, c.b.expand(c.in[i], inner));
    TS_ASSIGN(operands[i], c.b.reshape(full, {elements(inner)}));
  }
  while (operands.back() == kNoValue && operands.size() > 1) operands.pop_back();
  TS_ASSIGN(operands[0], c.b.reshape(x, rows));
  const std::string name = c.has(1) ? c.name_by(1) : c.name();
  TS_ASSIGN(const ValueId y, c.b.emit("norm", operands, {{"kind", kind}, {"eps", eps}}, name));
  return single(c.b.reshape(y, shape));
}

Result<Values> layer_norm(OnnxCall& c) { return normalise(c, "layer"); }
Result<Values> rms_norm(OnnxCall& c) { return normalise(c, "rms"); }

}  // namespace

std::span<const OnnxOp> onnx_norm_ops() {
  static const OnnxOp kOps[] = {
      {"Softmax", softmax},
      {"LayerNormalization", layer_norm},
      {"RMSNormalization", rms_norm},
  };
  return kOps;
}

}  // namespace tessera
