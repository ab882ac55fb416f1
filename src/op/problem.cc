// SPDX-License-Identifier: Apache-2.0
#include "op/problem.h"

namespace tessera {

Operand dense_operand(const Shape& shape, const QuantType& type, bool constant) {
  return {.present = true, .constant = constant, .shape = shape, .strides = dense_strides(shape), .type = type};
}

Problem before_program(const Problem& problem) {
  Problem plain = problem;
  plain.then = {};
  if (plain.out.size() > 1) plain.out.resize(1);  // what is made beside is made of the program's results
  if (problem.then.gated() && !plain.out[0].shape.empty()) {
    Shape shape = plain.out[0].shape;
    shape.back() = problem.then.cols_before(shape.back());
    plain.out[0] = dense_operand(shape, plain.out[0].type);
  }
  return plain;
}

Problem problem_of(const Graph& graph, const std::vector<int>& producers, const Node& node) {
  Problem p{.op = node.op, .in = {}, .out = {}, .attrs = node.attrs, .then = node.then};
  for (ValueId id : node.inputs) {
    if (id == kNoValue) {
      p.in.emplace_back();
      continue;
    }
    const Value& v = graph.at(id);
    Operand o = dense_operand(v.type.shape, v.type.quant, v.constant);
    o.strides = placement_of(graph, producers, id).strides;
    p.in.push_back(std::move(o));
  }
  for (ValueId id : node.outputs) p.out.push_back(dense_operand(graph.at(id).type.shape, graph.at(id).type.quant));
  return p;
}

float tensor_scale(const TensorView& tensor) {
  float scale = 1;
  if (tensor.desc->type.scaled()) info(tensor.desc->type.scale.element).decode(tensor.scale, 0, 1, &scale);
  return scale;
}

}  // namespace tessera
