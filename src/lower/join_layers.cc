// SPDX-License-Identifier: Apache-2.0
#include "lower/join_layers.h"

#include <algorithm>
#include <optional>
#include <set>

#include "lower/joined_rows.h"
#include "op/extra_results.h"
#include "ops/matmul/matmul.h"
#include "ops/ops.h"
#include "plan/choose.h"
#include "rewrite/drop_dead.h"
#include "rewrite/edit/match.h"

namespace tessera {
namespace {

// Kernels load rows in pieces of 16 bytes: a part begins at one.
constexpr int64_t kPieceBits = 128;

// Nodes that become one, whose results are columns of its result.
struct Group {
  std::vector<size_t> nodes;    // in order
  std::vector<int64_t> widths;  // columns of each
  int64_t cols = 0;
};

class Joiner {
 public:
  Joiner(const Graph& graph, Arch target) : g_(graph), target_(target), m_(graph) {}

  // The graph in which one more group is joined, the first that begins at node `n` or later; nothing where there is
  // none. `n`: on return, where it begins.
  std::optional<Graph> join_one(size_t& n) const {
    for (; n < g_.nodes.size(); ++n) {
      for (Group group = group_from(n); group.nodes.size() > 1;) {
        Graph joined = g_;
        rewrite(joined, group);
        const std::set<size_t> refusing = refused(joined, group);
        if (refusing.empty()) return joined;
        without(group, refusing);
      }
    }
    return std::nullopt;
  }

 private:
  const Node& node(size_t n) const { return g_.nodes[n]; }
  bool is_result(ValueId v) const { return std::find(g_.outputs.begin(), g_.outputs.end(), v) != g_.outputs.end(); }

  // The columns of a node's result as part of a wider one, 0 where it cannot be: layers by their rows of w, rotaries by
  // their heads.
  int64_t width_of(const Node& n) const {
    if (n.outputs.size() != 1 || n.name.find('+') != std::string::npos) return 0;
    for (const auto& [name, unused] : n.attrs.all()) {
      static const std::set<std::string> kOfEach = {kPromoted, kSparse24, kFoldedKind, kFoldedEps, "interleaved"};
      if (!kOfEach.contains(name)) return 0;
    }
    const Value& y = g_.at(n.outputs[0]);
    if (is_result(n.outputs[0]) || y.type.quant.dynamic) return 0;
    const Shape& shape = y.type.shape;
    const int64_t width = n.op == "matmul"   ? (has_rows(g_, n) && steps_join(n.then) ? shape.back() : 0)
                          : n.op == "rotary" ? shape[2] * shape[3]
                                             : 0;
    return width * info(y.type.quant.element).bits % kPieceBits == 0 ? width : 0;
  }
  static bool steps_join(const Program& then) {
    return then.within({StepKind::normalise, StepKind::bias, StepKind::scale, StepKind::quantize});
  }

  Group group_from(size_t first) const {
    Group group;
    for (size_t n = first; n < g_.nodes.size(); ++n) {
      const int64_t width = width_of(node(n));
      if (width == 0 && n == first) break;
      if (width == 0 || (n != first && !fits(group, n))) continue;
      group.nodes.push_back(n);
      group.widths.push_back(width);
      group.cols += width;
    }
    return group;
  }

  bool fits(const Group& group, size_t n) const {
    const Node &a = node(group.nodes[0]), &b = node(n);
    if (a.op != b.op) return false;
    return a.op == "matmul" ? fit_together(g_, a, b) && same_program(a, b) && vectors_fit(group, n)
                            : turns_alike(a, b) && is_next(node(group.nodes.back()), b);
  }

  bool vectors_fit(const Group& group, size_t n) const {
    std::vector<LayerRows> rows = rows_of(group);
    rows.push_back(all_rows(g_, node(n)));
    return vectors_fit_together(g_, m_.producers(), rows);
  }
  std::vector<LayerRows> rows_of(const Group& group) const {
    std::vector<LayerRows> rows;
    for (const size_t n : group.nodes) rows.push_back(all_rows(g_, node(n)));
    return rows;
  }

  // But for vectors, which are joined too.
  static bool same_program(const Node& a, const Node& b) {
    const Step *p = a.then.find(StepKind::normalise), *q = b.then.find(StepKind::normalise);
    const auto moments = [](const Node& n, const Step* s) {
      return s == nullptr ? kNoValue : n.inputs[static_cast<size_t>(s->operand)];
    };
    return moments(a, p) == moments(b, q) &&
           (a.then.find(StepKind::quantize) == nullptr) == (b.then.find(StepKind::quantize) == nullptr);
  }

  bool turns_alike(const Node& a, const Node& b) const {
    const Value &y = g_.at(a.outputs[0]), &z = g_.at(b.outputs[0]);
    return same_numbers(a.inputs[1], b.inputs[1]) && same_numbers(a.inputs[2], b.inputs[2]) && a.attrs == b.attrs &&
           a.then == b.then && a.asked == b.asked && a.role == b.role && y.type.quant == z.type.quant &&
           y.scale == z.scale && y.scale2 == z.scale2;
  }

  // Exporters write a table of angles once for each of its readers.
  bool same_numbers(ValueId a, ValueId b) const {
    const Value &v = g_.at(a), &w = g_.at(b);
    return a == b || (v.constant && w.constant && v.type == w.type && v.scale == w.scale && v.scale2 == w.scale2 &&
                      same_bytes(v.data, w.data));
  }

  // The heads that b reads lie right behind those of a.
  bool is_next(const Node& a, const Node& b) const {
    const Place p = m_.place(a.inputs[0]), q = m_.place(b.inputs[0]);
    const Shape &x = p.region.shape, &y = q.region.shape;
    if (p.base != q.base || g_.at(p.base).constant || x[0] != y[0] || x[1] != y[1] || x[3] != y[3]) return false;
    for (size_t axis = 0; axis < 4; ++axis) {
      const bool stepped = axis == 2 ? x[2] > 1 && y[2] > 1 : x[axis] > 1;
      if (stepped && p.region.strides[axis] != q.region.strides[axis]) return false;
    }
    const int64_t head = head_stride(p.region);
    return head == head_stride(q.region) && q.region.offset == p.region.offset + x[2] * head;
  }
  // Between heads; a single one is as wide as itself.
  static int64_t head_stride(const Region& r) { return r.shape[2] > 1 ? r.strides[2] : r.shape[3]; }

  // Heads are neighbours: those behind one that is left out are left out too.
  void without(Group& group, const std::set<size_t>& members) const {
    const bool heads = node(group.nodes[0]).op == "rotary";
    Group rest;
    for (size_t i = 0; i < group.nodes.size(); ++i) {
      if (members.contains(i) || (heads && i > *members.begin())) continue;
      rest.nodes.push_back(group.nodes[i]);
      rest.widths.push_back(group.widths[i]);
      rest.cols += group.widths[i];
    }
    group = std::move(rest);
  }

  // What the rotaries of a group read, all of it.
  Place heads(const Group& group) const {
    Place p = m_.place(node(group.nodes[0]).inputs[0]);
    p.region.strides[2] = head_stride(p.region);
    p.region.shape[2] = group.cols / p.region.shape[3];
    return p;
  }

  // Appends what shows it its operands to `nodes`.
  Node joined_node(Graph& g, const Group& group, std::vector<Node>& nodes) const {
    Node made = node(group.nodes[0]);
    std::vector<std::string> names;
    for (const size_t n : group.nodes) names.push_back(node(n).name);
    made.name = join_names(names);
    made.attrs.set(kJoined, group.widths);
    if (made.op == "rotary") {
      Value x = g.at(made.inputs[0]);
      x.name += ".joined";
      x.type.shape = heads(group).region.shape;
      made.inputs[0] = g.add_value(std::move(x));
      nodes.push_back(view(heads(group).base, heads(group).region, made.inputs[0]));
      return made;
    }
    const std::vector<LayerRows> rows = rows_of(group);
    made.inputs = {made.inputs[0], join_weights(g, rows)};
    made.then.steps.clear();
    for (const StepKind kind : {StepKind::normalise, StepKind::bias, StepKind::scale, StepKind::quantize}) {
      const auto with = std::find_if(group.nodes.begin(), group.nodes.end(),
                                     [&](size_t n) { return node(n).then.find(kind) != nullptr; });
      if (with == group.nodes.end()) continue;
      Step step = *node(*with).then.find(kind);
      if (step.operand >= 0) {
        const ValueId own = node(*with).inputs[static_cast<size_t>(step.operand)];
        step.operand = static_cast<int>(made.inputs.size());
        made.inputs.push_back(operand_of(kind) == StepOperand::kVector ? join_vectors(g, rows, kind, nodes) : own);
      }
      made.then.steps.push_back(step);
    }
    return made;
  }

  // Where one part of the joined result lies, in the shape that it had.
  Region part(const Group& group, size_t i) const {
    const Shape& shape = g_.at(node(group.nodes[i]).outputs[0]).type.shape;
    Region r = dense_region(shape);
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (r.strides[axis] >= group.widths[i]) r.strides[axis] = r.strides[axis] / group.widths[i] * group.cols;
    }
    for (size_t before = 0; before < i; ++before) r.offset += group.widths[before];
    return r;
  }

  static Node view(ValueId base, const Region& region, ValueId out) {
    return {.name = {},
            .op = "view",
            .inputs = {base},
            .outputs = {out},
            .attrs = {{"strides", region.strides}, {"offset", region.offset}}};
  }

  void rewrite(Graph& g, const Group& group) const {
    std::vector<Node> shown;
    Node made = joined_node(g, group, shown);
    Value y = g.at(made.outputs[0]);
    y.name = made.name;
    y.type.shape = made.op == "rotary" ? g.at(made.inputs[0]).type.shape : y.type.shape;
    if (made.op == "matmul") y.type.shape.back() = group.cols;
    const ValueId base = g.add_value(std::move(y));
    made.outputs = {base};
    std::vector<Node> nodes;
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const auto member = std::find(group.nodes.begin(), group.nodes.end(), n);
      if (n == group.nodes[0]) {
        nodes.insert(nodes.end(), shown.begin(), shown.end());
        nodes.push_back(made);
        for (size_t i = 0; i < group.nodes.size(); ++i)
          nodes.push_back(view(base, part(group, i), node(group.nodes[i]).outputs[0]));
      } else if (member == group.nodes.end()) {
        nodes.push_back(node(n));
        if (node(n).op == "view") read_straight(nodes.back(), group, base);
      }
    }
    g.nodes = std::move(nodes);
  }

  // Views of a part are views of the joined result; where no strides say it, the view stays and is refused.
  void read_straight(Node& view, const Group& group, ValueId base) const {
    for (size_t i = 0; i < group.nodes.size(); ++i) {
      if (view.inputs[0] != node(group.nodes[i]).outputs[0]) continue;
      const Region seen{g_.at(view.outputs[0]).type.shape, view.attrs.list("strides"), view.attrs.integer("offset")};
      const auto straight = composed(part(group, i), seen);
      if (!straight) return;
      view.inputs[0] = base;
      view.attrs.set("strides", straight->strides);
      view.attrs.set("offset", straight->offset);
      return;
    }
  }

  // Members of the group that have a reader which would run worse; all of them where no kernel runs the joined node as
  // well as it runs them.
  std::set<size_t> refused(const Graph& joined, const Group& group) const {
    std::set<size_t> all, found;
    for (size_t i = 0; i < group.nodes.size(); ++i) all.insert(i);
    const std::vector<int> producers = joined.producers();
    const auto made = std::find_if(joined.nodes.begin(), joined.nodes.end(), [&](const Node& n) {
      return n.attrs.has(kJoined) && n.outputs[0] >= static_cast<ValueId>(g_.values.size());
    });
    const Choice now = chosen(joined, producers, *made);
    if (now.variant == nullptr) return all;
    for (const size_t n : group.nodes) {
      const Choice before = chosen(g_, m_.producers(), node(n));
      if (before.variant == nullptr || (before.slow.empty() && !now.slow.empty())) return all;
    }
    for (size_t i = 0; i < group.nodes.size(); ++i) {
      if (!readers_run(joined, producers, node(group.nodes[i]).outputs[0])) found.insert(i);
    }
    return found;
  }

  Choice chosen(const Graph& g, const std::vector<int>& producers, const Node& n) const {
    return choose(*find_op(n.op), problem_of(g, producers, n), target_);
  }

  // Whether all that reads this result, itself or through views, runs as before.
  bool readers_run(const Graph& joined, const std::vector<int>& producers, ValueId y) const {
    const auto lies_there = [&](ValueId id) {
      return id != kNoValue && !g_.at(id).constant && placement_of(g_, m_.producers(), id).base == y;
    };
    if (std::any_of(g_.outputs.begin(), g_.outputs.end(), lies_there)) return false;
    for (const Node& after : joined.nodes) {
      if (after.inputs.empty() || after.outputs.empty() || after.outputs[0] >= static_cast<ValueId>(g_.values.size()))
        continue;
      if (after.op == "view") {
        if (after.inputs[0] == y) return false;  // no strides say it
        continue;
      }
      if (!std::any_of(after.inputs.begin(), after.inputs.end(), lies_there)) continue;
      const Node& before = *m_.maker(after.outputs[0]);
      for (const Step& s : after.then.steps) {  // vectors and residuals are whole rows
        if (s.operand >= 0 && lies_there(after.inputs[static_cast<size_t>(s.operand)])) return false;
      }
      const Choice was = chosen(g_, m_.producers(), before), is = chosen(joined, producers, after);
      if (was.variant != is.variant || was.slow != is.slow) return false;
    }
    return true;
  }

  const Graph& g_;
  const Arch target_;
  const Matcher m_;
};

}  // namespace

Status join_layers(Graph& graph, Arch target) {
  size_t first = 0;
  while (auto joined = Joiner(graph, target).join_one(first)) {
    graph = *std::move(joined);
    TS_TRY(drop_dead(graph));
  }
  return {};
}

}  // namespace tessera
