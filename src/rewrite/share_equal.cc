// SPDX-License-Identifier: Apache-2.0
#include "rewrite/share_equal.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

namespace tessera {
namespace {

constexpr int64_t kSmallConstant = 16;  // elements: scalars and short lists; weights keep their own names

bool same_constant(const Value& a, const Value& b) {
  return a.type == b.type && a.data.size() == b.data.size() &&
         (a.data.empty() || std::memcmp(a.data.data(), b.data.data(), a.data.size()) == 0);
}

void share_constants(Graph& graph) {
  std::vector<ValueId> kept;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const ValueId id = static_cast<ValueId>(v);
    const Value& value = graph.values[v];
    if (!value.constant || value.type.quant.scaled() || elements(value.type.shape) > kSmallConstant) continue;
    if (std::find(graph.outputs.begin(), graph.outputs.end(), id) != graph.outputs.end()) continue;
    const auto equal =
        std::find_if(kept.begin(), kept.end(), [&](ValueId k) { return same_constant(graph.at(k), value); });
    if (equal == kept.end()) {
      kept.push_back(id);
    } else {
      graph.replace_uses(id, *equal);
    }
  }
}

bool same_work(const Graph& graph, const Node& a, const Node& b) {
  return a.op == b.op && a.inputs == b.inputs && a.attrs == b.attrs && a.then == b.then && a.outputs.size() == 1 &&
         b.outputs.size() == 1 && graph.at(a.outputs[0]).type == graph.at(b.outputs[0]).type &&
         graph.at(a.outputs[0]).scale == graph.at(b.outputs[0]).scale &&
         graph.at(a.outputs[0]).scale2 == graph.at(b.outputs[0]).scale2;
}

}  // namespace

Status share_equal(Graph& graph) {
  share_constants(graph);
  std::map<std::pair<std::string, std::vector<ValueId>>, std::vector<size_t>> seen;
  std::vector<bool> gone(graph.nodes.size(), false);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const bool result = std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) {
      return std::find(graph.outputs.begin(), graph.outputs.end(), v) != graph.outputs.end();
    });
    auto& same_operands = seen[{node.op, node.inputs}];
    const auto first = std::find_if(same_operands.begin(), same_operands.end(),
                                    [&](size_t i) { return same_work(graph, graph.nodes[i], node); });
    if (first == same_operands.end() || result) {  // a result keeps a storage of its own
      same_operands.push_back(n);
      continue;
    }
    graph.replace_uses(node.outputs[0], graph.nodes[*first].outputs[0]);
    gone[n] = true;
  }
  std::vector<Node> kept;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!gone[n]) kept.push_back(std::move(graph.nodes[n]));
  }
  graph.nodes = std::move(kept);
  return {};
}

}  // namespace tessera
