// SPDX-License-Identifier: Apache-2.0
#include "ir/graph.h"

#include <cstring>

namespace tessera {

ValueId Graph::add_value(Value value) {
  values.push_back(std::move(value));
  return static_cast<ValueId>(values.size()) - 1;
}

ValueId Graph::add_constant(std::string constant_name, Type type, Bytes data) {
  Value v;
  v.name = std::move(constant_name);
  v.type = std::move(type);
  v.constant = true;
  v.data = std::move(data);
  return add_value(std::move(v));
}

ValueId Graph::add_constant(std::string constant_name, const Shape& shape, const std::vector<float>& numbers) {
  TS_CHECK(elements(shape) == static_cast<int64_t>(numbers.size()), "constant ", constant_name);
  Buffer buffer(numbers.size() * sizeof(float));
  if (!numbers.empty()) std::memcpy(buffer.data(), numbers.data(), buffer.size());
  return add_constant(std::move(constant_name), Type{shape, Element::f32}, Bytes::own(std::move(buffer)));
}

std::vector<int> Graph::producers() const {
  std::vector<int> made_by(values.size(), -1);
  for (size_t n = 0; n < nodes.size(); ++n) {
    for (ValueId out : nodes[n].outputs) made_by[static_cast<size_t>(out)] = static_cast<int>(n);
  }
  return made_by;
}

std::vector<int> Graph::use_counts() const {
  std::vector<int> uses(values.size(), 0);
  const auto read = [&](ValueId id) {
    if (id != kNoValue) ++uses[static_cast<size_t>(id)];
  };
  for (const Node& n : nodes) {
    for (ValueId in : n.inputs) read(in);
  }
  for (ValueId out : outputs) read(out);
  for (const Value& v : values) {
    read(v.scale);
    read(v.scale2);
  }
  return uses;
}

void Graph::replace_uses(ValueId from, ValueId to) {
  for (Node& n : nodes) {
    for (ValueId& in : n.inputs) {
      if (in == from) in = to;
    }
  }
  for (ValueId& out : outputs) {
    if (out == from) out = to;
  }
}

std::vector<double> Graph::numbers(ValueId id) const {
  const Value& v = at(id);
  if (!v.constant) return {};
  std::vector<double> out(static_cast<size_t>(elements(v.type.shape)));
  info(v.type.quant.element).decode_f64(v.data.data(), 0, static_cast<int64_t>(out.size()), out.data());
  return out;
}

Placement placement_of(const Graph& graph, const std::vector<int>& producers, ValueId id) {
  Placement p{id, 0, dense_strides(graph.at(id).type.shape)};
  int maker = producers[static_cast<size_t>(id)];
  if (maker < 0 || graph.nodes[static_cast<size_t>(maker)].op != "view") return p;
  p.strides = graph.nodes[static_cast<size_t>(maker)].attrs.list("strides");
  // A view of a view addresses the same storage: strides are absolute, offsets add up.
  while (maker >= 0 && graph.nodes[static_cast<size_t>(maker)].op == "view") {
    const Node& view = graph.nodes[static_cast<size_t>(maker)];
    p.offset += view.attrs.integer("offset");
    p.base = view.inputs[0];
    maker = producers[static_cast<size_t>(p.base)];
  }
  return p;
}

}  // namespace tessera
