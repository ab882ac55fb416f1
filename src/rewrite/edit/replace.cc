// SPDX-License-Identifier: Apache-2.0
#include "rewrite/edit/replace.h"

#include <algorithm>

namespace tessera {

Status take_over(GraphBuilder& builder, ValueId from, ValueId to) {
  Graph& graph = builder.graph();
  if (std::find(graph.outputs.begin(), graph.outputs.end(), from) != graph.outputs.end())
    std::swap(graph.at(from).name, graph.at(to).name);
  const Place place = builder.place(to);
  ValueId dense = place.base == to ? to : kNoValue;
  for (size_t i = builder.position(); i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op != "view" || graph.nodes[i].inputs[0] != from) continue;
    const Region region{graph.at(graph.nodes[i].outputs[0]).type.shape, graph.nodes[i].attrs.list("strides"),
                        graph.nodes[i].attrs.integer("offset")};
    if (const auto straight = composed(place.region, region)) {
      graph.nodes[i].inputs[0] = place.base;
      graph.nodes[i].attrs.set("strides", straight->strides);
      graph.nodes[i].attrs.set("offset", straight->offset);
      continue;
    }
    if (dense == kNoValue) {
      TS_ASSIGN(dense, builder.emit("copy", {to}, {}, graph.at(to).name));
      ++i;  // the copy was put in front of this node
    }
    graph.nodes[i].inputs[0] = dense;
  }
  graph.replace_uses(from, to);
  return {};
}

std::string parent_layer(const std::string& name, const std::string& fallback) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos || dot == 0 ? fallback : name.substr(0, dot);
}

std::string layer_of_constant(const Value& constant) {
  for (const std::string ending : {".weight", ".bias"}) {
    if (constant.name.ends_with(ending) && constant.name.size() > ending.size())
      return constant.name.substr(0, constant.name.size() - ending.size());
  }
  return "";
}

}  // namespace tessera
