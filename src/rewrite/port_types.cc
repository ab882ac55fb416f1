// SPDX-License-Identifier: Apache-2.0
#include "rewrite/port_types.h"

#include <algorithm>
#include <utility>

#include "base/wildcard.h"
#include "rewrite/byte_ports.h"

namespace tessera {
namespace {

const PortType* type_of(const std::vector<PortType>& types, const std::string& name) {
  const auto last = std::find_if(types.rbegin(), types.rend(),
                                 [&](const PortType& t) { return matches(t.name.c_str(), name.c_str()); });
  return last == types.rend() ? nullptr : &*last;
}

constexpr int64_t kListed = 8;  // of the model's ports, in a refusal

bool is_state(const Graph& g, const std::vector<StatePattern>& states, ValueId id) {
  const std::string& name = g.at(id).name;
  return std::any_of(states.begin(), states.end(),
                     [&](const StatePattern& s) {
                       return matches(s.input.c_str(), name.c_str()) || matches(s.output.c_str(), name.c_str());
                     }) ||
         std::any_of(g.states.begin(), g.states.end(), [&](const StatePair& s) {
           return g.inputs[s.input] == id || (s.output && g.outputs[*s.output] == id);
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
        const bool hit = matches(t.name.c_str(), name.c_str()), state = is_state(g, states, id);
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

// Bytes are of image inputs, and of some: an entry that another one replaces would leave an input to floats silently.
// Ports get the layout of their images.
Status check_bytes(const Graph& g, const std::vector<PortType>& types, std::vector<PortType>& in,
                   const std::vector<PortType>& out) {
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i].element == Element::u8)
      return usage_error(cat("--io ", out[i].name, "=u8: '", g.at(g.outputs[i]).name,
                             "' is an output; bytes are of image inputs: name one"));
  }
  for (const PortType& t : types) {
    if (t.element == Element::u8 && std::find(in.begin(), in.end(), t) == in.end())
      return usage_error(cat("--io ", t.name, "=u8: a later --io names the same inputs; put it last"));
  }
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i].element != Element::u8) continue;
    auto pixels = fit_pixels(g, i, in[i].pixels);
    if (!pixels.ok()) return pixels.status().at(cat("--io ", in[i].name, "=u8: input '", g.at(g.inputs[i]).name, "'"));
    in[i].pixels = std::move(pixels).value();
  }
  return {};
}

Node converted(const std::string& name, ValueId from, ValueId to) {
  return {.name = name, .op = "copy", .inputs = {from}, .outputs = {to}};
}

}  // namespace

Result<PortType> parse_port_type(const std::string& text) {
  static const std::pair<const char*, Element> kTypes[] = {
      {"fp32", Element::f32}, {"fp16", Element::f16}, {"bf16", Element::bf16}, {"u8", Element::u8}};
  // A name may hold any character, so the type is the first word that is one.
  for (size_t equals = text.find('='); equals != std::string::npos; equals = text.find('=', equals + 1)) {
    const size_t end = std::min(text.find(',', equals), text.size());
    const std::string word = text.substr(equals + 1, end - equals - 1);
    for (const auto& [name, element] : kTypes) {
      if (equals == 0 || word != name) continue;
      PortType port{.name = text.substr(0, equals), .element = element};
      if (end == text.size()) return port;
      if (element != Element::u8)
        return usage_error(cat("--io '", text, "': only an image in bytes (u8) has parts after its type"));
      auto pixels = parse_pixels(text.substr(end + 1));
      if (!pixels.ok()) return pixels.status().at("--io " + port.name);
      port.pixels = std::move(pixels).value();
      return port;
    }
  }
  return usage_error(
      cat("--io '", text,
          "': wanted NAME=TYPE, an input or output (* matches any) in fp32, fp16 or bf16, or an image in "
          "bytes, u8, for example image=fp16, image=u8,mean=0.5,std=0.5"));
}

Status give_port_types(Graph& graph, const std::vector<PortType>& types, const std::vector<StatePattern>& states) {
  TS_TRY(check_names(graph, types, states));
  const auto types_of = [&](const std::vector<ValueId>& ports) {
    std::vector<PortType> all;
    for (const ValueId id : ports) {
      const PortType* t =
          is_f32(graph, id) && !is_state(graph, states, id) ? type_of(types, graph.at(id).name) : nullptr;
      all.push_back(t == nullptr ? PortType{} : *t);
    }
    return all;
  };
  // Of all ports before any of them gets another value: a value may be two of them.
  std::vector<PortType> in = types_of(graph.inputs);
  const std::vector<PortType> out = types_of(graph.outputs);
  TS_TRY(check_bytes(graph, types, in, out));
  std::vector<std::string> in_names, out_names;
  for (const ValueId id : graph.inputs) in_names.push_back(graph.at(id).name);
  for (const ValueId id : graph.outputs) out_names.push_back(graph.at(id).name);
  std::vector<Node> before, after;
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i].element == Element::f32) continue;
    if (in[i].element == Element::u8) {
      give_bytes(graph, i, in[i].pixels, before);
      continue;
    }
    const ValueId own = std::exchange(graph.inputs[i], add_port(graph, graph.inputs[i], in_names[i], in[i].element));
    before.push_back(converted(in_names[i] + ".in", graph.inputs[i], own));
  }
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i].element == Element::f32) continue;
    const ValueId own =
        std::exchange(graph.outputs[i], add_port(graph, graph.outputs[i], out_names[i], out[i].element));
    after.push_back(converted(out_names[i] + ".out", own, graph.outputs[i]));
  }
  graph.nodes.insert(graph.nodes.begin(), before.begin(), before.end());
  graph.nodes.insert(graph.nodes.end(), after.begin(), after.end());
  return {};
}

}  // namespace tessera
