// SPDX-License-Identifier: Apache-2.0
// GraphBuilder: adds nodes to a graph, with their results' types worked out, and evaluates at once what depends on
// constants only. Reshapes, transposes, slices and repeats become `view` nodes (of the value that owns the storage:
// views of views are merged), or, where no strides can say it, a `copy` and a view of that. Views of constants are
// constants. A view of a copy reads the copied value itself wherever strides allow it. Whatever is asked may come from
// a user's file: nonsense gives an error, never an abort.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"
#include "ir/region.h"
#include "op/op.h"

namespace tessera {

// A value as elements of the storage that holds it.
struct Place {
  ValueId base;
  Region region;
};

// What may be evaluated at once, in proportion to the constants that a graph came with: a file of a few hundred bytes
// must not keep us busy for minutes or make gigabytes. Whatever goes beyond stays a node.
class FoldBudget {
 public:
  explicit FoldBudget(const Graph& graph) : g_(graph) {}
  // True where a constant of so many bytes may be made by so much work. The caller then adds it to the graph.
  bool take(int64_t bytes, double flops);

 private:
  const Graph& g_;
  size_t seen_ = 0;                            // values that are counted in given_
  double given_ = 0;                           // bytes of constants that were not made here
  double made_ = 0, unseen_ = 0, worked_ = 0;  // bytes made, those of them that were not seen yet, flops
};

class GraphBuilder {
 public:
  // Nodes go before node number `position` of the graph, by default to its end. Whoever makes many builders for one
  // graph gives them one budget, which must outlive them.
  explicit GraphBuilder(Graph& graph) : GraphBuilder(graph, graph.nodes.size()) {}
  GraphBuilder(Graph& graph, size_t position, FoldBudget* budget = nullptr);

  Graph& graph() { return g_; }
  size_t position() const { return position_; }
  const Shape& shape(ValueId v) const { return g_.at(v).type.shape; }
  size_t rank(ValueId v) const { return shape(v).size(); }
  Element element(ValueId v) const { return g_.at(v).type.quant.element; }
  Place place(ValueId v);
  // A constant, or a view of one that is too large to be spelt out.
  bool is_constant(ValueId v) { return g_.at(place(v).base).constant; }
  // Exact integers of a constant; an error where it is no constant of integers (`what` names it) or holds more than a
  // million.
  Result<std::vector<int64_t>> integers(ValueId v, const std::string& what);

  // One node; its result. `node.outputs` is filled in, an empty name is allowed.
  Result<ValueId> emit(Node node);
  Result<ValueId> emit(std::string op, std::vector<ValueId> inputs, Attrs attrs = {}, std::string name = "");
  Result<ValueId> map(std::string fn, std::vector<ValueId> inputs, std::string name = "");
  Result<ValueId> cast(ValueId v, Element element, std::string name = "");
  // A copy that rounds v to a type with scales; constants of the graph hold those that are not made while running.
  ValueId quantize(ValueId v, const QuantType& type, ValueId scale, ValueId scale2 = kNoValue, std::string name = "");
  Result<ValueId> concat(std::vector<ValueId> inputs, int64_t axis, std::string name = "");

  // Negative axes count from the back, everywhere.
  Result<ValueId> reshape(ValueId v, Shape shape, const std::string& copy_name = "");
  Result<ValueId> permute(ValueId v, const std::vector<int64_t>& perm);
  Result<ValueId> slice(ValueId v, int64_t axis, int64_t start, int64_t step, int64_t count);
  Result<ValueId> expand(ValueId v, Shape shape);
  Result<ValueId> unsqueeze(ValueId v, std::vector<int64_t> axes);
  Result<ValueId> squeeze(ValueId v, std::vector<int64_t> axes);
  // Swaps the last two axes.
  Result<ValueId> transpose(ValueId v);
  // The value that lies at `region` of base's storage. Contract: in range.
  Result<ValueId> view(ValueId base, const Region& region);

  ValueId scalar(double x, Element element, std::string name = "");
  ValueId integer_list(const std::vector<int64_t>& numbers, const std::string& name = "");

 private:
  FoldBudget& budget() { return budget_ != nullptr ? *budget_ : own_budget_; }
  Result<std::optional<ValueId>> fold(const OpInfo& op, const Node& node, const Problem& problem);
  std::optional<ValueId> spelt_out(ValueId constant, const Region& region);
  ValueId add(Node node, Type type);

  Graph& g_;
  size_t position_;
  bool appending_;
  FoldBudget own_budget_;
  FoldBudget* budget_;
  std::vector<Place> places_;                                         // by value; grows on demand
  std::map<ValueId, ValueId> copied_;                                 // result of a plain copy -> what it copies
  std::map<ValueId, std::vector<std::pair<Region, ValueId>>> views_;  // known views, by base
};

// Axis counted from the front, or an error that says what would be accepted.
Result<size_t> resolve_axis(int64_t axis, size_t rank);
// numpy's rule: aligned at the last axis, sizes agree or are 1.
Result<Shape> broadcast_shape(const Shape& a, const Shape& b);

// Every node but views is a known op whose operands imply its results' shapes and whose program fits. ir/check.h is
// assumed to hold.
Status check_ops(const Graph& graph);

}  // namespace tessera
