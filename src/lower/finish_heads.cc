// SPDX-License-Identifier: Apache-2.0
#include "lower/finish_heads.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "ir/derived_constants.h"
#include "op/extra_results.h"
#include "ops/ops.h"
#include "plan/choose.h"
#include "rewrite/drop_dead.h"
#include "rewrite/edit/match.h"

namespace tessera {
namespace {

// Rows of `cols` columns, and the columns among them that a region touches.
struct Columns {
  int64_t first, count;
};
std::optional<Columns> columns_of(const Region& r, int64_t cols) {
  Columns c{r.offset % cols, 1};
  for (size_t axis = 0; axis < r.shape.size(); ++axis) {
    if (r.shape[axis] <= 1 || r.strides[axis] % cols == 0) continue;
    if (r.strides[axis] < 0) return std::nullopt;
    c.count += (r.shape[axis] - 1) * r.strides[axis];
  }
  return c.first + c.count <= cols ? std::optional(c) : std::nullopt;
}

// What one matmul takes over.
struct Tail {
  std::optional<size_t> rotary;
  std::vector<size_t> writes;
  std::vector<KeptColumns> kept;  // of each write; inputs are not set
  bool empty() const { return !rotary && writes.empty(); }
};

class HeadFinisher {
 public:
  HeadFinisher(const Graph& graph, Arch target) : g_(graph), target_(target), m_(graph) {}

  // The graph in which one more matmul has its tail, the first at node `n` or later; nothing where there is none.
  std::optional<Graph> finish_one(size_t& n) const {
    for (; n < g_.nodes.size(); ++n) {
      if (!may_finish(node(n))) continue;
      Tail all = tail_of(n), turned = all;
      turned.writes.clear(), turned.kept.clear();
      for (const Tail& tail : {all, turned}) {
        if (tail.empty()) continue;
        if (std::optional<Graph> made = rewritten(n, tail)) return made;
      }
    }
    return std::nullopt;
  }

 private:
  const Node& node(size_t n) const { return g_.nodes[n]; }
  const Shape& shape(ValueId v) const { return g_.at(v).type.shape; }
  bool lies_in(ValueId v, ValueId base) const {
    return v != kNoValue && !g_.at(v).constant && m_.place(v).base == base;
  }
  bool is_result(ValueId base) const {
    return std::any_of(g_.outputs.begin(), g_.outputs.end(), [&](ValueId out) { return lies_in(out, base); });
  }

  bool may_finish(const Node& n) const {
    return n.op == "matmul" && n.outputs.size() == 1 && n.inputs.size() >= 2 && g_.at(n.inputs[1]).constant &&
           !is_result(n.outputs[0]) && !shape(n.outputs[0]).empty() && !g_.at(n.outputs[0]).type.quant.scaled() &&
           n.then.within({StepKind::normalise, StepKind::bias, StepKind::scale});
  }

  Tail tail_of(size_t n) const {
    const ValueId y = node(n).outputs[0];
    Tail tail;
    for (size_t r = n + 1; r < g_.nodes.size() && !tail.rotary; ++r) {
      if (turns_first_columns(node(r), y)) tail.rotary = r;
    }
    for (size_t w = n + 1; w < g_.nodes.size(); ++w) {
      const auto kept = kept_by(node(w), y, tail);
      // What this matmul makes itself is none of its operands.
      const bool of_own = std::any_of(tail.writes.begin(), tail.writes.end(),
                                      [&](size_t own) { return lies_in(node(w).inputs[0], node(own).outputs[0]); });
      if (!kept || of_own) continue;
      tail.writes.push_back(w);
      tail.kept.push_back(*kept);
    }
    return tail;
  }

  // Heads side by side from the first column on, a row for each token.
  bool turns_first_columns(const Node& r, ValueId y) const {
    if (r.op != "rotary" || r.attrs.integer("interleaved") != 0 || !r.then.empty() || !lies_in(r.inputs[0], y))
      return false;
    const Region& x = m_.place(r.inputs[0]).region;
    const int64_t cols = shape(y).back(), wanted[] = {x.shape[1] * cols, cols, x.shape[3], 1};
    for (size_t axis = 0; axis < 4; ++axis) {
      if (x.shape[axis] > 1 && x.strides[axis] != wanted[axis]) return false;
    }
    return x.offset == 0 && x.shape[0] * x.shape[1] * cols == elements(shape(y)) && !is_result(r.outputs[0]) &&
           g_.at(r.outputs[0]).type.quant == g_.at(y).type.quant;
  }
  int64_t turned_columns(const Tail& tail) const {
    return tail.rotary ? shape(node(*tail.rotary).outputs[0])[2] * shape(node(*tail.rotary).outputs[0])[3] : 0;
  }

  // A write into a state of columns behind those that are turned, or of the turned ones.
  std::optional<KeptColumns> kept_by(const Node& w, ValueId y, const Tail& tail) const {
    if (w.op != "write" || w.attrs.integer(kInPlace) == 0 || w.inputs[1] == kNoValue) return std::nullopt;
    const bool has_at = w.inputs.size() > 2 && w.inputs[2] != kNoValue;
    const int64_t axis = w.attrs.integer("axis");
    if (has_at ? g_.at(w.inputs[2]).constant : w.attrs.integer("at") != 0) return std::nullopt;
    if (has_at && m_.place(w.inputs[2]).region.offset % 4 != 0) return std::nullopt;  // matmuls read units of 16 bytes
    if (axis < 1) return std::nullopt;
    const bool turned = tail.rotary && lies_in(w.inputs[1], node(*tail.rotary).outputs[0]);
    if (!turned && !lies_in(w.inputs[1], y)) return std::nullopt;
    const int64_t cols = turned ? turned_columns(tail) : shape(y).back();
    const Region& rows = m_.place(w.inputs[1]).region;
    const auto own = columns_of(rows, cols);
    if (!own || rows.offset != own->first || (!turned && own->first < turned_columns(tail))) return std::nullopt;
    // Axes but for batch and tokens are the columns, in order.
    int64_t stride = 1;
    for (size_t a = rows.shape.size(); a-- > 0;) {
      const bool token = static_cast<int64_t>(a) == axis, batch = a == 0;
      const int64_t want = token ? cols : batch ? rows.shape[static_cast<size_t>(axis)] * cols : stride;
      if (rows.shape[a] > 1 && rows.strides[a] != want) return std::nullopt;
      if (!token && !batch) stride *= rows.shape[a];
    }
    if (stride != own->count) return std::nullopt;
    return KeptColumns{.first = own->first, .count = own->count, .axis = axis};
  }

  // Cosines and sines in one row: a constant, a view of what holds both, or both joined by a node of `before`.
  ValueId angles(Graph& g, ValueId cos, ValueId sin, std::vector<Node>& before) const {
    Value both;
    both.name = g_.at(cos).name + "+" + g_.at(sin).name;
    both.type = g_.at(cos).type;
    both.type.shape.back() *= 2;
    if (g_.at(cos).constant && g_.at(sin).constant)
      return g.add_constant(both.name, both.type, rows_joined(g, g_.at(cos), g_.at(sin)));
    const Place c = m_.place(cos), s = m_.place(sin);
    if (c.base == s.base && c.region.strides == s.region.strides && c.region.strides.back() == 1 &&
        s.region.offset == c.region.offset + c.region.shape.back() &&
        c.region.offset * info(both.type.quant.element).bits % 128 == 0) {  // matmuls read units of 16 bytes
      const ValueId id = g.add_value(both);
      before.push_back(view(c.base, {both.type.shape, c.region.strides, c.region.offset}, id));
      return id;
    }
    for (const Node& n : g_.nodes) {
      if (n.op == "concat" && n.inputs == std::vector<ValueId>{cos, sin}) return n.outputs[0];
    }
    const ValueId id = g.add_value(both);
    before.push_back(
        {.name = both.name, .op = "concat", .inputs = {cos, sin}, .outputs = {id}, .attrs = {{"axis", int64_t{2}}}});
    return id;
  }
  static Bytes rows_joined(const Graph& g, const Value& cos, const Value& sin) {
    const Bytes from[] = {cos.data, sin.data};
    const size_t row = static_cast<size_t>(packed_bytes(cos.type.quant.element, cos.type.shape.back()));
    return derive(g, cat("angles ", row), from,
                  [&]() -> Result<std::vector<Buffer>> {
                    std::vector<Buffer> made;
                    made.emplace_back(from[0].size() + from[1].size());
                    for (size_t at = 0; at + row <= from[0].size(); at += row) {
                      std::memcpy(made[0].data() + 2 * at, from[0].data() + at, row);
                      std::memcpy(made[0].data() + 2 * at + row, from[1].data() + at, row);
                    }
                    return made;
                  })
        .value()[0];
  }

  static Node view(ValueId base, const Region& region, ValueId out) {
    return {.name = {},
            .op = "view",
            .inputs = {base},
            .outputs = {out},
            .attrs = {{"strides", region.strides}, {"offset", region.offset}}};
  }

  // The matmul with its tail; what it needs before it goes to `before`.
  Node finished(Graph& g, size_t n, const Tail& tail, std::vector<Node>& before) const {
    Node made = node(n);
    if (tail.rotary) {
      const Node& r = node(*tail.rotary);
      Step step{.kind = StepKind::rotary, .operand = static_cast<int>(made.inputs.size())};
      step.numbers = {static_cast<double>(shape(r.outputs[0])[3]), static_cast<double>(turned_columns(tail))};
      made.inputs.push_back(angles(g, r.inputs[1], r.inputs[2], before));
      made.then.steps.push_back(step);
    }
    std::vector<KeptColumns> all = tail.kept;
    for (size_t i = 0; i < tail.writes.size(); ++i) {
      const Node& w = node(tail.writes[i]);
      all[i].before = static_cast<int>(made.inputs.size());
      made.inputs.push_back(w.inputs[0]);
      if (w.inputs.size() > 2 && w.inputs[2] != kNoValue) {
        all[i].at = static_cast<int>(made.inputs.size());
        made.inputs.push_back(w.inputs[2]);
      }
      made.outputs.push_back(w.outputs[0]);
    }
    if (all.empty()) return made;
    set_kept_columns(made.attrs, all);
    made.attrs.set(kInPlace, int64_t{1});
    return made;
  }

  // Views of the matmul's result and of the turned heads, straight from the new result; nothing where no strides say
  // it.
  std::optional<std::vector<Node>> views(size_t n, const Tail& tail, std::set<size_t>& moved) const {
    const ValueId y = node(n).outputs[0];
    std::vector<Node> all;
    std::optional<Region> heads;
    if (tail.rotary) {
      const ValueId turned = node(*tail.rotary).outputs[0];
      heads = m_.place(node(*tail.rotary).inputs[0]).region;
      heads->strides = {heads->shape[1] * shape(y).back(), shape(y).back(), heads->shape[3], 1};
      all.push_back(view(y, *heads, turned));
    }
    for (size_t v = 0; v < g_.nodes.size(); ++v) {
      if (node(v).op != "view") continue;
      const Place p = m_.place(node(v).outputs[0]);
      const bool of_heads = tail.rotary && p.base == node(*tail.rotary).outputs[0];
      if (p.base != y && !of_heads) continue;
      const auto region = of_heads ? composed(*heads, p.region) : std::optional(p.region);
      if (!region) return std::nullopt;
      all.push_back(view(y, *region, node(v).outputs[0]));
      moved.insert(v);
    }
    return all;
  }

  // Where the new matmul goes: behind whatever makes its operands.
  size_t position(size_t n, const Tail& tail) const {
    size_t at = n;
    const auto behind = [&](ValueId v) {
      if (v == kNoValue || g_.at(v).constant) return;
      const int maker = m_.producers()[static_cast<size_t>(m_.place(v).base)];
      if (maker >= 0) at = std::max(at, static_cast<size_t>(maker) + 1);
    };
    if (tail.rotary) {
      for (const size_t i : {1, 2}) behind(node(*tail.rotary).inputs[i]);
    }
    for (const size_t w : tail.writes) {
      behind(node(w).inputs[0]);
      if (node(w).inputs.size() > 2) behind(node(w).inputs[2]);
    }
    return at;
  }

  // Whether nobody sees that columns are turned, and rows kept, at node `at` already.
  bool is_safe(size_t n, const Tail& tail, size_t at) const {
    const ValueId y = node(n).outputs[0], turned = tail.rotary ? node(*tail.rotary).outputs[0] : kNoValue;
    for (size_t i = n + 1; i < g_.nodes.size(); ++i) {
      const size_t write =
          static_cast<size_t>(std::find(tail.writes.begin(), tail.writes.end(), i) - tail.writes.begin());
      if (node(i).op == "view" || tail.rotary == i || write < tail.writes.size()) continue;
      for (const ValueId in : node(i).inputs) {
        if (lies_in(in, y)) {
          const auto own = columns_of(m_.place(in).region, shape(y).back());
          if (i < at || !own || own->first < turned_columns(tail)) return false;
        }
        if (turned != kNoValue && i < at && lies_in(in, turned)) return false;
        for (const size_t w : tail.writes) {
          if (i >= at && i < w && lies_in(in, m_.place(node(w).inputs[0]).base)) return false;
          if (i < at && lies_in(in, node(w).outputs[0])) return false;
        }
      }
    }
    return true;
  }

  std::optional<Graph> rewritten(size_t n, const Tail& tail) const {
    const size_t at = position(n, tail);
    std::set<size_t> gone{n};
    const auto moved = views(n, tail, gone);
    if (!moved || !is_safe(n, tail, at)) return std::nullopt;
    if (tail.rotary) gone.insert(*tail.rotary);
    gone.insert(tail.writes.begin(), tail.writes.end());
    Graph g = g_;
    g.nodes.clear();
    size_t made_at = 0;
    for (size_t i = 0; i <= g_.nodes.size(); ++i) {
      if (i == at) {
        const Node made = finished(g, n, tail, g.nodes);
        made_at = g.nodes.size();
        g.nodes.push_back(made);
        g.nodes.insert(g.nodes.end(), moved->begin(), moved->end());
      }
      if (i < g_.nodes.size() && !gone.contains(i)) g.nodes.push_back(node(i));
    }
    return runs_well(g, made_at, node(n)) ? std::optional(std::move(g)) : std::nullopt;
  }

  // The kernel that ran the matmul alone runs it, as whatever reads what is a view now stays on its own.
  bool runs_well(const Graph& g, size_t made_at, const Node& alone) const {
    const std::vector<int> producers = g.producers();
    const Choice now = choose(*find_op("matmul"), problem_of(g, producers, g.nodes[made_at]), target_);
    if (now.variant == nullptr || !now.slow.empty() ||
        now.variant != choose(*find_op("matmul"), problem_of(g_, m_.producers(), alone), target_).variant)
      return false;
    const ValueId y = g.nodes[made_at].outputs[0];
    for (const Node& reader : g.nodes) {
      if (reader.op == "view" || std::none_of(reader.inputs.begin(), reader.inputs.end(), [&](ValueId in) {
            return in != kNoValue && !g.at(in).constant && placement_of(g, producers, in).base == y;
          }))
        continue;
      const Node& before = *m_.maker(reader.outputs[0]);
      const Choice was = choose(*find_op(before.op), problem_of(g_, m_.producers(), before), target_),
                   is = choose(*find_op(reader.op), problem_of(g, producers, reader), target_);
      if (was.variant != is.variant || was.slow != is.slow) return false;
    }
    return true;
  }

  const Graph& g_;
  const Arch target_;
  const Matcher m_;
};

}  // namespace

Status finish_heads(Graph& graph, Arch target) {
  size_t first = 0;
  while (auto finished = HeadFinisher(graph, target).finish_one(first)) {
    graph = *std::move(finished);
    TS_TRY(drop_dead(graph));
    first = 0;
  }
  return {};
}

}  // namespace tessera
