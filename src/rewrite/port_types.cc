// SPDX-License-Identifier: Apache-2.0
#include "rewrite/port_types.h"

#include <algorithm>
#include <utility>

#include "base/wildcard.h"

namespace tessera {
namespace {

const PortType* type_of(const std::vector<PortType>& types, const std::string& name) {
  const auto last = std::find_if(types.rbegin(), types.rend(),
                                 [&](const PortType& t) { return matches(t.name.c_str(), name.c_str()); });
  return last == types.rend() ? nullptr : &*last;
}

bool is_f32(const Graph& g, ValueId id) { return g.at(id).type.quant == QuantType(Element::f32); }

Status check_names(const Graph& g, const std::vector<PortType>& types) {
  for (const PortType& t : types) {
    std::string known;
    bool named = false, there = false;
    for (const std::vector<ValueId>* ports : {&g.inputs, &g.outputs}) {
      for (const ValueId id : *ports) {
        const bool hit = matches(t.name.c_str(), g.at(id).name.c_str());
        there = there || hit;
        named = named || (hit && is_f32(g, id));
        known += cat(known.empty() ? "" : ", ", "'", g.at(id).name, "' ", to_string(g.at(id).type.quant));
      }
    }
    if (!named)
      return usage_error(
          cat("--io ", t.name, ": ",
              there ? "only floats have another type, and it names none" : "no input or output is called so",
              "; the model has ", known));
  }
  return {};
}

// The port's value under its name, in another element.
ValueId add_port(Graph& g, ValueId own, Element element) {
  Value port = g.at(own);
  port.type.quant = QuantType(element);
  port.constant = false, port.data = {};
  g.at(own).name += ".f32";
  return g.add_value(std::move(port));
}

Node converted(const std::string& name, ValueId from, ValueId to) {
  return {.name = name, .op = "copy", .inputs = {from}, .outputs = {to}};
}

}  // namespace

Result<PortType> parse_port_type(const std::string& text) {
  static const std::pair<const char*, Element> kTypes[] = {
      {"fp32", Element::f32}, {"fp16", Element::f16}, {"bf16", Element::bf16}};
  const size_t equals = text.rfind('=');
  const std::string word = equals == std::string::npos ? "" : text.substr(equals + 1);
  for (const auto& [name, element] : kTypes) {
    if (equals > 0 && word == name) return PortType{text.substr(0, equals), element};
  }
  return usage_error(cat("--io '", text,
                         "': wanted NAME=TYPE, an input or output (* matches any) in fp32, fp16 or bf16, for example ",
                         "image=fp16"));
}

Status give_port_types(Graph& graph, const std::vector<PortType>& types) {
  TS_TRY(check_names(graph, types));
  const auto element_of = [&](ValueId id) {
    const PortType* t = is_f32(graph, id) ? type_of(types, graph.at(id).name) : nullptr;
    return t == nullptr ? Element::f32 : t->element;
  };
  std::vector<Node> before, after;
  for (ValueId& in : graph.inputs) {
    const Element element = element_of(in);
    if (element == Element::f32) continue;
    const std::string name = graph.at(in).name;
    const ValueId own = std::exchange(in, add_port(graph, in, element));
    before.push_back(converted(name + ".in", in, own));
  }
  for (ValueId& out : graph.outputs) {
    const Element element = element_of(out);
    if (element == Element::f32) continue;
    const std::string name = graph.at(out).name;
    const ValueId own = std::exchange(out, add_port(graph, out, element));
    after.push_back(converted(name + ".out", own, out));
  }
  graph.nodes.insert(graph.nodes.begin(), before.begin(), before.end());
  graph.nodes.insert(graph.nodes.end(), after.begin(), after.end());
  return {};
}

}  // namespace tessera
