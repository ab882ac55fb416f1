// SPDX-License-Identifier: Apache-2.0
#include "compile/check_positions.h"

#include <algorithm>
#include <map>

namespace tessera {
namespace {

Status depends(const std::string& what) {
  return bad_input(cat(what,
                       " depends on the length of the past, which is known only while running: with a shorter past it "
                       "would be that of a full cache. Positions must be an input of the model: export it with "
                       "position_ids"));
}

bool same_bytes(const Bytes& a, const Bytes& b) {
  return a.size() == b.size() && (a.data() == b.data() || std::equal(a.span().begin(), a.span().end(), b.data()));
}

// The n-th node of each name: exporters give two nodes one name.
std::map<std::pair<std::string, size_t>, const Node*> nodes_by_name(const Graph& graph) {
  std::map<std::string, size_t> seen;
  std::map<std::pair<std::string, size_t>, const Node*> nodes;
  for (const Node& n : graph.nodes) nodes[{n.name, seen[n.name]++}] = &n;
  return nodes;
}

class Comparison {
 public:
  Comparison(const Graph& full, const Graph& shorter) : full_(full), shorter_(shorter) {}

  Status compare(const Node& a, const Node& b) const {
    if (a.op != b.op || a.inputs.size() != b.inputs.size()) return {};
    for (size_t i = 0; i < a.inputs.size(); ++i) {
      if (a.inputs[i] == kNoValue || b.inputs[i] == kNoValue) continue;
      const Value &x = full_.at(a.inputs[i]), &y = shorter_.at(b.inputs[i]);
      if (x.constant && y.constant && x.type == y.type && !same_bytes(x.data, y.data))
        return depends(cat("constant '", x.name, "', which layer ", a.name, " (", a.op, ") reads,"));
    }
    if (same_shapes(a.inputs, b.inputs) && same_shapes(a.outputs, b.outputs) && !(a.attrs == b.attrs))
      return depends(cat("what layer ", a.name, " (", a.op, ") reads"));
    return {};
  }

 private:
  bool same_shapes(const std::vector<ValueId>& a, const std::vector<ValueId>& b) const {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](ValueId x, ValueId y) {
      return x == kNoValue || y == kNoValue ? x == y : full_.at(x).type.shape == shorter_.at(y).type.shape;
    });
  }
  const Graph &full_, &shorter_;
};

}  // namespace

Status check_positions(const Graph& full, const Graph& shorter) {
  const Comparison both(full, shorter);
  const auto others = nodes_by_name(shorter);
  for (const auto& [name, node] : nodes_by_name(full)) {
    if (const auto other = others.find(name); other != others.end()) TS_TRY(both.compare(*node, *other->second));
  }
  return {};
}

}  // namespace tessera
