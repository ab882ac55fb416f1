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

int64_t rounded_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

class HeadPadder {
 public:
  HeadPadder(Graph& graph, Arch target) : g_(graph), target_(target), m_(graph) {}

  bool pad_one() {
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const Node& node = g_.nodes[n];
      if (node.op != "attention" || runnable(g_, m_.producers(), node, target_)) continue;
      if (const auto how = find(node)) {
        rewrite(n, *how);
        return true;
      }
    }
    return false;
  }

 private:
  const Shape& shape(ValueId v) const { return g_.at(v).type.shape; }

  // The smallest heads that a kernel takes, padded in weights where that can be.
  std::optional<HeadOperands> find(const Node& node) const {
    if (std::any_of(node.inputs.begin(), node.inputs.begin() + 3, [&](ValueId v) { return shape(v).size() != 4; }))
      return std::nullopt;
    for (const int64_t unit : {1, 8, 16, 32}) {
      for (const bool in_weights : {true, false}) {
        const HeadOperands how = forms(node, unit, in_weights);
        if (runnable(problem(node, how), target_) && copies_run(node, how)) return how;
      }
    }
    return std::nullopt;
  }

  HeadOperands forms(const Node& node, int64_t unit, bool in_weights) const {
    HeadOperands how;
    for (size_t i = 0; i < 3; ++i) {
      const int64_t own = shape(node.inputs[i]).back();
      how[i] = {.form = Form::kCopied, .size = rounded_up(own, unit), .region = {}};
      if (!in_weights) continue;
      if (how[i].size == own) how[i].form = Form::kAsItLies;
      if (auto region = in_weight(node, i, how[i].size); region && how[i].size != own)
        how[i] = {Form::kInWeight, how[i].size, *std::move(region)};
    }
    return how;
  }

  // Where the operand lies in the result of a linear layer whose heads have `size` columns each; nothing where it is no
  // such result, or anything but q, k and v of this attention, in whole heads of one size, reads it.
  std::optional<Region> in_weight(const Node& node, size_t operand, int64_t size) const {
    const ValueId base = m_.place(node.inputs[operand]).base;
    const Node* layer = m_.maker(base);
    const int64_t own = shape(node.inputs[operand]).back();
    if (layer == nullptr || !can_pad(g_, *layer) || !keeps_zeros(layer->then) || layer->outputs.size() != 1 ||
        own == 0 || shape(base).back() % own != 0 || is_output(g_, m_.producers(), base))
      return std::nullopt;
    for (const StorageRead& r : reads_of(g_, m_.producers(), base)) {
      if (&g_.nodes[r.node] != &node || r.input > 2 || !in_heads(node.inputs[r.input], own, size)) return std::nullopt;
    }
    return in_heads(node.inputs[operand], own, size);
  }
  std::optional<Region> in_heads(ValueId value, int64_t own, int64_t size) const {
    const Place p = m_.place(value);
    if (shape(value).back() != own || p.region.strides.back() != 1) return std::nullopt;
    const int64_t heads = elements(shape(p.base)) / own;
    auto region = composed({{heads, own}, {size, 1}, 0}, p.region);
    if (region) region->shape.back() = size;
    return region;
  }

  Problem problem(const Node& node, const HeadOperands& how) const {
    Problem p = problem_of(g_, m_.producers(), node);
    for (size_t i = 0; i < 3; ++i) {
      Shape padded = p.in[i].shape;
      padded.back() = how[i].size;
      if (how[i].form == Form::kInWeight) {
        p.in[i].shape = padded, p.in[i].strides = how[i].region.strides;
      } else if (how[i].form == Form::kCopied) {
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
      Node copy;
      pad_value(trial, value, how[i].size, value, node.name, copy);
      producers.resize(trial.values.size(), -1);
      if (!runnable(trial, producers, copy, target_)) return false;
    }
    return true;
  }

  void rewrite(size_t at, const HeadOperands& how) {
    const Node old = g_.nodes[at];
    Node node = old;
    std::vector<Node> before, after;
    std::map<std::pair<ValueId, int64_t>, ValueId> made;  // k and v may be one value
    std::set<ValueId> padded;
    for (size_t i = 0; i < 3; ++i) {
      if (how[i].form == Form::kAsItLies) continue;
      auto [it, fresh] = made.emplace(std::pair(old.inputs[i], how[i].size), kNoValue);
      if (fresh) {
        const bool in_weight = how[i].form == Form::kInWeight;
        it->second = in_weight ? view_padded(old.inputs[i], how[i], padded, before) : copied(old, i, how[i], before);
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
      }
    }
    g_.nodes = std::move(nodes);
  }

  ValueId view_padded(ValueId value, const HeadOperand& how, std::set<ValueId>& padded, std::vector<Node>& before) {
    const ValueId base = m_.place(value).base;
    const int64_t own = shape(value).back();
    if (padded.insert(base).second) {
      Node& layer = g_.nodes[static_cast<size_t>(m_.producers()[static_cast<size_t>(base)])];
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
    before.push_back(view_node(base, view, how.region));
    return view;
  }

  ValueId copied(const Node& attention, size_t operand, const HeadOperand& how, std::vector<Node>& before) {
    static const char* kNames[] = {"q", "k", "v"};
    const ValueId value = attention.inputs[operand];
    const Place p = m_.place(value);
    if (g_.at(p.base).constant) return pad_constant(g_, p.base, p.region, how.size, PaddedNumbers::kMade);
    Node copy;
    const ValueId padded =
        pad_value(g_, source_of(value, how.size), how.size, value, cat(attention.name, ".", kNames[operand]), copy);
    before.push_back(std::move(copy));
    return padded;
  }

  // A copy that nobody else reads (q on its way to codes) pads, too.
  ValueId source_of(ValueId value, int64_t size) const {
    const Node* copy = m_.made_by(value, "copy");
    if (copy == nullptr || reads_of(g_, m_.producers(), value).size() != 1 || is_output(g_, m_.producers(), value) ||
        g_.at(m_.place(copy->inputs[0]).base).constant)
      return value;
    Graph trial = g_;
    Node once;
    pad_value(trial, copy->inputs[0], size, value, "", once);
    std::vector<int> producers = m_.producers();
    producers.resize(trial.values.size(), -1);
    return runnable(trial, producers, once, target_) ? copy->inputs[0] : value;
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
  bool takes_columns(const StorageRead& r, ValueId y) const {
    const Node& layer = g_.nodes[r.node];
    const Place p = m_.place(layer.inputs[r.input]);
    // Moments of x's rows count its columns.
    return r.input == 0 && can_pad(g_, layer) && layer.then.find(StepKind::normalise) == nullptr && p.region.whole() &&
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
