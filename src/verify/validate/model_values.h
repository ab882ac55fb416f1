// SPDX-License-Identifier: Apache-2.0
// The model as numbers, types erased: the canonical graph in f64, which plans are held against (validate_plan.h). The
// numbers of a value that a plan was shown to compute are drawn, not computed: layers then depend on the layers before
// them in nothing but their names, errors do not add up, and two different values never look alike.
// Only the first samples of a batch are computed: layers do the same to each.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "op/op.h"
#include "ops/builder.h"

namespace tessera {

// The first `samples` of `batch`: the first axis of whatever is not constant, where it holds them.
struct Cut {
  int64_t batch = 1, samples = 1;
  Shape of(Shape shape) const;
};

// The op in f64 over erased types: no rounding of operands or results, the softmax of attention included. Only the
// first result; those beside it are made of it (OpInfo::extra_result). Fails where the numbers or the cut do not fit
// the op.
Result<Dense> compute_erased(const Problem& problem, std::vector<Dense> in, const Cut& cut);

class ModelValues {
 public:
  // Contract: the graph is canonical and outlives this.
  ModelValues(const Graph& graph, const Cut& cut);

  const Graph& graph() const { return g_; }
  const Cut& cut() const { return cut_; }
  // The value of this name that owns its storage (no view, no constant); kNoValue where there is none.
  ValueId find(const std::string& name) const;
  // The node of this name; null where there is none or several are called so.
  const Node* layer(const std::string& name) const;
  const Node* maker(ValueId value) const;
  // Where a value's elements lie, through views.
  Place place(ValueId value) const;
  // A constant, or a view of one.
  bool is_constant(ValueId value) const { return g_.at(place(value).base).constant; }
  // Its numbers, scales applied.
  std::vector<double> constant(ValueId value) const;

  // Its numbers are drawn from now on.
  void hold(ValueId value);
  // All numbers of a value that owns its storage: drawn, or computed from drawn ones.
  Result<const Dense*> numbers(ValueId base);
  Result<Dense> read(const Place& place);

 private:
  Result<Dense> compute(const Node& node);

  const Graph& g_;
  const Cut cut_;
  const std::vector<int> producers_;
  std::map<std::string, ValueId> by_name_;
  std::map<std::string, const Node*> layers_;
  std::set<ValueId> held_;
  std::map<ValueId, Dense> drawn_, computed_;
};

// |a - b| / |b| of the worst row, whose size counts as that of an average row at least; infinite where only one is a
// number.
double distance(const Dense& a, const Dense& b);

// The elements that a region of a dense storage addresses, with the region cut to its first samples.
Result<Dense> gather(const std::vector<double>& storage, const Region& region, const Cut& cut);

}  // namespace tessera
