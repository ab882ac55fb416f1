// SPDX-License-Identifier: Apache-2.0
#include "rewrite/materialise.h"

#include <algorithm>
#include <map>
#include <set>

#include "op/op.h"
#include "ops/ops.h"

namespace tessera {
namespace {

bool readable(StridedInputs strided, const Shape& shape, const Shape& strides) {
  switch (strided) {
    case StridedInputs::kAny:
      return true;
    case StridedInputs::kLastAxis:
      return shape.empty() || shape.back() == 1 || strides.back() == 1;
    case StridedInputs::kRows: {
      const RowView rows = as_rows(shape, strides);
      return rows.uniform &&
             (rows.rows == 1 || rows.row_stride >= rows.cols);  // rows that repeat or overlap are no matrix
    }
    case StridedInputs::kDense:
      return is_dense(shape, strides);
  }
  return false;
}

// Some rows of a dense matrix, each from its first column to its last: a residual of few tokens. Kernels may count on
// rows that begin where rows begin.
bool are_whole_rows(const Shape& shape, const Shape& strides, int64_t offset) {
  if (!readable(StridedInputs::kRows, shape, strides)) return false;
  const RowView rows = as_rows(shape, strides);
  return rows.cols == 0 || (offset % rows.cols == 0 && rows.row_stride % rows.cols == 0);
}

class Materialiser {
 public:
  explicit Materialiser(Graph& graph) : g_(graph) {
    const std::vector<int> producers = graph.producers();
    for (size_t v = 0; v < graph.values.size(); ++v) {
      Placement p = placement_of(graph, producers, static_cast<ValueId>(v));
      strides_.push_back(std::move(p.strides));
      offsets_.push_back(p.offset);
    }
  }

  Status run() {
    std::vector<Node> nodes;
    for (Node& n : g_.nodes) {
      const OpInfo* op = find_op(n.op);
      if (op == nullptr && n.op != "view") return bad_input(cat("node '", n.name, "': unknown op '", n.op, "'"));
      for (size_t i = 0; op != nullptr && i < n.inputs.size(); ++i) {
        const ValueId v = n.inputs[i];
        if (v == kNoValue) continue;
        const size_t at = static_cast<size_t>(v);
        const bool as_it_lies = reads_as_it_lies(n, i, {g_.at(v).type.shape, strides_[at], offsets_[at]});
        if (!as_it_lies) n.inputs[i] = copy_of(v, nodes);
      }
      nodes.push_back(std::move(n));
    }
    g_.nodes = std::move(nodes);
    own_outputs();
    return {};
  }

 private:
  ValueId copy_of(ValueId v, std::vector<Node>& nodes) {
    const auto [it, fresh] = copies_.emplace(v, kNoValue);
    if (fresh) it->second = add_copy(v, g_.at(v).name + ".dense", nodes);
    return it->second;
  }

  ValueId add_copy(ValueId v, const std::string& name, std::vector<Node>& nodes) {
    Value value = g_.at(v);
    value.name = name;
    value.constant = false;
    value.data = {};
    const ValueId id = g_.add_value(std::move(value));
    nodes.push_back(
        {.name = name, .op = "copy", .inputs = {v}, .outputs = {id}, .attrs = {}, .then = {}, .role = {}, .asked = {}});
    return id;
  }

  void own_outputs() {
    const std::vector<int> producers = g_.producers();
    const std::set<ValueId> inputs(g_.inputs.begin(), g_.inputs.end());
    std::set<ValueId> owned;
    for (ValueId& out : g_.outputs) {
      const int maker = producers[static_cast<size_t>(out)];
      if (maker >= 0 && g_.nodes[static_cast<size_t>(maker)].op != "view" && owned.insert(out).second) continue;
      const std::string name = g_.at(out).name;
      // The result keeps the name; an input and a result that the caller knows already do too.
      if (!inputs.contains(out) && !owned.contains(out)) g_.at(out).name += ".inner";
      out = add_copy(out, name, g_.nodes);
    }
  }

  Graph& g_;
  std::vector<Shape> strides_;  // by value, of those that were there before
  std::vector<int64_t> offsets_;
  std::map<ValueId, ValueId> copies_;
};

}  // namespace

Status materialise(Graph& graph) { return Materialiser(graph).run(); }

bool reads_as_it_lies(const Node& node, size_t input, const Region& region) {
  const OpInfo* op = find_op(node.op);
  const auto step = std::find_if(node.then.steps.begin(), node.then.steps.end(),
                                 [&](const Step& s) { return s.operand == static_cast<int>(input); });
  if (step == node.then.steps.end()) return op != nullptr && readable(op->strided, region.shape, region.strides);
  if (operand_of(step->kind) == StepOperand::kMatrix)
    return are_whole_rows(region.shape, region.strides, region.offset);
  return is_dense(region.shape, region.strides);
}

}  // namespace tessera
