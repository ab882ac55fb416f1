// SPDX-License-Identifier: Apache-2.0
#include "rewrite/drop_casts.h"

#include <algorithm>
#include <set>

#include "rewrite/edit/replace.h"

namespace tessera {
namespace {

bool is_integer(const Type& type) {
  return !type.quant.scaled() && info(type.quant.element).kind == ElementKind::kInteger;
}

// Everything that reads the value, and the values that would have its type.
class Readers {
 public:
  explicit Readers(const Graph& graph) : g_(graph) {}
  const std::vector<ValueId>& same_type() const { return same_type_; }

  // True where no reader asks for the value's type.
  bool none_asks(ValueId v) {
    if (std::find(g_.outputs.begin(), g_.outputs.end(), v) != g_.outputs.end()) return false;
    same_type_.push_back(v);
    for (const Node& n : g_.nodes) {
      for (size_t i = 0; i < n.inputs.size(); ++i) {
        if (n.inputs[i] == v && !fits(n, i)) return false;
      }
    }
    return true;
  }

 private:
  bool fits(const Node& n, size_t operand) {
    static const std::set<std::string> kTruth = {"equal",         "less", "less_equal", "greater",
                                                 "greater_equal", "and",  "or"};
    const std::string fn = n.attrs.word("fn");
    if (n.op == "copy") return true;
    if (n.op == "map") return kTruth.contains(fn) || (fn == "where" && operand == 0);
    if (n.op == "gather") return operand == 1;
    if (n.op == "view" || (n.op == "reduce" && (fn == "max" || fn == "min"))) return none_asks(n.outputs[0]);
    return false;
  }

  const Graph& g_;
  std::vector<ValueId> same_type_;
};

}  // namespace

Status drop_casts(Graph& graph) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node cast = graph.nodes[i];
    if (cast.op != "copy" || !cast.then.empty()) continue;
    const ValueId from = cast.inputs[0], to = cast.outputs[0];
    const Type source = graph.at(from).type;
    if (!is_integer(source) || !is_integer(graph.at(to).type) || source.quant == graph.at(to).type.quant) continue;
    Readers readers(graph);
    if (!readers.none_asks(to)) continue;
    for (const ValueId v : readers.same_type()) graph.at(v).type.quant = source.quant;
    GraphBuilder builder(graph, i + 1);
    TS_TRY(take_over(builder, to, from));
    graph.nodes.erase(graph.nodes.begin() + static_cast<std::ptrdiff_t>(i));
    --i;
  }
  return {};
}

}  // namespace tessera
