// SPDX-License-Identifier: Apache-2.0
#include "lower/pad_products.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "ir/layer_ops.h"
#include "lower/pad_layer.h"
#include "ops/runnable.h"
#include "rewrite/drop_dead.h"
#include "rewrite/edit/match.h"
#include "rewrite/materialise.h"
#include "rewrite/unfuse.h"
#include "steps/unary.h"

namespace tessera {
namespace {

constexpr int64_t kUnit16 = 8;  // 16-bit numbers in 16 bytes, the unit of TMA

int64_t rounded_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// What a padded layer's extra columns hold is multiplied by zeros: it must be a number.
bool is_finite_at_zero(const Program& then) {
  return std::all_of(then.steps.begin(), then.steps.end(),
                     [](const Step& s) { return !names_function(s.kind) || std::isfinite(apply(s.fn, 0)); });
}

// Pads one layer of a graph of its own, which is taken where kernels then run it.
class LayerPadder {
 public:
  LayerPadder(const Graph& graph, size_t node, Arch target, Element carrier, PaddedNumbers numbers)
      : was_(graph), g_(graph), at_(node), target_(target), carrier_(carrier), numbers_(numbers), m_(graph) {}

  // The graph with rows of x (of a convolution: its channels) of k numbers and n results; nothing where a kernel is
  // missing for what is put around the layer.
  std::optional<Graph> pad(int64_t k, int64_t n) {
    layer_ = g_.nodes[at_];
    const Shape w = shape(layer_.inputs[1]);
    const ValueId x = layer_.inputs[0];
    if (const int64_t own = shape(x).back(); k > own) {
      layer_.inputs[0] = padded_rows(x, k);
      if (layer_.inputs[0] == kNoValue) return std::nullopt;
      pad_cols(g_, layer_, padded_groups(w[1] / own, own, k), numbers_);
    }
    if (n > w[0]) {
      pad_rows(g_, layer_, padded_groups(1, w[0], n), numbers_);
      if (!widen_residuals(n)) return std::nullopt;
      widen_result(n);
    }
    insert();
    const std::vector<int> producers = g_.producers();
    for (const Node& node : g_.nodes) {
      if (fresh_.contains(node.name) && !runnable(g_, producers, node, target_)) return std::nullopt;
    }
    return std::move(g_);
  }
  // Where the layer is in that graph.
  size_t place() const { return at_ + before_; }

 private:
  const Shape& shape(ValueId v) const { return g_.at(v).type.shape; }
  // Values that this object added have no producers in m_.
  bool known(ValueId v) const { return static_cast<size_t>(v) < m_.producers().size(); }

  // The result of a padded layer whose rows, less the zeros at their ends, v is in some grouping.
  std::optional<ValueId> wider(ValueId v, int64_t cols) const {
    if (!known(v)) return std::nullopt;
    const Node* copy = m_.made_by(v, "copy");
    if (copy != nullptr && g_.at(v).type.quant == g_.at(copy->inputs[0]).type.quant &&
        g_.at(v).scale == g_.at(copy->inputs[0]).scale)
      v = copy->inputs[0];
    const Place p = m_.place(v);
    const Node* layer = m_.maker(p.base);
    if (layer == nullptr || !multiplies_weights(layer->op) || shape(p.base).back() != cols || p.region.offset != 0 ||
        !is_finite_at_zero(layer->then))
      return std::nullopt;
    const int64_t own = shape(v).back();
    const auto places = read_places(layer->attrs, kPaddedRows, own, cols);
    const RowView rows = as_rows(p.region.shape, p.region.strides);
    const bool all = rows.uniform && rows.cols == own && rows.rows * cols == elements(shape(p.base)) &&
                     (rows.rows == 1 || rows.row_stride == cols);
    return places && *places == padded_groups(1, own, cols) && all ? std::optional(p.base) : std::nullopt;
  }

  // `base`, a padded layer's result, in v's grouping of rows.
  ValueId regrouped(ValueId base, ValueId v) {
    Shape rows = shape(v);
    rows.back() = shape(base).back();
    if (rows == shape(base)) return base;
    Value seen = g_.at(base);
    seen.name = g_.at(v).name + ".padded";
    seen.type.shape = rows;
    const ValueId view = g_.add_value(std::move(seen));
    before_nodes_.push_back(view_node(base, view, dense_region(rows)));
    return view;
  }

  // One that a layer before has padded alike.
  ValueId padded_before(ValueId v, int64_t cols) const {
    for (size_t n = 0; n < at_; ++n) {
      const Node& node = g_.nodes[n];
      if (node.outputs.empty() || (node.op != "concat" && node.op != "copy")) continue;
      const Value& y = g_.at(node.outputs[0]);
      Shape want = shape(v);
      want.back() = cols;
      if (y.name == g_.at(v).name + ".padded" && y.type == Type{want, g_.at(v).type.quant} && y.scale == g_.at(v).scale)
        return node.outputs[0];
    }
    return kNoValue;
  }

  ValueId add_padding(ValueId from, int64_t cols, ValueId like) {
    const ValueId padded = pad_value(g_, from, cols, like, layer_.name, before_nodes_);
    Node& made = before_nodes_.back();
    std::string name = made.name;  // not in the graph yet: another one of this layer may be called so
    for (int i = 2; fresh_.contains(name); ++i) name = cat(made.name, "_", i);
    made.name = name;
    fresh_.insert(name);
    return padded;
  }
  bool pads_at_once(ValueId from, int64_t cols, ValueId like) const {
    Graph trial = g_;
    std::vector<Node> made;
    pad_value(trial, from, cols, like, layer_.name, made);
    std::vector<int> producers = g_.producers();
    producers.resize(trial.values.size(), -1);
    return runnable(trial, producers, made.back(), target_);
  }

  // A linear layer reads rows, whatever axes they have; a convolution's axes are its image's.
  bool lies_alike(const Shape& from, const Shape& x) const {
    return layer_.op != "conv2d" || from.size() != x.size() || from == x;
  }
  // v with zeros behind its rows; kNoValue where nothing makes it.
  ValueId padded_rows(ValueId v, int64_t cols) {
    if (const auto base = wider(v, cols)) return regrouped(*base, v);
    if (const ValueId known = padded_before(v, cols); known != kNoValue) return known;
    const Node* gather = gather_of(m_, v);
    if (gather != nullptr && lies_alike(shape(gather->inputs[0]), shape(v)) && pads_at_once(gather->inputs[0], cols, v))
      return add_padding(gather->inputs[0], cols, v);
    const Node* copy = m_.made_by(v, "copy");
    const ValueId plain = copy != nullptr ? copy->inputs[0] : kNoValue;
    if (plain != kNoValue) {
      if (const auto base = wider(plain, cols)) return add_padding(regrouped(*base, plain), cols, v);
      if (const ValueId made = made_by_layer(v, plain, cols); made != kNoValue) return made;
      const bool in_its_axes = shape(plain).size() >= shape(v).size();
      if (in_its_axes && pads_at_once(plain, cols, v)) return add_padding(plain, cols, v);
    }
    if (pads_at_once(v, cols, v)) return add_padding(v, cols, v);
    // No kernel pads codes of this type: it is done before they are made.
    const bool gathers_rows = gather != nullptr && !g_.at(gather->inputs[0]).type.quant.scaled() &&
                              shape(gather->inputs[0]).back() == shape(v).back();
    const bool moves_codes = plain != kNoValue && g_.at(plain).type.quant.scaled();
    const ValueId unrounded = gathers_rows                        ? gather->inputs[0]
                              : plain != kNoValue && !moves_codes ? plain
                                                                  : unrounded_of(moves_codes ? plain : v);
    if (unrounded == kNoValue) return kNoValue;
    const ValueId wide = add_padding(unrounded, cols, unrounded);
    return add_padding(regrouped(wide, v), cols, v);
  }

  // What is rounded to v's codes, where the program of its maker does it; a copy does it from now on.
  ValueId unrounded_of(ValueId v) {
    const Place p = m_.place(v);
    const ValueId base = p.base;
    const int maker = m_.producers()[static_cast<size_t>(base)];
    if (maker < 0 || !g_.at(base).type.quant.scaled()) return kNoValue;
    Node& node = g_.nodes[static_cast<size_t>(maker)];
    if (node.then.empty() || node.then.steps.back().kind != StepKind::quantize || node.outputs.size() != 1)
      return kNoValue;
    Value plain = g_.at(base);
    plain.name += ".unrounded";
    plain.type.quant = carrier_;
    plain.scale = plain.scale2 = kNoValue;
    Value seen = plain;
    const ValueId made = g_.add_value(std::move(plain));
    node.outputs[0] = made;
    node.then.steps.pop_back();
    fresh_.insert(node.name);
    Node copy{
        .name = layer_name(g_, g_.at(base).name + ".quantize"), .op = "copy", .inputs = {made}, .outputs = {base}};
    fresh_.insert(copy.name);
    behind_maker_ = {static_cast<size_t>(maker), std::move(copy)};
    if (v == base) return made;
    seen.name = g_.at(v).name + ".unrounded";
    seen.type.shape = shape(v);
    const ValueId view = g_.add_value(std::move(seen));
    before_nodes_.push_back(view_node(made, view, p.region));
    return view;
  }

  // Where a copy makes v's codes of a linear layer's result because the layer could not, and nobody else reads either:
  // with zeros it may make them at once.
  ValueId made_by_layer(ValueId v, ValueId plain, int64_t cols) {
    const Place p = m_.place(plain);
    const int maker = m_.producers()[static_cast<size_t>(p.base)];
    const auto read_once = [&](ValueId of) {
      return reads_of(was_, m_.producers(), of).size() == 1 && !is_output(was_, m_.producers(), of);
    };
    if (maker < 0 || !p.region.whole() || shape(plain).back() != shape(p.base).back() || !read_once(v) ||
        !read_once(p.base))
      return kNoValue;
    static constexpr StepSet kVectorsOnly = {StepKind::normalise, StepKind::bias, StepKind::act, StepKind::scale};
    Graph trial = g_;
    Node layer = trial.nodes[static_cast<size_t>(maker)];
    if (!can_pad(trial, layer) || layer.outputs.size() != 1 || layer.outputs[0] != p.base ||
        !layer.then.within(kVectorsOnly) || !is_finite_at_zero(layer.then))
      return kNoValue;
    pad_rows(trial, layer, padded_groups(1, shape(plain).back(), cols), numbers_);
    layer.then.steps.push_back({StepKind::quantize});
    Value& y = trial.at(p.base);
    y.name += ".padded";
    y.type.shape.back() = cols;
    y.type.quant = g_.at(v).type.quant;
    y.scale = g_.at(v).scale, y.scale2 = g_.at(v).scale2;
    std::vector<int> producers = m_.producers();
    producers.resize(trial.values.size(), -1);
    if (!runnable(trial, producers, layer, target_)) return kNoValue;
    g_ = std::move(trial);
    g_.nodes[static_cast<size_t>(maker)] = std::move(layer);
    return regrouped(p.base, v);
  }

  bool widen_residuals(int64_t n) {
    for (const Step& s : layer_.then.steps) {
      if (operand_of(s.kind) != StepOperand::kMatrix) continue;
      ValueId& operand = layer_.inputs[static_cast<size_t>(s.operand)];
      if (g_.at(operand).constant) {
        operand = pad_constant(g_, operand, dense_region(shape(operand)), n, numbers_);
        continue;
      }
      operand = padded_rows(operand, n);
      if (operand == kNoValue) return false;
    }
    return true;
  }

  // The layer writes n columns; readers see the ones before them through views, or read a copy of those.
  void widen_result(int64_t n) {
    const ValueId y = layer_.outputs[0];
    Value wide = g_.at(y);
    wide.name += ".padded";
    wide.type.shape.back() = n;
    const ValueId made = g_.add_value(std::move(wide));
    layer_.outputs[0] = made;
    const Region cut{shape(y), dense_strides(shape(made)), 0};
    const bool output = is_output(g_, m_.producers(), y);
    std::map<ValueId, ValueId> seen;
    bool copied = output;
    for (const StorageRead& r : reads_of(g_, m_.producers(), y)) {
      ValueId& in = g_.nodes[r.node].inputs[r.input];
      const auto region = composed(cut, m_.place(in).region);
      if (!region || !reads_so(r, *region)) {
        copied = true;
        continue;
      }
      auto [it, fresh] = seen.emplace(in, kNoValue);
      if (fresh) it->second = add_view(made, in, *region);
      in = it->second;
    }
    if (!copied) return;
    Value all = g_.at(y);
    all.name += ".cut";
    const ValueId view = g_.add_value(std::move(all));
    after_nodes_.push_back(view_node(made, view, cut));
    const std::string name = layer_name(g_, layer_.name + ".cut");
    fresh_.insert(name);
    after_nodes_.push_back({.name = name, .op = "copy", .inputs = {view}, .outputs = {y}});
  }
  ValueId add_view(ValueId base, ValueId like, const Region& region) {
    Value v = g_.at(like);
    v.name = g_.at(like).name + ".cut";
    const ValueId view = g_.add_value(std::move(v));
    after_nodes_.push_back(view_node(base, view, region));
    return view;
  }
  // Whether the reader takes its operand from there, or is refused anyway.
  bool reads_so(const StorageRead& r, const Region& region) const {
    const Node& reader = was_.nodes[r.node];
    if (!reads_as_it_lies(reader, r.input, region)) return false;
    Problem p = problem_of(was_, m_.producers(), reader);
    const bool ran = runnable(p, target_);
    p.in[r.input].strides = region.strides;
    return !ran || runnable(p, target_);
  }

  void insert() {
    std::vector<Node> nodes;
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (n == at_) {
        before_ = nodes.size() - n + before_nodes_.size();
        for (Node& b : before_nodes_) nodes.push_back(std::move(b));
        nodes.push_back(layer_);
        for (Node& a : after_nodes_) nodes.push_back(std::move(a));
      } else {
        nodes.push_back(std::move(g_.nodes[n]));
        if (behind_maker_ && behind_maker_->first == n) nodes.push_back(std::move(behind_maker_->second));
      }
    }
    g_.nodes = std::move(nodes);
  }

  const Graph& was_;
  Graph g_;
  const size_t at_;
  const Arch target_;
  const Element carrier_;
  const PaddedNumbers numbers_;
  const Matcher m_;
  Node layer_;
  std::vector<Node> before_nodes_, after_nodes_;
  std::optional<std::pair<size_t, Node>> behind_maker_;
  std::set<std::string> fresh_;  // nodes that a kernel must run beside the layer
  size_t before_ = 0;
};

class ProductPadder {
 public:
  ProductPadder(Graph& graph, Arch target, Element carrier) : g_(graph), target_(target), carrier_(carrier) {}

  // From node `from` on; the first layer that was padded.
  std::optional<size_t> pad_one(size_t from) {
    const std::vector<int> producers = g_.producers();
    for (size_t n = from; n < g_.nodes.size(); ++n) {
      const Node& node = g_.nodes[n];
      if (!may_pad(node)) continue;
      if (runnable(g_, producers, node, target_)) {
        if (node.op == "matmul" && gathers_odd_rows(n, producers) && pad_for_own_kernel(n)) return n;
        continue;
      }
      // Codes that the layer makes itself are rounded once.
      const bool codes = !node.then.empty() && node.then.steps.back().kind == StepKind::quantize;
      if (codes && pad(n, false)) return n;
      if (runs_unfused(g_, n, target_, carrier_)) continue;
      for (const bool unfused : kForms) {
        if (pad(n, unfused)) return n;
      }
    }
    return std::nullopt;
  }

  bool would_pad(size_t n) const {
    if (!may_pad(g_.nodes[n])) return false;
    return std::any_of(std::begin(kForms), std::end(kForms),
                       [&](bool unfused) { return sizes(n, unfused).has_value(); });
  }

 private:
  static constexpr bool kForms[] = {false, true};  // with its whole program, and as unfuse leaves it

  bool may_pad(const Node& node) const {
    // Scales of blocks that are made while running have a shape of their own, which no kernel pads.
    const QuantType& x = g_.at(node.inputs[0]).type.quant;
    return multiplies_weights(node.op) && can_pad(g_, node) &&
           (!x.dynamic || x.scale.granularity == Granularity::kToken) && node.outputs.size() == 1 &&
           node.then.find(StepKind::normalise) == nullptr;
  }

  // 16-bit rows that a copy gathers for this layer alone and that are no units of 16 bytes: a library runs it as it is.
  bool gathers_odd_rows(size_t n, const std::vector<int>& producers) const {
    const ValueId x = g_.nodes[n].inputs[0];
    const Type& type = g_.at(x).type;
    if (type.quant.scaled() || info(type.quant.element).bits != 16 || type.shape.back() % kUnit16 == 0) return false;
    const Matcher m(g_);
    const Node* gather = gather_of(m, x);
    return gather != nullptr && reads_of(g_, producers, gather->outputs[0]).size() == 1 &&
           !is_output(g_, producers, gather->outputs[0]);
  }

  bool pad_for_own_kernel(size_t n) {
    const Shape w = g_.at(g_.nodes[n].inputs[1]).type.shape;
    const int64_t k = rounded_up(w[1], kUnit16);
    LayerPadder padder(g_, n, target_, carrier_, PaddedNumbers::kLeftOut);
    const auto trial = padder.pad(k, w[0]);
    if (runs_on_own(g_, n, target_) || !trial || !runs_on_own(*trial, padder.place(), target_)) return false;
    g_ = *LayerPadder(g_, n, target_, carrier_, PaddedNumbers::kMade).pad(k, w[0]);
    return true;
  }

  bool pad(size_t n, bool unfused) {
    const auto found = sizes(n, unfused);
    if (!found) return false;
    g_ = *LayerPadder(g_, n, target_, carrier_, PaddedNumbers::kMade).pad(found->first, found->second);
    return true;
  }

  // Of K (of a convolution: channels) and of results, with which the layer runs.
  std::optional<std::pair<int64_t, int64_t>> sizes(size_t n, bool unfused) const {
    const Shape w = g_.at(g_.nodes[n].inputs[1]).type.shape;
    const int64_t own = g_.at(g_.nodes[n].inputs[0]).type.shape.back();
    for (const int64_t k : std::set<int64_t>{own, rounded_up(own, 8), rounded_up(own, 16)}) {
      for (const int64_t unit : {1, 8, 16}) {
        const int64_t rows = rounded_up(w[0], unit);
        if ((k != own || rows != w[0]) && runs(n, k, rows, unfused)) return std::pair{k, rows};
      }
    }
    return std::nullopt;
  }

  bool runs(size_t n, int64_t k, int64_t rows, bool unfused) const {
    LayerPadder padder(g_, n, target_, carrier_, PaddedNumbers::kLeftOut);
    const auto trial = padder.pad(k, rows);
    if (!trial) return false;
    const size_t at = padder.place();
    return unfused ? runs_unfused(*trial, at, target_, carrier_)
                   : runnable(*trial, trial->producers(), trial->nodes[at], target_);
  }

  Graph& g_;
  const Arch target_;
  const Element carrier_;
};

}  // namespace

bool runs_padded(const Graph& graph, size_t layer, Arch target, Element carrier) {
  Graph trial = graph;
  return ProductPadder(trial, target, carrier).would_pad(layer);
}

Status pad_products(Graph& graph, Arch target, Element carrier) {
  for (size_t from = 0;;) {
    const auto padded = ProductPadder(graph, target, carrier).pad_one(from);
    if (!padded) return {};
    from = *padded;  // what lies before it has not changed
    TS_TRY(drop_dead(graph));
  }
}

}  // namespace tessera
