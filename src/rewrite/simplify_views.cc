// SPDX-License-Identifier: Apache-2.0
#include "rewrite/simplify_views.h"

#include <map>
#include <set>

#include "ir/region.h"

namespace tessera {
namespace {

struct Place {
  ValueId base;
  Region region;
};

class Simplifier {
 public:
  explicit Simplifier(Graph& graph) : g_(graph), fixed_(graph.outputs.begin(), graph.outputs.end()) {
    fixed_.insert(graph.inputs.begin(), graph.inputs.end());
    for (size_t i = 0; i < graph.values.size(); ++i)
      places_.push_back({static_cast<ValueId>(i), dense_region(graph.values[i].type.shape)});
  }

  void run() {
    for (Node& n : g_.nodes) {
      for (ValueId& in : n.inputs) in = standing_for(in);
      if (n.op == "view") view(n);
      if (n.op == "copy") copy(n);
    }
    for (ValueId& out : g_.outputs) out = standing_for(out);
  }

 private:
  ValueId standing_for(ValueId id) const {
    const auto it = replaced_.find(id);
    return it == replaced_.end() ? id : it->second;
  }
  Place& place(ValueId id) { return places_[static_cast<size_t>(id)]; }

  void view(Node& n) {
    const ValueId out = n.outputs[0];
    Place p = place(n.inputs[0]);
    p.region = {g_.at(out).type.shape, n.attrs.list("strides"), p.region.offset + n.attrs.integer("offset")};
    for (auto copy = copied_.find(p.base); copy != copied_.end(); copy = copied_.find(p.base)) {
      const Place& source = place(copy->second);
      const auto straight = composed(source.region, p.region);
      if (!straight) break;
      p = {source.base, *straight};
    }
    n.inputs[0] = p.base;
    n.attrs.set("strides", p.region.strides);
    n.attrs.set("offset", p.region.offset);
    if (p.region.whole() && p.region.shape == g_.at(p.base).type.shape) replace(out, p.base);
    place(out) = std::move(p);
  }

  void copy(const Node& n) {
    const Type &from = g_.at(n.inputs[0]).type, &to = g_.at(n.outputs[0]).type;
    if (from.quant != to.quant || from.quant.scaled()) return;  // it converts
    const Place& source = place(n.inputs[0]);
    if (!is_dense(source.region.shape, source.region.strides)) {
      copied_[n.outputs[0]] = n.inputs[0];
    } else if (!fixed_.contains(n.outputs[0])) {  // a result that is copied from elsewhere stays a value of its own
      place(n.outputs[0]) = source;
      replaced_[n.outputs[0]] = n.inputs[0];
    }
  }

  // A result of the graph gives its name to what stands for it, unless that has a name of its own to keep.
  void replace(ValueId out, ValueId by) {
    if (fixed_.contains(out)) {
      if (fixed_.contains(by) || g_.at(by).constant) return;
      std::swap(g_.at(out).name, g_.at(by).name);
      fixed_.insert(by);
    }
    replaced_[out] = by;
  }

  Graph& g_;
  std::set<ValueId> fixed_;
  std::vector<Place> places_;
  std::map<ValueId, ValueId> replaced_, copied_;
};

}  // namespace

Status simplify_views(Graph& graph) {
  Simplifier(graph).run();
  return {};
}

}  // namespace tessera
