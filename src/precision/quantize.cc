// SPDX-License-Identifier: Apache-2.0
#include "precision/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/refused_layers.h"
#include "ir/derived_constants.h"
#include "op/op.h"
#include "ops/matmul/matmul.h"
#include "ops/ops.h"
#include "ops/runnable.h"
#include "precision/give_carrier.h"
#include "precision/roles.h"
#include "rewrite/unfuse.h"
#include "types/quantize_array.h"

namespace tessera {
namespace {

// A read that wants codes of a type of its own.
struct Ask {
  size_t node, input;
  QuantType type;
  std::optional<float> scale;  // static scale (of the last level that is not made while running), where it has one
};

// Reads of one storage that want the same codes.
struct Codes {
  QuantType type;
  std::optional<float> scale;
  auto key() const { return std::pair(to_string(type), std::bit_cast<uint32_t>(scale.value_or(0))); }
};

// A read of a constant's codes.
struct Learnt {
  size_t node, input;
  ValueId codes;
};

class Quantizer {
 public:
  Quantizer(Graph& graph, const QuantizeOptions& options) : g_(graph), options_(options) {}

  Status run() {
    TS_ASSIGN(choices_, choose_precisions(g_, options_));
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (choices_.layers[n].precision != nullptr) TS_TRY(settle_layer(n));
    }
    for (size_t n = 0; n < g_.nodes.size(); ++n) TS_TRY(settle_inputs(n));
    if (!failures_.empty()) {
      std::string text;
      for (const RefusedLayer& f : failures_) {
        for (const Refusal& r : f.refusals) text += cat(text.empty() ? "" : "\n", "layer ", f.layer, ": ", r.reason);
      }
      return refused(std::move(text), std::move(failures_));
    }
    if (options_.promoted &&
        std::none_of(g_.nodes.begin(), g_.nodes.end(), [](const Node& n) { return n.attrs.has(kPromoted); }))
      return refused("--accumulate promoted: no layer multiplies e4m3, whose sums it is about");
    std::vector<size_t> places;
    const auto has_codes = [&](size_t node, size_t input) {
      const auto here = [&](const auto& a) { return a.node == node && a.input == input; };
      return std::any_of(asks_.begin(), asks_.end(), here) || std::any_of(learnt_.begin(), learnt_.end(), here);
    };
    const CarrierOptions carrier{choices_.carrier, options_.target, settled_, options_.ranges, has_codes};
    TS_TRY(give_carrier(g_, carrier, places));
    for (Ask& a : asks_) a.node = places[a.node];
    for (Learnt& l : learnt_) l.node = places[l.node];
    for (const Learnt& l : learnt_) read_codes(l);
    place_codes();
    return {};
  }

 private:
  // The weight of a linear layer, and what it asks of its input.
  Status settle_layer(size_t index) {
    const Precision& p = *choices_.layers[index].precision;
    const Node& node = g_.nodes[index];
    const ValueId w = g_.nodes[index].inputs[1];
    const QuantType stored = g_.at(w).type.quant;
    // Weights with scales that are not stated by the model were made for this precision (precision/refine.h).
    const bool stated = g_.nodes[index].asked == kImported || g_.nodes[index].attrs.has("type.0");
    const bool keeps = options_.keep_stated || options_.precision == kImported,
               imported = keeps && (stated || stored.scaled());
    const bool sparse = g_.nodes[index].attrs.integer(kSparse24) != 0;
    g_.nodes[index].asked = Asked{imported ? kImported : p.name, sparse}.words();
    if (choices_.layers[index].sparse && !sparse) {
      fail(node, Asked{imported ? kImported : p.name, true}.words(),
           cat("2:4 was asked, and its weight ",
               stored.scaled() ? "has types of its own and is not 2:4" : "is no single matrix",
               "; a recipe's rule with \"sparsity\": \"none\" leaves it dense"));
    }
    if (options_.promoted && (imported ? stored.element : p.weight.element) == Element::e4m3)
      g_.nodes[index].attrs.set(kPromoted, int64_t{1});
    const std::string states = cat("the model states its types (weight ", to_string(stored), ")");
    if (stated && !keeps) {
      fail(node, p.name,
           cat(states, ", and ", p.name, " would round a second time; leave --precision out to take them as they are"));
    } else if (stated && choices_.layers[index].named) {
      fail(node, p.name, cat(states, ", which --allow or a recipe cannot change to ", p.name));
    } else if (stored.scaled()) {
      if (!imported && stored != p.weight)
        fail(node, p.name, cat("its weight is ", to_string(stored), " already, not ", p.name));
    } else if (p.weight != QuantType(choices_.carrier)) {
      auto [it, fresh] = typed_weight_.emplace(std::pair(w, to_string(p.weight)), kNoValue);
      if (fresh) {
        TS_ASSIGN(it->second, quantize_constant(g_, w, p.weight, node.name));
      }
      g_.nodes[index].inputs[1] = it->second;
      settled_.insert(it->second);
    }
    if (imported || g_.nodes[index].attrs.has("type.0")) return {};
    const bool plain = !p.activation.scaled();
    if (plain && p.activation == g_.at(g_.nodes[index].inputs[0]).type.quant && is_exact(g_.nodes[index].inputs[0]))
      return {};
    if (plain && (p.weight.scaled() || p.activation == QuantType(choices_.carrier))) return {};
    return add_ask(index, 0, p.activation, {});
  }

  bool is_exact(ValueId id) const { return g_.at(placement_of(g_, g_.producers(), id).base).exact; }

  void fail(const Node& node, const std::string& asked, const std::string& why) {
    if (failures_.empty() || failures_.back().layer != node.name) failures_.push_back({node.name, node.op, asked, {}});
    failures_.back().refusals.push_back({"", why});
  }

  // Inputs whose types the model itself states, and those of attention.
  Status settle_inputs(size_t index) {
    Node& node = g_.nodes[index];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const std::string type_key = cat("type.", i), scale_key = cat("scale.", i);
      if (!node.attrs.has(type_key)) continue;
      const auto type = parse_quant_type(node.attrs.word(type_key));
      if (!type) return bad_input(cat("layer ", node.name, ": '", node.attrs.word(type_key), "' is no type"));
      std::optional<float> scale;
      if (node.attrs.has(scale_key)) scale = static_cast<float>(node.attrs.number(scale_key));
      node.attrs.erase(type_key);
      node.attrs.erase(scale_key);
      if (node.op == "attention" || !is_linear(g_, node)) node.asked = kImported;
      TS_TRY(add_ask(index, i, *type, scale));
    }
    const Precision* precision = choices_.layers[index].attention;
    if (node.op != "attention" || precision == nullptr) return {};
    if (node.asked == kImported) {
      fail(node, precision->name,
           cat("the model states its types, --attention ", precision->name, " would change them; leave it out"));
      return {};
    }
    node.asked = precision->name;
    node.attrs.set("p", to_string(*precision->attention));
    for (size_t i = 0; i < 3; ++i) TS_TRY(ask_of_attention(index, i, *precision->attention));
    return {};
  }

  Status add_ask(size_t node, size_t input, const QuantType& type, std::optional<float> scale) {
    const bool needs_scale = type.scaled() && (!type.dynamic || type.scale2.granularity != Granularity::kNone);
    if (needs_scale && !scale) {
      TS_ASSIGN(scale, calibrated_scale(g_.nodes[node], input, type));
    }
    if (scale && !(std::isfinite(*scale) && *scale > 0))
      return bad_input(cat("layer ", g_.nodes[node].name, ": the scale of its input ", input, " is ", *scale,
                           "; a positive finite number is needed"));
    if (needs_scale && !type.dynamic && type.scale.granularity != Granularity::kTensor)
      return refused_layer(
          g_.nodes[node], to_string(type),
          cat("an input in ", to_string(type), " has static scales finer than the tensor, which no kernel makes"));
    asks_.push_back({node, input, type, scale});
    return {};
  }

  // A query that the model has learnt is known at build: its codes are, too.
  Status ask_of_attention(size_t node, size_t input, const QuantType& type) {
    const ValueId base = placement_of(g_, g_.producers(), g_.nodes[node].inputs[input]).base;
    if (!g_.at(base).constant) return add_ask(node, input, type, {});
    auto [it, fresh] = typed_weight_.emplace(std::pair(base, to_string(type)), kNoValue);
    if (fresh) {
      TS_ASSIGN(it->second, quantize_constant(g_, base, type, g_.nodes[node].name));
    }
    settled_.insert(it->second);
    learnt_.push_back({node, input, it->second});
    return {};
  }

  Result<float> calibrated_scale(const Node& node, size_t input, const QuantType& type) const {
    const std::string& name = g_.at(placement_of(g_, g_.producers(), node.inputs[input]).base).name;
    const auto clip = options_.ranges == nullptr ? std::nullopt : options_.ranges->clip(name, type.element);
    if (!clip && options_.ranges == nullptr)
      return bad_input(cat("layer ", node.name, ": no calibrated range for its input '", name,
                           "'; calibrate with --calib FILE.npz"));
    if (!clip) {
      return bad_input(cat("layer ", node.name, ": the calibration (", options_.ranges->how,
                           ") has no range of its input '", name,
                           "'; samples, or a file of ranges that tessera calibrate makes of this model, have one for "
                           "every input of a layer"));
    }
    if (!std::isfinite(*clip) || *clip < 0) {
      return bad_input(cat("layer ", node.name, ": its input reached ", *clip,
                           " on the calibration data; a finite range is needed"));
    }
    const double largest = info(type.element).max * (type.dynamic ? info(type.scale.element).max : 1);
    const double least = largest * std::numeric_limits<float>::min();
    if (*clip > 0 && *clip < least) {
      return bad_input(cat("layer ", node.name, ": its input '", name, "' has the range ", *clip, ", whose scale in ",
                           to_string(type), " is too small for a normal number in f32; ranges from ", least,
                           " on have one"));
    }
    if (!type.dynamic) return scale_for_amax(type.element, *clip);
    float scale2 = 1;
    const float amax = *clip;
    make_scale2(type, &amax, 1, 1, &scale2);
    return scale2;
  }

  // Turns each asked read into codes: in its producer where all readers ask the same, by a copy otherwise.
  void place_codes() {
    std::map<ValueId, std::vector<const Ask*>> by_base;
    std::vector<Made> made;
    std::vector<const Ask*> copied;
    {
      const std::vector<int> producers = g_.producers();
      for (const Ask& a : asks_) by_base[base_of(producers, a)].push_back(&a);
      for (const auto& [base, asks] : by_base) {
        if (made_by_producer(producers, base, asks)) {
          made.push_back({base, producers[static_cast<size_t>(base)], g_.at(base).type.quant, asks});
        } else {
          copied.insert(copied.end(), asks.begin(), asks.end());
        }
      }
    }
    for (const Made& m : made) become_codes(m);
    for (const Ask* a : copied) copy_for(*a);
    // All nodes have their operands now: a kernel that makes the plain result but not the codes leaves them to a copy.
    for (size_t i = 0; options_.target && i < made.size(); ++i) {
      const Node& maker = g_.nodes[static_cast<size_t>(made[i].maker)];
      const auto runs_so = [&] { return runnable(g_, g_.producers(), maker, *options_.target); };
      if (runs_so()) continue;
      become_plain(made[i]);
      if (runs_so() || runs_unfused(g_, static_cast<size_t>(made[i].maker), *options_.target, choices_.carrier)) {
        for (const Ask* a : made[i].asks) copy_for(*a);
      } else {
        become_codes(made[i]);  // refused either way: the plan says why
      }
    }
    insert_copies();
  }

  ValueId base_of(const std::vector<int>& producers, const Ask& a) const {
    return placement_of(g_, producers, g_.nodes[a.node].inputs[a.input]).base;
  }

  // True where every read of the storage, through views, is an ask for the same codes, and the caller does not read it.
  bool made_by_producer(const std::vector<int>& producers, ValueId base, const std::vector<const Ask*>& asks) const {
    const int maker = producers[static_cast<size_t>(base)];
    if (maker < 0 || !asks[0]->type.scaled()) return false;
    const Node& node = g_.nodes[static_cast<size_t>(maker)];
    const OpInfo* op = find_op(node.op);
    if (op == nullptr || !(op->takes_program || converts(node))) return false;
    const Codes codes{asks[0]->type, asks[0]->scale};
    for (const Ask* a : asks) {
      if (Codes{a->type, a->scale}.key() != codes.key()) return false;
      // Scales finer than the tensor cover rows of the storage: views may fold its leading axes only.
      const ValueId value = g_.nodes[a->node].inputs[a->input];
      const Placement p = placement_of(g_, producers, value);
      const Shape &shape = g_.at(value).type.shape, &whole = g_.at(base).type.shape;
      const bool rows = p.offset == 0 && is_dense(shape, p.strides) && elements(shape) == elements(whole) &&
                        !shape.empty() && !whole.empty() && shape.back() == whole.back();
      if (codes.type.scale.granularity != Granularity::kTensor && !rows) return false;
    }
    const auto in_storage = [&](ValueId id) {
      return id != kNoValue && !g_.at(id).constant && placement_of(g_, producers, id).base == base;
    };
    for (ValueId out : g_.outputs) {
      if (in_storage(out)) return false;
    }
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (g_.nodes[n].op == "view") continue;
      for (size_t i = 0; i < g_.nodes[n].inputs.size(); ++i) {
        if (!in_storage(g_.nodes[n].inputs[i])) continue;
        if (std::none_of(asks.begin(), asks.end(), [&](const Ask* a) { return a->node == n && a->input == i; }))
          return false;
      }
    }
    return true;
  }

  // A storage that its producer makes codes in, and what it was.
  struct Made {
    ValueId base;
    int maker;
    QuantType was;
    std::vector<const Ask*> asks;
  };

  // Ops whose result is in whatever type it is given.
  static bool converts(const Node& node) { return node.op == "copy" || node.op == "concat"; }

  // Results beside the first are written in their type.
  static bool rounds_by_step(const Node& node, ValueId base) { return !converts(node) && node.outputs[0] == base; }

  // The storage and every view of it become codes; the producer gets the step that makes them, unless it converts
  // anyway.
  void become_codes(const Made& m) {
    Node& node = g_.nodes[static_cast<size_t>(m.maker)];
    if (rounds_by_step(node, m.base)) node.then.steps.push_back({StepKind::quantize});
    const auto [scale, scale2] = scales_of(g_.at(m.base).name, *m.asks[0]);
    retype(m.base, m.asks[0]->type, scale, scale2);
  }

  void become_plain(const Made& m) {
    Node& node = g_.nodes[static_cast<size_t>(m.maker)];
    if (rounds_by_step(node, m.base)) node.then.steps.pop_back();
    retype(m.base, m.was, kNoValue, kNoValue);
  }

  void retype(ValueId base, const QuantType& type, ValueId scale, ValueId scale2) {
    const std::vector<int> producers = g_.producers();
    for (size_t v = 0; v < producers.size(); ++v) {
      const ValueId id = static_cast<ValueId>(v);
      if (g_.values[v].constant || placement_of(g_, producers, id).base != base) continue;
      g_.values[v].type.quant = type;
      g_.values[v].scale = scale, g_.values[v].scale2 = scale2;
    }
  }

  // Constants of an ask's static scales, one for each name and number.
  std::pair<ValueId, ValueId> scales_of(const std::string& name, const Ask& a) {
    if (!a.scale) return {kNoValue, kNoValue};
    const std::string label = name + (a.type.dynamic ? ".scale2" : ".scale");
    auto [it, fresh] = scale_constant_.emplace(std::pair(label, std::bit_cast<uint32_t>(*a.scale)), kNoValue);
    if (fresh) it->second = g_.add_constant(label, {1}, {*a.scale});
    return a.type.dynamic ? std::pair(kNoValue, it->second) : std::pair(it->second, kNoValue);
  }

  // The ask's node reads a copy in codes, which readers of the same value that ask the same share.
  void copy_for(const Ask& a) {
    const ValueId value = g_.nodes[a.node].inputs[a.input];
    if (!a.type.scaled() && g_.at(value).type.quant == a.type) return;
    const Codes codes{a.type, a.scale};
    auto [it, fresh] = copies_.emplace(std::pair(value, codes.key()), Copy{});
    Copy& copy = it->second;
    if (fresh) {
      Value v;
      v.name = g_.at(value).name + (a.type.scaled() ? ".codes" : cat(".", info(a.type.element).name));
      v.type = {g_.at(value).type.shape, a.type};
      std::tie(v.scale, v.scale2) = scales_of(g_.at(value).name, a);
      const std::string name = g_.at(value).name + (a.type.scaled() ? ".quantize" : ".cast");
      copy.first_reader = a.node;
      copy.node = {.name = name, .op = "copy", .inputs = {value}, .outputs = {g_.add_value(std::move(v))}};
    }
    copy.first_reader = std::min(copy.first_reader, a.node);
    g_.nodes[a.node].inputs[a.input] = copy.node.outputs[0];
  }

  // The node reads the codes as it read the constant.
  void read_codes(const Learnt& l) {
    const ValueId value = g_.nodes[l.node].inputs[l.input];
    const Placement p = placement_of(g_, g_.producers(), value);
    g_.nodes[l.node].inputs[l.input] = l.codes;
    if (p.base == value) return;
    Value v;
    v.name = g_.at(l.codes).name + ".view";
    v.type = {g_.at(value).type.shape, g_.at(l.codes).type.quant};
    v.scale = g_.at(l.codes).scale;
    Copy& view = copies_[std::pair(value, std::pair(cat("learnt ", l.node, ".", l.input), 0U))];
    view.first_reader = l.node;
    const Attrs attrs{{"strides", p.strides}, {"offset", p.offset}};
    view.node = {
        .name = {}, .op = "view", .inputs = {l.codes}, .outputs = {g_.add_value(std::move(v))}, .attrs = attrs};
    g_.nodes[l.node].inputs[l.input] = view.node.outputs[0];
  }

  void insert_copies() {
    std::multimap<size_t, Node> before;
    std::set<std::string> taken;
    for (const Node& n : g_.nodes) taken.insert(n.name);
    for (auto& [key, copy] : copies_) {
      const std::string stem = copy.node.name;
      for (int i = 2; copy.node.op != "view" && !taken.insert(copy.node.name).second; ++i)
        copy.node.name = cat(stem, "_", i);
      before.emplace(copy.first_reader, std::move(copy.node));
    }
    std::vector<Node> nodes;
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      for (auto [it, end] = before.equal_range(n); it != end; ++it) nodes.push_back(std::move(it->second));
      nodes.push_back(std::move(g_.nodes[n]));
    }
    g_.nodes = std::move(nodes);
  }

  struct Copy {
    size_t first_reader = 0;
    Node node;
  };

  Graph& g_;
  const QuantizeOptions& options_;
  Choices choices_;
  std::vector<Ask> asks_;
  std::vector<Learnt> learnt_;
  std::vector<RefusedLayer> failures_;
  std::set<ValueId> settled_;                                        // weights that have their type
  std::map<std::pair<ValueId, std::string>, ValueId> typed_weight_;  // by weight and type
  std::map<std::pair<std::string, uint32_t>, ValueId> scale_constant_;
  std::map<std::pair<ValueId, std::pair<std::string, uint32_t>>, Copy> copies_;
};

}  // namespace

namespace {

// Codes, scales and second scales of a weight [rows, cols]; those that the type does not have are empty.
Result<std::vector<Buffer>> codes_of(const Value& value, int64_t rows, int64_t cols, const QuantType& type,
                                     const std::string& layer) {
  std::vector<float> numbers(static_cast<size_t>(rows * cols));
  info(value.type.quant.element).decode(value.data.data(), 0, rows * cols, numbers.data());
  const float largest = type.scaled() ? std::numeric_limits<float>::max() : static_cast<float>(info(type.element).max);
  const auto bad = std::find_if(numbers.begin(), numbers.end(), [&](float x) { return !(std::fabs(x) <= largest); });
  if (bad != numbers.end()) {
    const int64_t at = bad - numbers.begin();
    return bad_input(cat("layer ", layer, ": weight [", at / cols, ",", at % cols, "] is ", *bad,
                         "; weights must be finite and at most ", largest));
  }
  TS_ASSIGN(QuantizedArray made, quantize_array(type, numbers.data(), rows, cols));
  std::vector<Buffer> arrays;
  arrays.push_back(std::move(made.codes));
  arrays.push_back(std::move(made.scale));
  arrays.push_back(std::move(made.scale2));
  return arrays;
}

}  // namespace

Result<ValueId> quantize_constant(Graph& g, ValueId w, const QuantType& type, const std::string& layer) {
  const Value value = g.at(w);
  const Shape& shape = value.type.shape;
  const int64_t cols = shape.back(), rows = elements(shape) / std::max<int64_t>(cols, 1);
  const std::string recipe = cat("quantize ", to_string(value.type.quant), " ", to_string(type), " ", rows, " ", cols);
  TS_ASSIGN(std::vector<Bytes> made,
            derive(g, recipe, {&value.data, 1}, [&] { return codes_of(value, rows, cols, type, layer); }));
  const auto add_scales = [&](const ScaleLevel& level, const char* suffix, Bytes& bytes) {
    if (level.granularity == Granularity::kNone) return kNoValue;
    return g.add_constant(value.name + suffix, Type{{scale_count(level, rows, cols)}, level.element}, std::move(bytes));
  };
  const ValueId scale = add_scales(type.scale, ".scale", made[1]), scale2 = add_scales(type.scale2, ".scale2", made[2]);
  const ValueId id = g.add_constant(value.name + "." + info(type.element).name, Type{shape, type}, std::move(made[0]));
  g.at(id).scale = scale, g.at(id).scale2 = scale2;
  return id;
}

Status quantize(Graph& graph, const QuantizeOptions& options) { return Quantizer(graph, options).run(); }

}  // namespace tessera
