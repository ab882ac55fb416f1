// SPDX-License-Identifier: Apache-2.0
#include "lower/pad_heads.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "lower/pad_layer.h"
#include "ops/runnable.h"
#include "precision/roles.h"
#include "rewrite/drop_dead.h"
#include "rewrite/edit/match.h"

namespace tessera {
namespace {

// How q, k or v gets its zeros.
enum class Form : uint8_t { kAsItLies, kInWeight, kCopied };
struct HeadOperand {
  Form form = Form::kAsItLies;
  int64_t size = 0;  // of a padded head
  Region region;     // kInWeight: of the padded layer's result
};
using HeadOperands = std::array<HeadOperand, 3>;

// Nodes from a value to an operand of the attention, in order, each of which only the next one reads.
struct Way {
  ValueId from;
  std::vector<size_t> nodes;
};
using Ways = std::array<Way, 3>;

int64_t rounded_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

class HeadPadder {
 public:
  HeadPadder(Graph& graph, Arch target) : g_(graph), target_(target), m_(graph) {}

  bool pad_one() {
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const Node& node = g_.nodes[n];
      if (node.op != "attention" || runnable(g_, m_.producers(), node, target_)) continue;
      const auto is_heads = [&](ValueId v) { return v != kNoValue && shape(v).size() == 4; };
      if (!std::all_of(node.inputs.begin(), node.inputs.begin() + 3, is_heads)) continue;
      const Ways ways = {way_to(node.inputs[0]), way_to(node.inputs[1]), way_to(node.inputs[2])};
      if (const auto how = find(node, ways)) {
        rewrite(n, ways, *how);
        return true;
      }
    }
    return false;
  }

 private:
  const Shape& shape(ValueId v) const { return g_.at(v).type.shape; }

  // Copies and rotary: zeros behind a head pass through both, since rotary turns the first columns of a head, as many
  // as its tables have.
  Way way_to(ValueId operand) const {
    Way way{operand, {}};
    for (;;) {
      const int maker = m_.producers()[static_cast<size_t>(way.from)];
      if (maker < 0) return way;
      const Node& node = g_.nodes[static_cast<size_t>(maker)];
      if ((node.op != "copy" && node.op != "rotary") || !node.then.within(kCodesOnly) ||
          shape(node.inputs[0]) != shape(way.from) || reads_of(g_, m_.producers(), way.from).size() != 1 ||
          is_output(g_, m_.producers(), way.from))
        return way;
      way.nodes.insert(way.nodes.begin(), static_cast<size_t>(maker));
      way.from = node.inputs[0];
    }
  }

  // The smallest heads that a kernel takes, padded in weights where that can be.
  std::optional<HeadOperands> find(const Node& node, const Ways& ways) const {
    // A little wider where the layers that read the result then need no padding of their own.
    for (const bool with_readers : {true, false}) {
      for (const int64_t unit : {1, 8, 16, 32}) {
        for (const bool in_weights : {true, false}) {
          const HeadOperands how = forms(node, ways, unit, in_weights);
          if (runnable(problem(node, ways, how), target_) && copies_run(node, how) && ways_run(ways, how) &&
              (!with_readers || readers_run(node.outputs[0], how[2].size)))
            return how;
        }
      }
    }
    return std::nullopt;
  }

  HeadOperands forms(const Node& node, const Ways& ways, int64_t unit, bool in_weights) const {
    HeadOperands how;
    for (size_t i = 0; i < 3; ++i) {
      const int64_t own = shape(node.inputs[i]).back();
      how[i] = {.form = Form::kCopied, .size = rounded_up(own, unit), .region = {}};
      if (!in_weights) continue;
      if (how[i].size == own) how[i].form = Form::kAsItLies;
      if (auto region = in_weight(node, ways, i, how[i].size); region && how[i].size != own)
        how[i] = {Form::kInWeight, how[i].size, *std::move(region)};
    }
    return how;
  }

  // Where the operand comes from in the result of a linear layer whose heads have `size` columns each; nothing where it
  // is no such result, or anything but q, k and v of this attention, in whole heads of one size, reads it.
  std::optional<Region> in_weight(const Node& node, const Ways& ways, size_t operand, int64_t size) const {
    const ValueId base = m_.place(ways[operand].from).base;
    const Node* layer = m_.maker(base);
    const int64_t own = shape(node.inputs[operand]).back();
    if (layer == nullptr || !is_matmul_layer(g_, *layer) || !can_pad(g_, *layer) || !keeps_zeros(layer->then) ||
        layer->outputs.size() != 1 || own == 0 || shape(base).back() % own != 0 || is_output(g_, m_.producers(), base))
      return std::nullopt;
    const auto begins = [&](const StorageRead& r, size_t i) {
      if (!ways[i].nodes.empty()) return ways[i].nodes[0] == r.node && r.input == 0;
      return &g_.nodes[r.node] == &node && r.input == i;
    };
    for (const StorageRead& r : reads_of(g_, m_.producers(), base)) {
      const auto fits = [&](size_t i) { return begins(r, i) && in_heads(ways[i].from, own, size); };
      if (!fits(0) && !fits(1) && !fits(2)) return std::nullopt;
    }
    return in_heads(ways[operand].from, own, size);
  }
  std::optional<Region> in_heads(ValueId value, int64_t own, int64_t size) const {
    const Place p = m_.place(value);
    if (shape(value).back() != own || p.region.strides.back() != 1) return std::nullopt;
    const int64_t heads = elements(shape(p.base)) / own;
    auto region = composed({{heads, own}, {size, 1}, 0}, p.region);
    if (region) region->shape.back() = size;
    return region;
  }

  Problem problem(const Node& node, const Ways& ways, const HeadOperands& how) const {
    Problem p = problem_of(g_, m_.producers(), node);
    for (size_t i = 0; i < 3; ++i) {
      Shape padded = p.in[i].shape;
      padded.back() = how[i].size;
      if (how[i].form == Form::kInWeight && ways[i].nodes.empty()) {
        p.in[i].shape = padded, p.in[i].strides = how[i].region.strides;
      } else if (how[i].form != Form::kAsItLies) {
        p.in[i] = dense_operand(padded, p.in[i].type, g_.at(m_.place(node.inputs[i]).base).constant);
      }
    }
    Shape y = p.out[0].shape;
    y.back() = how[2].size;
    p.out[0] = dense_operand(y, p.out[0].type);
    return p;
  }

  // What the copies of these operands read and make.
  bool copies_run(const Node& node, const HeadOperands& how) const {
    Graph trial = g_;
    std::vector<int> producers = m_.producers();
    for (size_t i = 0; i < 3; ++i) {
      const ValueId value = node.inputs[i];
      if (how[i].form != Form::kCopied || g_.at(m_.place(value).base).constant) continue;
      std::vector<Node> made;
      pad_value(trial, value, how[i].size, value, node.name, made);
      producers.resize(trial.values.size(), -1);
      if (!runnable(trial, producers, made.back(), target_)) return false;
    }
    return true;
  }

  // What lies between a padded layer and the attention takes heads of this size.
  bool ways_run(const Ways& ways, const HeadOperands& how) const {
    for (size_t i = 0; i < 3; ++i) {
      if (how[i].form != Form::kInWeight) continue;
      for (const size_t n : ways[i].nodes) {
        Problem p = problem_of(g_, m_.producers(), g_.nodes[n]);
        Shape padded = p.in[0].shape;
        padded.back() = how[i].size;
        p.in[0] = dense_operand(padded, p.in[0].type);
        if (n == ways[i].nodes[0]) p.in[0].strides = how[i].region.strides;
        p.out[0] = dense_operand(padded, p.out[0].type);
        if (!runnable(p, target_)) return false;
      }
    }
    return true;
  }

  void rewrite(size_t at, const Ways& ways, const HeadOperands& how) {
    const Node old = g_.nodes[at];
    Node node = old;
    std::vector<Node> before, after;
    std::multimap<size_t, Node> views;                    // by the layer that they stand behind
    std::map<std::pair<ValueId, int64_t>, ValueId> made;  // k and v may be one value
    std::set<ValueId> padded;
    for (size_t i = 0; i < 3; ++i) {
      if (how[i].form == Form::kAsItLies) continue;
      auto [it, fresh] = made.emplace(std::pair(old.inputs[i], how[i].size), kNoValue);
      if (fresh && how[i].form == Form::kInWeight) {
        it->second = pass_on(ways[i], view_padded(ways[i].from, how[i], padded, views), how[i].size);
      } else if (fresh) {
        it->second = copied(old, i, how[i], before);
      }
      node.inputs[i] = it->second;
    }
    if (how[2].size != shape(old.outputs[0]).back()) widen_result(old.outputs[0], how[2].size, node, after);
    std::vector<Node> nodes;
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (n == at) {
        for (Node& b : before) nodes.push_back(std::move(b));
        nodes.push_back(std::move(node));
        for (Node& a : after) nodes.push_back(std::move(a));
      } else {
        nodes.push_back(std::move(g_.nodes[n]));
        for (auto [v, end] = views.equal_range(n); v != end; ++v) nodes.push_back(std::move(v->second));
      }
    }
    g_.nodes = std::move(nodes);
  }

  // The operand that the way leads to from a padded value.
  ValueId pass_on(const Way& way, ValueId value, int64_t size) {
    for (const size_t n : way.nodes) {
      g_.nodes[n].inputs[0] = value;
      value = g_.nodes[n].outputs[0];
      g_.at(value).type.shape.back() = size;
      g_.at(value).name += ".padded";
    }
    return value;
  }

  ValueId view_padded(ValueId value, const HeadOperand& how, std::set<ValueId>& padded,
                      std::multimap<size_t, Node>& views) {
    const ValueId base = m_.place(value).base;
    const size_t maker = static_cast<size_t>(m_.producers()[static_cast<size_t>(base)]);
    const int64_t own = shape(value).back();
    if (padded.insert(base).second) {
      Node& layer = g_.nodes[maker];
      const int64_t heads = shape(base).back() / own;
      pad_rows(g_, layer, padded_groups(heads, own, how.size), PaddedNumbers::kMade);
      g_.at(base).type.shape.back() = heads * how.size;
      g_.at(base).name += ".padded";
    }
    if (how.region.shape == shape(base) && how.region.whole()) return base;
    Value v;
    v.name = value == base ? g_.at(base).name + ".heads" : g_.at(value).name + ".padded";
    v.type = {how.region.shape, g_.at(base).type.quant};
    v.scale = g_.at(base).scale, v.scale2 = g_.at(base).scale2;
    const ValueId view = g_.add_value(std::move(v));
    views.emplace(maker, view_node(base, view, how.region));
    return view;
  }

  ValueId copied(const Node& attention, size_t operand, const HeadOperand& how, std::vector<Node>& before) {
    static const char* kNames[] = {"q", "k", "v"};
    const ValueId value = attention.inputs[operand];
    const Place p = m_.place(value);
    if (g_.at(p.base).constant) return pad_constant(g_, p.base, p.region, how.size, PaddedNumbers::kMade);
    return pad_value(g_, source_of(value, how.size), how.size, value, cat(attention.name, ".", kNames[operand]),
                     before);
  }

  // A copy that nobody else reads (q on its way to codes) pads, too.
  ValueId source_of(ValueId value, int64_t size) const {
    const Node* copy = m_.made_by(value, "copy");
    if (copy == nullptr || reads_of(g_, m_.producers(), value).size() != 1 || is_output(g_, m_.producers(), value) ||
        g_.at(m_.place(copy->inputs[0]).base).constant)
      return value;
    Graph trial = g_;
    std::vector<Node> once;
    pad_value(trial, copy->inputs[0], size, value, "", once);
    std::vector<int> producers = m_.producers();
    producers.resize(trial.values.size(), -1);
    return runnable(trial, producers, once.back(), target_) ? copy->inputs[0] : value;
  }

  // The attention writes heads of `size` columns: linear layers that read all of them get columns of zeros, anyone else
  // a copy without them.
  void widen_result(ValueId y, int64_t size, Node& attention, std::vector<Node>& after) {
    const int64_t own = shape(y).back();
    const std::vector<StorageRead> reads = reads_of(g_, m_.producers(), y);
    const bool in_weights =
        !reads.empty() && !is_output(g_, m_.producers(), y) &&
        std::all_of(reads.begin(), reads.end(), [&](const StorageRead& r) { return takes_columns(r, y); });
    Value wide = g_.at(y);
    wide.type.shape.back() = size;
    wide.name += ".padded";
    const ValueId made = g_.add_value(std::move(wide));
    attention.outputs[0] = made;
    if (!in_weights) {
      const Region cut{shape(y), dense_strides(shape(made)), 0};
      Value seen = g_.at(y);
      seen.name += ".cut";
      const ValueId view = g_.add_value(std::move(seen));
      after.push_back(view_node(made, view, cut));
      after.push_back(
          {.name = layer_name(g_, attention.name + ".cut"), .op = "copy", .inputs = {view}, .outputs = {y}});
      return;
    }
    std::map<Shape, ValueId> views;
    for (const StorageRead& r : reads) {
      Node& layer = g_.nodes[r.node];
      Shape rows = shape(layer.inputs[0]);
      const int64_t heads = rows.back() / own;
      rows.back() = heads * size;
      auto [it, fresh] = views.emplace(rows, kNoValue);
      if (fresh) {
        Value v = g_.at(made);
        v.name = g_.at(layer.inputs[0]).name + ".padded";
        v.type.shape = rows;
        it->second = g_.add_value(std::move(v));
        after.push_back(view_node(made, it->second, dense_region(rows)));
      }
      pad_cols(g_, layer, padded_groups(heads, own, size), PaddedNumbers::kMade);
      layer.inputs[0] = it->second;
    }
  }
  // Whether layers that get columns of zeros run with these; rows of their own may be padded later.
  bool readers_run(ValueId y, int64_t size) const {
    for (const StorageRead& r : reads_of(g_, m_.producers(), y)) {
      if (!takes_columns(r, y)) continue;
      const Node& layer = g_.nodes[r.node];
      Problem p = problem_of(g_, m_.producers(), layer);
      const auto widen = [](Operand& o, int64_t cols) {
        o.shape.back() = cols;
        o = dense_operand(o.shape, o.type, o.constant);
      };
      const int64_t k = p.in[0].shape.back() / shape(y).back() * size, n = rounded_up(p.in[1].shape[0], 16);
      p.in[1].shape[0] = n;
      widen(p.in[0], k), widen(p.in[1], k), widen(p.out[0], n);
      for (const Step& s : layer.then.steps) {
        if (s.operand >= 0) widen(p.in[static_cast<size_t>(s.operand)], n);
      }
      if (!runnable(p, target_)) return false;
    }
    return true;
  }
  bool takes_columns(const StorageRead& r, ValueId y) const {
    const Node& layer = g_.nodes[r.node];
    const Place p = m_.place(layer.inputs[r.input]);
    // Moments of x's rows count its columns.
    return r.input == 0 && is_matmul_layer(g_, layer) && can_pad(g_, layer) &&
           layer.then.find(StepKind::normalise) == nullptr && p.region.whole() &&
           elements(p.region.shape) == elements(shape(y)) && p.region.shape.back() % shape(y).back() == 0;
  }

  Graph& g_;
  const Arch target_;
  const Matcher m_;
};

}  // namespace

Status pad_heads(Graph& graph, Arch target) {
  while (HeadPadder(graph, target).pad_one()) TS_TRY(drop_dead(graph));
  return {};
}

}  // namespace tessera
