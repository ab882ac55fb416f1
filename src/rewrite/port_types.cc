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

constexpr int64_t kListed = 8;  // of the model's ports, in a refusal

bool is_state(const std::vector<StatePattern>& states, const std::string& name) {
  return std::any_of(states.begin(), states.end(), [&](const StatePattern& s) {
    return matches(s.input.c_str(), name.c_str()) || matches(s.output.c_str(), name.c_str());
  });
}

bool is_f32(const Graph& g, ValueId id) { return g.at(id).type.quant == QuantType(Element::f32); }

Status check_names(const Graph& g, const std::vector<PortType>& types, const std::vector<StatePattern>& states) {
  for (const PortType& t : types) {
    std::string known;
    bool named = false, there = false, kept = false;
    int64_t listed = 0;
    for (const std::vector<ValueId>* ports : {&g.inputs, &g.outputs}) {
      for (const ValueId id : *ports) {
        const std::string& name = g.at(id).name;
        const bool hit = matches(t.name.c_str(), name.c_str()), state = is_state(states, name);
        there = there || hit, kept = kept || (hit && state);
        named = named || (hit && !state && is_f32(g, id));
        if (++listed <= kListed)
          known +=
              cat(known.empty() ? "" : ", ", "'", name, "' ", state ? "(a state)" : to_string(g.at(id).type.quant));
      }
    }
    if (listed > kListed) known += cat(" and ", listed - kListed, " more");
    if (!named)
      return usage_error(cat("--io ", t.name, ": ",
                             kept    ? "a state has the type of the layers"
                             : there ? "only floats have another type, and it names none"
                                     : "no input or output is called so",
                             "; the model has ", known));
  }
  return {};
}

// The port's value under its name, in another element.
ValueId add_port(Graph& g, ValueId own, const std::string& name, Element element) {
  Value port = g.at(own);
  port.name = name;
  port.type.quant = QuantType(element);
  port.constant = false, port.data = {};
  g.at(own).name = name + ".f32";
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

Status give_port_types(Graph& graph, const std::vector<PortType>& types, const std::vector<StatePattern>& states) {
  TS_TRY(check_names(graph, types, states));
  const auto elements_of = [&](const std::vector<ValueId>& ports) {
    std::vector<Element> all;
    for (const ValueId id : ports) {
      const std::string& name = graph.at(id).name;
      const PortType* t = is_f32(graph, id) && !is_state(states, name) ? type_of(types, name) : nullptr;
      all.push_back(t == nullptr ? Element::f32 : t->element);
    }
    return all;
  };
  // Of all ports before any of them gets another value: a value may be two of them.
  const std::vector<Element> in = elements_of(graph.inputs), out = elements_of(graph.outputs);
  std::vector<std::string> in_names, out_names;
  for (const ValueId id : graph.inputs) in_names.push_back(graph.at(id).name);
  for (const ValueId id : graph.outputs) out_names.push_back(graph.at(id).name);
  std::vector<Node> before, after;
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i] == Element::f32) continue;
    const ValueId own = std::exchange(graph.inputs[i], add_port(graph, graph.inputs[i], in_names[i], in[i]));
    before.push_back(converted(in_names[i] + ".in", graph.inputs[i], own));
  }
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] == Element::f32) continue;
    const ValueId own = std::exchange(graph.outputs[i], add_port(graph, graph.outputs[i], out_names[i], out[i]));
    after.push_back(converted(out_names[i] + ".out", own, graph.outputs[i]));
  }
  graph.nodes.insert(graph.nodes.begin(), before.begin(), before.end());
  graph.nodes.insert(graph.nodes.end(), after.begin(), after.end());
  return {};
}

}  // namespace tessera
