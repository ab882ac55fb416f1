// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>

#include "ir/gather_codes.h"
#include "ir/layer_ops.h"
#include "ops/attention/attention.h"
#include "rewrite/edit/match.h"
#include "rewrite/recognise/recognise.h"
#include "types/codes.h"
#include "types/quantize_array.h"

namespace tessera {
namespace {

bool is_plain_float(const QuantType& type) { return !type.scaled() && info(type.element).kind == ElementKind::kFloat; }

// Part (a): constants with scales that a copy decodes for a linear layer.
class Weights {
 public:
  explicit Weights(Graph& graph) : g_(graph), m_(graph) {}

  Status run() {
    for (Node& n : g_.nodes) {
      if (!multiplies_weights(n.op) || n.inputs.size() < 2) continue;
      TS_TRY(take_weight(n).at(cat("layer ", n.name)));
    }
    return {};
  }

 private:
  struct Source {
    ValueId constant;
    Region region;  // of its codes, which in this order are the weight's; a convolution's may have more axes
  };

  // The constant that v's numbers are decoded from, through views and copies that only move.
  std::optional<Source> source_of(ValueId v) const {
    Place p = m_.place(v);
    for (;;) {
      const Node* copy = m_.made_by(p.base, "copy");
      if (copy == nullptr || !is_plain_float(g_.at(p.base).type.quant)) return std::nullopt;
      const Value& from = g_.at(copy->inputs[0]);
      if (from.constant && from.type.quant.scaled()) return Source{copy->inputs[0], p.region};
      if (from.type.quant.scaled() || !is_plain_float(from.type.quant)) return std::nullopt;
      const Place source = m_.place(copy->inputs[0]);
      const auto straight = composed(source.region, p.region);
      // A copy that only regroups its rows: a kernel's pixels and channels, turned around, as one axis.
      const bool regrouped = p.region.whole() && elements(p.region.shape) == elements(source.region.shape);
      if (!straight && !regrouped) return std::nullopt;
      p = {source.base, straight ? *straight : source.region};
    }
  }

  Status take_weight(Node& n) {
    if (const auto left = source_of(n.inputs[0]))
      return bad_input(cat("'", g_.at(left->constant).name,
                           "' is the left operand of the product; a quantized weight must be the right one"));
    const auto source = source_of(n.inputs[1]);
    if (!source) return {};
    const std::string name = g_.at(source->constant).name;
    const Shape matrix = g_.at(n.inputs[1]).type.shape;
    if (matrix.size() != 2)
      return bad_input(cat("'", name, "' has ", matrix.size(), " axes as a weight; a matrix is accepted"));
    auto [it, fresh] = made_.emplace(
        std::tuple(source->constant, matrix, source->region.shape, source->region.strides, source->region.offset),
        kNoValue);
    if (fresh) {
      Result<ValueId> w = reorder(*source, matrix);
      if (!w.ok()) return w.status().at(cat("weight '", name, "'"));
      it->second = *w;
    }
    n.inputs[1] = it->second;
    n.asked = "imported";
    return {};
  }

  // The codes as [n, k], a row per output, and the scales as that order wants them.
  Result<ValueId> reorder(const Source& source, const Shape& matrix) {
    const Region& r = source.region;
    const Value old = g_.at(source.constant);
    const QuantType& type = old.type.quant;
    const int64_t cols = matrix[1];
    ValueId scale = old.scale;
    if (r.whole() && matrix == old.type.shape) return source.constant;
    if (type.scale.granularity != Granularity::kTensor) {
      std::vector<int64_t> from(static_cast<size_t>(scale_count(type.scale, matrix[0], cols)), -1);
      const int64_t old_cols = cols_of(old.type.shape);
      bool fits = true;
      for_each_element(r, [&](int64_t to, int64_t at) {
        int64_t& index = from[static_cast<size_t>(scale_index(type.scale, to / cols, to % cols, cols))];
        const int64_t here = scale_index(type.scale, at / old_cols, at % old_cols, old_cols);
        if (index < 0) index = here;
        fits = fits && index == here;
      });
      if (!fits) {
        const bool blocks = type.scale.granularity == Granularity::kBlock;
        return bad_input(cat("its ", blocks ? cat("blocks of ", type.scale.block) : "scales",
                             " run along the outputs' axis or across it; ",
                             blocks ? "blocks along the inputs (k)" : "one scale per output",
                             " can be multiplied with"));
      }
      const Value& numbers = g_.at(scale);
      const int bits = info(type.scale.element).bits;
      Buffer moved(static_cast<size_t>(packed_bytes(type.scale.element, static_cast<int64_t>(from.size()))));
      for (size_t i = 0; i < from.size(); ++i)
        set_code(moved.data(), bits, static_cast<int64_t>(i), code_at(numbers.data.data(), bits, from[i]));
      const std::string scale_name = numbers.name;
      scale = g_.add_constant(scale_name, Type{{static_cast<int64_t>(from.size())}, type.scale.element},
                              Bytes::own(std::move(moved)));
    }
    const ValueId id = g_.add_constant(old.name, Type{matrix, type},
                                       Bytes::own(gather_codes(old.data.data(), info(type.element).bits, r)));
    g_.at(id).scale = scale;
    g_.at(id).scale2 = old.scale2;
    return id;
  }

  Graph& g_;
  Matcher m_;
  std::map<std::tuple<ValueId, Shape, Shape, Shape, int64_t>, ValueId> made_;
};

// Part (b): values that are rounded to codes and decoded again on their way to what multiplies them. Each walk follows
// the order of the nodes.
class Activations {
 public:
  explicit Activations(Graph& graph) : g_(graph), m_(graph), carried_(graph.values.size()) {}

  Status run() {
    for (size_t n = 0; n < g_.nodes.size(); ++n) follow(n);
    for (const auto& [use, pair] : met_) {
      if (takes(use)) accepted_.insert(use);
    }
    find_needed();
    return rewrite();
  }

 private:
  struct Pair {
    ValueId x, decoded;  // before and after
    QuantType type;
    ValueId scale;  // the number that goes with the type: the first level, or the second where the first is dynamic
  };
  struct Use {
    size_t node, operand;
    auto operator<=>(const Use&) const = default;
  };
  struct Carried {
    int pair = -1;     // whose numbers the value holds
    bool rows = true;  // whole rows of them, each in its order
  };

  std::optional<Pair> pair_of(const Node& n) const {
    if (n.op != "copy" || !is_plain_float(g_.at(n.outputs[0]).type.quant)) return std::nullopt;
    const Value& q = g_.at(n.inputs[0]);
    const Node* encode = m_.made_by(n.inputs[0], "copy");
    if (q.constant || !q.type.quant.scaled() || encode == nullptr ||
        !is_plain_float(g_.at(encode->inputs[0]).type.quant))
      return std::nullopt;
    return Pair{encode->inputs[0], n.outputs[0], q.type.quant, q.type.quant.dynamic ? q.scale2 : q.scale};
  }

  // A view or a plain copy: the same numbers in another place.
  bool passes_on(const Node& n) const {
    return n.op == "view" || (n.op == "copy" && n.then.empty() && is_plain_float(g_.at(n.outputs[0]).type.quant) &&
                              g_.at(n.inputs[0]).type.quant == g_.at(n.outputs[0]).type.quant);
  }

  bool keeps_rows(const Node& n) const {
    const Shape &from = g_.at(n.inputs[0]).type.shape, &to = g_.at(n.outputs[0]).type.shape;
    const int64_t cols = cols_of(from);
    if (cols == 0 || cols != cols_of(to)) return false;
    if (n.op == "copy") return true;
    const Shape strides = n.attrs.list("strides");
    bool whole = (strides.empty() || strides.back() == 1 || cols == 1) && n.attrs.integer("offset") % cols == 0;
    for (size_t i = 0; i + 1 < strides.size(); ++i) whole = whole && strides[i] % cols == 0;
    return whole;
  }

  Carried& carried(ValueId v) { return carried_[static_cast<size_t>(v)]; }

  // What the node's result holds, or which pairs it meets.
  void follow(size_t at) {
    const Node& n = g_.nodes[at];
    if (const auto pair = pair_of(n)) {
      carried(pair->decoded).pair = static_cast<int>(pairs_.size());
      pairs_.push_back(*pair);
      return;
    }
    if (passes_on(n)) {
      const Carried& from = carried(n.inputs[0]);
      carried(n.outputs[0]) = {from.pair, from.rows && keeps_rows(n)};
      return;
    }
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      if (n.inputs[i] == kNoValue || carried(n.inputs[i]).pair < 0) continue;
      const Carried& c = carried(n.inputs[i]);
      const QuantType& type = pairs_[static_cast<size_t>(c.pair)].type;
      if (type.scale.granularity == Granularity::kTensor || (type.dynamic && c.rows)) met_[{at, i}] = c.pair;
    }
  }

  bool is_met(size_t node, size_t operand) const {
    const auto it = met_.find({node, operand});
    return it != met_.end() && pairs_[static_cast<size_t>(it->second)].type.scale.granularity == Granularity::kTensor;
  }

  bool is_met_in_attention(size_t node, size_t operand) const {
    const auto it = met_.find({node, operand});
    return it != met_.end() && is_attention_operand(pairs_[static_cast<size_t>(it->second)].type);
  }

  // Whether the product itself is in codes: all of its operands are, in types that it multiplies.
  bool takes(const Use& use) const {
    const Node& n = g_.nodes[use.node];
    if (n.op == "attention")
      return use.operand < 3 && is_met_in_attention(use.node, 0) && is_met_in_attention(use.node, 1) &&
             is_met_in_attention(use.node, 2);
    if (!multiplies_weights(n.op) || use.operand > 1) return false;
    const Value& w = g_.at(n.inputs[1]);
    if (w.constant) return w.type.quant.scaled() && use.operand == 0;
    return is_met(use.node, 0) && is_met(use.node, 1);
  }

  // Values on the way from a pair to a product that takes its type.
  void find_needed() {
    needed_.assign(g_.values.size(), false);
    for (size_t n = g_.nodes.size(); n-- > 0;) {
      const Node& node = g_.nodes[n];
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const ValueId v = node.inputs[i];
        if (v == kNoValue || carried(v).pair < 0) continue;
        if (accepted_.contains({n, i}) || (passes_on(node) && needed_[static_cast<size_t>(node.outputs[0])]))
          needed_[static_cast<size_t>(v)] = true;
      }
    }
  }

  // Products read the numbers before rounding and say in which type. What lies between is made once more for them;
  // readers of any other kind keep the rounded numbers.
  Status rewrite() {
    std::map<ValueId, Place> fresh;  // what stands for a value that is needed before rounding
    std::vector<Node> nodes;
    for (const Pair& p : pairs_) fresh[p.decoded] = m_.place(p.x);
    std::map<ValueId, ValueId> stands;
    for (const Pair& p : pairs_) stands[p.decoded] = p.x;
    for (size_t at = 0; at < g_.nodes.size(); ++at) {
      Node& n = g_.nodes[at];
      for (size_t i = 0; i < n.inputs.size(); ++i) {
        if (!accepted_.contains({at, i})) continue;
        const Pair& pair = pairs_[static_cast<size_t>(met_.at({at, i}))];
        n.inputs[i] = stands.at(n.inputs[i]);
        n.attrs.set(cat("type.", i), to_string(pair.type));
        if (pair.scale != kNoValue) n.attrs.set(cat("scale.", i), g_.numbers(pair.scale)[0]);
      }
      const bool again = passes_on(n) && stands.contains(n.inputs[0]) && needed_[static_cast<size_t>(n.outputs[0])];
      nodes.push_back(n);
      if (!again) continue;
      Node clone = n;
      clone.inputs = {stands.at(n.inputs[0])};
      clone.outputs = {g_.add_value(Value(g_.at(n.outputs[0])))};
      Place place{clone.outputs[0], dense_region(g_.at(n.outputs[0]).type.shape)};
      if (n.op == "view") place = rebase(clone, fresh.at(n.inputs[0]), nodes);
      stands[n.outputs[0]] = clone.outputs[0];
      fresh[n.outputs[0]] = place;
      nodes.push_back(std::move(clone));
    }
    g_.nodes = std::move(nodes);
    return {};
  }

  // The view as one of the storage that its input lies in; where no strides say it, of a dense copy.
  Place rebase(Node& view, const Place& input, std::vector<Node>& nodes) {
    const Region region{g_.at(view.outputs[0]).type.shape, view.attrs.list("strides"), view.attrs.integer("offset")};
    Place place{input.base, region};
    if (const auto straight = composed(input.region, region)) {
      place.region = *straight;
    } else {
      Value dense = g_.at(view.inputs[0]);
      dense.name += ".dense";
      place.base = g_.add_value(std::move(dense));
      nodes.push_back({.name = g_.at(place.base).name,
                       .op = "copy",
                       .inputs = view.inputs,
                       .outputs = {place.base},
                       .attrs = {},
                       .then = {},
                       .role = {},
                       .asked = {}});
    }
    view.inputs = {place.base};
    view.attrs.set("strides", place.region.strides);
    view.attrs.set("offset", place.region.offset);
    return place;
  }

  Graph& g_;
  const Matcher m_;
  std::vector<Carried> carried_;
  std::vector<Pair> pairs_;
  std::map<Use, int> met_;
  std::set<Use> accepted_;
  std::vector<bool> needed_;
};

// What is left: constants with scales that no layer multiplies with become the numbers that they stand for.
void decode_constants(Graph& g) {
  for (const Node& n : g.nodes) {
    if (n.op != "copy" || !n.then.empty() || !is_plain_float(g.at(n.outputs[0]).type.quant)) continue;
    const Value codes = g.at(n.inputs[0]);
    if (!codes.constant || !codes.type.quant.scaled()) continue;
    if (std::find(g.outputs.begin(), g.outputs.end(), n.outputs[0]) != g.outputs.end()) continue;  // made by a node
    const int64_t count = elements(codes.type.shape), cols = cols_of(codes.type.shape);
    std::vector<float> numbers(static_cast<size_t>(count));
    dequantize_array(codes.type.quant, codes.data.data(), g.at(codes.scale).data.data(),
                     codes.scale2 == kNoValue ? nullptr : g.at(codes.scale2).data.data(), cols == 0 ? 0 : count / cols,
                     cols, numbers.data());
    g.replace_uses(n.outputs[0], g.add_constant(codes.name, codes.type.shape, numbers));
  }
}

}  // namespace

Status recognise_qdq(Graph& graph) {
  TS_TRY(Weights(graph).run());
  TS_TRY(Activations(graph).run());
  decode_constants(graph);
  return {};
}

}  // namespace tessera
