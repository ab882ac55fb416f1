// SPDX-License-Identifier: Apache-2.0
#include "lower/pool_norms.h"

#include <algorithm>
#include <numeric>

#include "ops/runnable.h"
#include "rewrite/drop_dead.h"
#include "rewrite/edit/match.h"

namespace tessera {
namespace {

// What becomes one norm.
struct Pooled {
  const Node* norm;
  size_t reduce;
  Place x;                        // [..., rows, cols]: what the norm then reads
  const Node* rounded = nullptr;  // the copy that makes codes of the mean
};

class NormPooler {
 public:
  NormPooler(Graph& graph, Arch target) : g_(graph), target_(target), m_(graph), uses_(graph.use_counts()) {}

  bool pool_one() {
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (g_.nodes[n].op != "reduce" || g_.nodes[n].attrs.word("fn") != "mean") continue;
      auto found = match(n);
      if (!found || !runs_somewhere(*found)) continue;
      rewrite(*found);
      return true;
    }
    return false;
  }

 private:
  const Type& type(ValueId v) const { return g_.at(v).type; }
  bool read_once(ValueId v) const { return uses_[static_cast<size_t>(v)] == 1; }

  std::optional<Pooled> match(size_t at) const {
    const ValueId v = g_.nodes[at].inputs[0];
    const Node* view = m_.made_by(v, "view");
    if (view == nullptr || !read_once(v) || !read_once(view->inputs[0])) return std::nullopt;
    const Node* norm = m_.made_by(view->inputs[0], "norm");
    if (norm == nullptr || norm->attrs.integer("pooled") != 0 || type(view->inputs[0]).quant.scaled())
      return std::nullopt;
    const auto rows = rows_of(m_.place(v).region, type(view->inputs[0]).shape);
    if (!rows) return std::nullopt;
    const Place x = m_.place(norm->inputs[0]);
    const auto read = composed(x.region, *rows);
    if (!read) return std::nullopt;
    return Pooled{.norm = norm, .reduce = at, .x = {x.base, *read}};
  }

  // What is reduced, [..., cols, rows], as rows [..., rows, cols] of the norm's result; nothing where it is not the
  // rows that are reduced, or where they are read in part.
  static std::optional<Region> rows_of(const Region& reduced, const Shape& whole) {
    const size_t rank = reduced.shape.size();
    if (rank < 2 || whole.empty()) return std::nullopt;
    std::vector<int64_t> order(rank);
    std::iota(order.begin(), order.end(), 0);
    std::swap(order[rank - 2], order[rank - 1]);
    const Region rows = permuted(reduced, order);
    const int64_t cols = whole.back();
    if (rows.shape.back() != cols || (cols > 1 && rows.strides.back() != 1) || rows.offset % cols != 0)
      return std::nullopt;
    for (size_t axis = 0; axis + 1 < rank; ++axis) {
      if (rows.shape[axis] != 1 && rows.strides[axis] % cols != 0) return std::nullopt;
    }
    if (elements(rows.shape) > elements(whole)) return std::nullopt;  // rows that are read several times
    return rows;
  }

  // Finds out whether the codes that a copy makes of the mean can be made at once.
  bool runs_somewhere(Pooled& f) const {
    f.rounded = codes_of(g_.nodes[f.reduce].outputs[0]);
    if (f.rounded != nullptr && runnable(problem(f), target_)) return true;
    f.rounded = nullptr;
    return runnable(problem(f), target_);
  }

  // The copy that makes codes of y, in any grouping of its rows, where it has no other reader.
  const Node* codes_of(ValueId y) const {
    for (;;) {
      const std::vector<size_t> readers = m_.readers(y);
      if (readers.size() != 1 || !read_once(y)) return nullptr;
      const Node& reader = g_.nodes[readers[0]];
      const Type &from = type(y), &to = type(reader.outputs[0]);
      if (reader.op == "copy")
        return reader.then.empty() && to.quant.scaled() && to.shape == from.shape ? &reader : nullptr;
      const bool whole = reader.op == "view" && reader.attrs.integer("offset") == 0 &&
                         is_dense(to.shape, reader.attrs.list("strides")) &&
                         elements(to.shape) == elements(from.shape) && !to.shape.empty() &&
                         to.shape.back() == from.shape.back();
      if (!whole) return nullptr;
      y = reader.outputs[0];
    }
  }

  ValueId result(const Pooled& f) const {
    return f.rounded != nullptr ? f.rounded->outputs[0] : g_.nodes[f.reduce].outputs[0];
  }

  Node pooled(const Pooled& f) const {
    Node node = *f.norm;
    node.attrs.set("pooled", int64_t{1});
    if (f.rounded != nullptr) node.then.steps.push_back({.kind = StepKind::quantize});
    return node;
  }

  Problem problem(const Pooled& f) const {
    Problem p = problem_of(g_, m_.producers(), *f.norm);
    const Node node = pooled(f);
    p.attrs = node.attrs;
    p.then = node.then;
    p.in[0].shape = f.x.region.shape, p.in[0].strides = f.x.region.strides;
    p.out = {dense_operand(type(g_.nodes[f.reduce].outputs[0]).shape, type(result(f)).quant)};
    return p;
  }

  // The norm takes the reduce's place, and the name of its result, by which the value is known.
  void rewrite(const Pooled& f) {
    const ValueId mean = g_.nodes[f.reduce].outputs[0], made = result(f);
    Node node = pooled(f);
    std::vector<Node> fresh;
    if (m_.place(node.inputs[0]).region != f.x.region) {
      Value rows = g_.at(node.inputs[0]);
      rows.name += ".rows";
      rows.type.shape = f.x.region.shape;
      node.inputs[0] = g_.add_value(std::move(rows));
      fresh.push_back(view(f.x.base, node.inputs[0], f.x.region));
    }
    node.outputs = {made};
    std::optional<Node> regrouped;
    if (type(made).shape != type(mean).shape) {  // the head knows the codes in another grouping
      Value own = g_.at(made);
      own.type.shape = type(mean).shape;
      node.outputs = {g_.add_value(std::move(own))};
      regrouped = view(node.outputs[0], made, dense_region(type(made).shape));
    }
    if (std::find(g_.outputs.begin(), g_.outputs.end(), node.outputs[0]) == g_.outputs.end())
      g_.at(node.outputs[0]).name = g_.at(mean).name;
    fresh.push_back(std::move(node));
    if (regrouped) fresh.push_back(std::move(*regrouped));
    std::vector<Node> nodes;
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const ValueId y = g_.nodes[n].outputs[0];
      if (n == f.reduce) std::move(fresh.begin(), fresh.end(), std::back_inserter(nodes));
      if (y != mean && y != made) nodes.push_back(std::move(g_.nodes[n]));
    }
    g_.nodes = std::move(nodes);
  }

  static Node view(ValueId from, ValueId to, const Region& region) {
    return {.name = {},
            .op = "view",
            .inputs = {from},
            .outputs = {to},
            .attrs = {{"strides", region.strides}, {"offset", region.offset}}};
  }

  Graph& g_;
  const Arch target_;
  const Matcher m_;
  const std::vector<int> uses_;
};

}  // namespace

Status pool_norms(Graph& graph, Arch target) {
  while (NormPooler(graph, target).pool_one()) TS_TRY(drop_dead(graph));  // a norm that is left would count as a reader
  return {};
}

}  // namespace tessera
