// SPDX-License-Identifier: Apache-2.0
#include "passes/quantize.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "ops/op.h"
#include "types/quantize_array.h"

namespace tessera {
namespace {

const Precision kPrecisions[] = {
#define TS_PRECISION(name, weight, activation, carrier) {#name, weight, activation, carrier},
#include "passes/precisions.inc"
#undef TS_PRECISION
};

bool matches(const char* pattern, const char* text) {
  if (*pattern == '\0') return *text == '\0';
  if (*pattern == '*') return matches(pattern + 1, text) || (*text != '\0' && matches(pattern, text + 1));
  return *text != '\0' && (*pattern == '?' || *pattern == *text) && matches(pattern + 1, text + 1);
}

bool is_linear(const Graph& g, const Node& n) { return n.op == "matmul" && n.inputs.size() > 1 && g.at(n.inputs[1]).constant; }

bool is_float(Element e) { return info(e).kind == ElementKind::kFloat; }

Bytes convert(const Bytes& data, Element from, Element to, int64_t count) {
  std::vector<float> numbers(static_cast<size_t>(count));
  info(from).decode(data.data(), 0, count, numbers.data());
  Buffer out(static_cast<size_t>(packed_bytes(to, count)));
  info(to).encode(numbers.data(), count, out.data(), 0);
  return Bytes::own(std::move(out));
}

class Quantizer {
 public:
  Quantizer(Graph& graph, const QuantizeOptions& options) : g_(graph), options_(options) {}

  Status run() {
    default_ = find_precision(options_.precision);
    if (default_ == nullptr) {
      std::string names;
      for (const Precision& p : kPrecisions) names += std::string(names.empty() ? "" : ", ") + p.name;
      return usage_error(cat("precision '", options_.precision, "' is unknown; accepted: ", names));
    }
    assign_roles(g_);
    TS_TRY(choose_per_layer());
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (const Precision* p = layer_[n]; p != nullptr && p->weight.scaled()) TS_TRY(quantize_weight_of(n, *p));
    }
    TS_TRY(to_carrier());
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (const Precision* p = layer_[n]; p != nullptr && p->weight.scaled()) TS_TRY(want_codes(n, *p));
    }
    place_steps();
    return {};
  }

 private:
  Status choose_per_layer() {
    layer_.assign(g_.nodes.size(), nullptr);
    std::vector<bool> used(options_.allow.size(), false);
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      Node& node = g_.nodes[n];
      if (weight_is_left(node)) {
        bool accepted = !default_->weight.scaled();
        for (size_t a = 0; a < options_.allow.size(); ++a) {
          if (!matches(options_.allow[a].pattern.c_str(), node.name.c_str()) || options_.allow[a].precision != carrier_name()) continue;
          accepted = used[a] = true;
        }
        if (!accepted) {
          return refused(cat("layer ", node.name, ": its weight is the left operand of the product, which is never ", default_->name, "; --allow '", node.name, "=",
                             carrier_name(), "' accepts it in ", carrier_name()));
        }
        continue;
      }
      if (!is_linear(g_, node)) continue;
      const Precision* p = node.role == "block" ? default_ : find_precision(carrier_name());
      for (size_t a = 0; a < options_.allow.size(); ++a) {
        if (!matches(options_.allow[a].pattern.c_str(), node.name.c_str())) continue;
        p = find_precision(options_.allow[a].precision);
        if (p == nullptr) return usage_error(cat("--allow ", options_.allow[a].pattern, "=", options_.allow[a].precision, ": unknown precision"));
        used[a] = true;
      }
      node.asked = p->name;
      layer_[n] = p;
    }
    bool realised = !default_->weight.scaled();
    for (const Precision* p : layer_) realised = realised || (p != nullptr && p->weight.scaled());
    if (!realised) {
      const bool allowed_away = std::any_of(g_.nodes.begin(), g_.nodes.end(), [&](const Node& n) {
        return is_linear(g_, n) && n.role == "block" && n.asked != default_->name;
      });
      if (allowed_away) {
        return usage_error(cat("--allow leaves no layer in ", default_->name, ": ask for --precision ",
                               options_.allow.back().precision, " instead, allow fewer layers, or build for a --target that runs ",
                               default_->name));
      }
      return refused(cat("no layer would be ", default_->name, ": every linear layer of this model is an embedding or a head, which stay ", carrier_name(),
                         "; --allow '*=", default_->name, "' takes them too"));
    }
    for (size_t a = 0; a < used.size(); ++a) {
      if (!used[a]) return usage_error(cat("--allow ", options_.allow[a].pattern, ": no linear layer has such a name", nearest_layers(options_.allow[a].pattern)));
    }
    return {};
  }

  // W x: a constant times an activation.
  bool weight_is_left(const Node& n) const {
    if (n.op != "matmul" || n.inputs.size() < 2 || g_.at(n.inputs[1]).constant) return false;
    return g_.at(placement_of(g_, g_.producers(), n.inputs[0]).base).constant;
  }

  // "; the nearest are 'a', 'b', 'c'": the linear layers that share the longest subsequence with the pattern, by length.
  std::string nearest_layers(const std::string& pattern) const {
    std::vector<std::pair<double, std::string>> ranked;
    for (const Node& n : g_.nodes) {
      if (!is_linear(g_, n)) continue;
      std::vector<size_t> row(n.name.size() + 1, 0);
      for (const char c : pattern) {
        size_t diagonal = 0;
        for (size_t j = 0; j < n.name.size(); ++j) {
          const size_t above = row[j + 1];
          row[j + 1] = c == n.name[j] ? diagonal + 1 : std::max(above, row[j]);
          diagonal = above;
        }
      }
      ranked.emplace_back(-2.0 * static_cast<double>(row.back()) / static_cast<double>(pattern.size() + n.name.size()), n.name);
    }
    std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::string text;
    for (size_t i = 0; i < ranked.size() && i < 3; ++i) text += cat(i == 0 ? "; the nearest are '" : ", '", ranked[i].second, "'");
    return text;
  }

  std::string carrier_name() const {
    for (const Precision& p : kPrecisions) {
      if (p.weight == QuantType(default_->carrier)) return p.name;
    }
    return "fp32";
  }

  // Every float value but the caller's inputs and outputs, masks and angles takes the carrier's element; constants are
  // rounded to it.
  Status to_carrier() {
    const Element carrier = default_->carrier;
    if (carrier == Element::f32) return {};
    TS_TRY(check_weights_fit(carrier));
    std::set<ValueId> callers(g_.inputs.begin(), g_.inputs.end());
    callers.insert(g_.outputs.begin(), g_.outputs.end());
    // Views share their input's storage, so a view of an input stays f32 too; nodes are in order, so inputs are settled first.
    for (const Node& n : g_.nodes) {
      if (n.op == "view" && callers.contains(n.inputs[0])) callers.insert(n.outputs[0]);
    }
    std::set<ValueId> keep = only_masks_and_angles();
    keep.insert(callers.begin(), callers.end());
    for (const Value& v : g_.values) keep.insert(v.scale);  // scales stay as their type says
    for (size_t v = 0; v < g_.values.size(); ++v) {
      Value& value = g_.values[v];
      if (!is_float(value.type.quant.element) || value.type.quant.scaled() || keep.contains(static_cast<ValueId>(v))) continue;
      if (value.constant) {
        value.data = convert(value.data, value.type.quant.element, carrier, elements(value.type.shape));
      }
      value.type.quant = carrier;
    }
    cast_for_readers(callers);
    return {};
  }

  // Weights, vectors and tables that the carrier cannot hold would silently become its largest number. (Numbers that maps read, such as those that hide
  // keys, may: e^-65504 is 0 as well.)
  Status check_weights_fit(Element carrier) const {
    for (const Node& n : g_.nodes) {
      if (n.op != "matmul" && n.op != "norm" && n.op != "gather") continue;
      for (ValueId in : n.inputs) {
        if (in == kNoValue || !g_.at(in).constant || !is_float(g_.at(in).type.quant.element) || g_.at(in).type.quant.scaled()) continue;
        const Value& value = g_.at(in);
        std::vector<float> numbers(static_cast<size_t>(elements(value.type.shape)));
        info(value.type.quant.element).decode(value.data.data(), 0, static_cast<int64_t>(numbers.size()), numbers.data());
        for (float x : numbers) {
          if (std::fabs(x) <= info(carrier).max) continue;
          return refused(cat("layer ", n.name, ": its constant '", value.name, "' holds ", x, ", and ", info(carrier).name, " holds at most ", info(carrier).max,
                             "; build in another precision (bf16, fp32)"));
        }
      }
    }
    return {};
  }

  // Values that only say which keys a query may see, or by which angle a token is turned, and what those are computed
  // from: 16 bits have no minus infinity that stays one (it saturates), and positions times frequencies lose their
  // angle in them. Attention and rotary read such operands in f32.
  std::set<ValueId> only_masks_and_angles() const {
    std::vector<int> other_readers(g_.values.size(), 0), readers(g_.values.size(), 0);
    for (ValueId out : g_.outputs) ++other_readers[static_cast<size_t>(out)];
    for (size_t n = g_.nodes.size(); n-- > 0;) {
      const Node& node = g_.nodes[n];
      bool passes_on = node.op == "map" || node.op == "view" || node.op == "copy" || node.op == "concat" || node.op == "gather";
      for (ValueId out : node.outputs)
        passes_on = passes_on && readers[static_cast<size_t>(out)] > 0 && other_readers[static_cast<size_t>(out)] == 0;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] == kNoValue) continue;
        const bool read_so = (node.op == "attention" && i == 3) || (node.op == "rotary" && i > 0);
        ++(read_so || passes_on ? readers : other_readers)[static_cast<size_t>(node.inputs[i])];
      }
    }
    std::set<ValueId> found;
    for (size_t v = 0; v < g_.values.size(); ++v) {
      if (readers[v] > 0 && other_readers[v] == 0) found.insert(static_cast<ValueId>(v));
    }
    return found;
  }

  // A caller's f32 value is read as it is where a kernel of the target can; else it meets the carrier in a copy. Where
  // its reader is a copy already (patches), that one converts.
  void cast_for_readers(const std::set<ValueId>& callers) {
    std::map<ValueId, ValueId> cast;
    std::vector<Node> nodes;
    std::vector<const Precision*> layer;
    const std::vector<int> producers = g_.producers();
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      Node& node = g_.nodes[n];
      if (node.op != "copy" && node.op != "view" && !reads_as_is(node, producers)) {
        for (size_t i = 0; i < node.inputs.size(); ++i) {
          ValueId& in = node.inputs[i];
          if (in == kNoValue || !callers.contains(in) || !is_float(g_.at(in).type.quant.element)) continue;
          const bool to_codes = i == 0 && layer_[n] != nullptr && layer_[n]->weight.scaled();
          if (to_codes) continue;  // a copy will make them
          auto [it, fresh] = cast.emplace(in, kNoValue);
          if (fresh) {
            Value v;
            v.name = g_.at(in).name + ".cast";
            v.type = {g_.at(in).type.shape, default_->carrier};
            it->second = g_.add_value(std::move(v));
            nodes.push_back({.name = g_.at(in).name + ".cast", .op = "copy", .inputs = {in}, .outputs = {it->second}});
            layer.push_back(nullptr);
          }
          in = it->second;
        }
      }
      nodes.push_back(std::move(node));
      layer.push_back(layer_[n]);
    }
    g_.nodes = std::move(nodes);
    layer_ = std::move(layer);
  }

  // A kernel of the target takes the node with the types that its operands have now.
  bool reads_as_is(const Node& node, const std::vector<int>& producers) const {
    const OpInfo* op = find_op(node.op);
    if (op == nullptr || !options_.target) return false;
    const Problem problem = problem_of(g_, producers, node);
    for (const Variant* v : op->variants) {
      if (runs(*options_.target, v->arch) && v->accepts(problem)) return true;
    }
    return false;
  }

  Status quantize_weight_of(size_t index, const Precision& p) {
    const ValueId w = g_.nodes[index].inputs[1];
    auto [it, fresh] = quantized_weight_.emplace(std::pair(w, to_string(p.weight)), kNoValue);
    if (fresh) {
      TS_ASSIGN(it->second, quantize_weight(w, p.weight, g_.nodes[index].name));
    }
    g_.nodes[index].inputs[1] = it->second;
    return {};
  }

  Status want_codes(size_t index, const Precision& p) {
    wants_[g_.nodes[index].inputs[0]].push_back(index);
    activation_ = p.activation;
    const ValueId base = placement_of(g_, g_.producers(), g_.nodes[index].inputs[0]).base;
    if (options_.ranges == nullptr || !options_.ranges->amax.contains(g_.at(base).name)) {
      return bad_input(cat("layer ", g_.nodes[index].name, ": no calibrated range for its input '", g_.at(base).name,
                           "'; calibrate with --calib FILE.npz"));
    }
    const float amax = options_.ranges->amax.at(g_.at(base).name);
    if (!std::isfinite(amax)) {
      return bad_input(cat("layer ", g_.nodes[index].name, ": its input reached ", amax, " on the calibration data; a finite range is needed"));
    }
    return {};
  }

  Result<ValueId> quantize_weight(ValueId w, const QuantType& type, const std::string& layer) {
    const Value& value = g_.at(w);
    const int64_t cols = value.type.shape.back(), rows = elements(value.type.shape) / std::max<int64_t>(cols, 1);
    std::vector<float> numbers(static_cast<size_t>(rows * cols));
    info(value.type.quant.element).decode(value.data.data(), 0, rows * cols, numbers.data());
    const auto bad = std::find_if(numbers.begin(), numbers.end(), [](float x) { return !std::isfinite(x); });
    if (bad != numbers.end()) {
      const int64_t at = bad - numbers.begin();
      return bad_input(cat("layer ", layer, ": weight [", at / cols, ",", at % cols, "] is ", *bad, "; weights must be finite"));
    }
    TS_ASSIGN(QuantizedArray made, quantize_array(type, numbers.data(), rows, cols));
    const std::string name = value.name;
    const Shape shape = value.type.shape;
    const auto add_scales = [&](const ScaleLevel& level, const char* suffix, Buffer& bytes) {
      if (level.granularity == Granularity::kNone) return kNoValue;
      return g_.add_constant(name + suffix, Type{{scale_count(level, rows, cols)}, level.element}, Bytes::own(std::move(bytes)));
    };
    const ValueId scale = add_scales(type.scale, ".scale", made.scale), scale2 = add_scales(type.scale2, ".scale2", made.scale2);
    const ValueId id = g_.add_constant(name + "." + info(type.element).name, Type{shape, type}, Bytes::own(std::move(made.codes)));
    g_.at(id).scale2 = scale2;
    g_.at(id).scale = scale;
    return id;
  }

  // Turns each wanted activation into codes: in its producer where all readers want codes, by a copy otherwise.
  void place_steps() {
    if (wants_.empty()) return;
    // Gather the readers of each storage base.
    const std::vector<int> producers = g_.producers();
    std::map<ValueId, std::vector<std::pair<ValueId, size_t>>> by_base;  // base -> (value read, node)
    for (const auto& [value, nodes] : wants_) {
      const ValueId base = placement_of(g_, producers, value).base;
      for (size_t n : nodes) by_base[base].push_back({value, n});
    }
    std::map<size_t, std::vector<Node>> insert_before;
    for (const auto& [base, readers] : by_base) {
      const float amax = options_.ranges->amax.at(g_.at(base).name);
      const ValueId scale = g_.add_constant(g_.at(base).name + ".scale", {1}, {scale_for_amax(activation_.element, amax)});
      const int maker = producers[static_cast<size_t>(base)];
      const OpInfo* op = maker >= 0 ? find_op(g_.nodes[static_cast<size_t>(maker)].op) : nullptr;
      if (op != nullptr && op->takes_program && only_codes_read(base)) {
        g_.nodes[static_cast<size_t>(maker)].then.steps.push_back({StepKind::quantize});
        retype(base, scale);
      } else {
        std::map<ValueId, ValueId> copies;
        for (const auto& [value, node] : readers) {
          auto [it, fresh] = copies.emplace(value, kNoValue);
          if (fresh) {
            Value v;
            v.name = g_.at(value).name + ".codes";
            v.type = {g_.at(value).type.shape, activation_};
            v.scale = scale;
            it->second = g_.add_value(std::move(v));
            insert_before[first_reader(value, node)].push_back(
                {.name = g_.at(value).name + ".quantize", .op = "copy", .inputs = {value}, .outputs = {it->second}});
          }
          g_.nodes[node].inputs[0] = it->second;
        }
      }
    }
    if (insert_before.empty()) return;
    std::vector<Node> nodes;
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (auto it = insert_before.find(n); it != insert_before.end()) {
        for (Node& copy : it->second) nodes.push_back(std::move(copy));
      }
      nodes.push_back(std::move(g_.nodes[n]));
    }
    g_.nodes = std::move(nodes);
  }

  size_t first_reader(ValueId value, size_t node) const {
    for (size_t n = 0; n < node; ++n) {
      for (size_t w : wants_.at(value)) {
        if (w == n) return n;
      }
    }
    return node;
  }

  // True where every reader of the storage, through views, is a matmul that wants codes as its input 0, and the caller does not read it.
  bool only_codes_read(ValueId base) const {
    const std::vector<int> producers = g_.producers();  // fresh: scales and copies were added meanwhile
    const auto in_storage = [&](ValueId id) { return id != kNoValue && placement_of(g_, producers, id).base == base; };
    for (ValueId out : g_.outputs) {
      if (in_storage(out)) return false;
    }
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const Node& node = g_.nodes[n];
      if (node.op == "view") continue;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (!in_storage(node.inputs[i])) continue;
        const bool wanted = i == 0 && layer_.size() > n && layer_[n] != nullptr && layer_[n]->weight.scaled();
        if (!wanted) return false;
      }
    }
    return true;
  }

  // The storage and every view of it become codes with this scale.
  void retype(ValueId base, ValueId scale) {
    const std::vector<int> producers = g_.producers();
    for (size_t v = 0; v < g_.values.size(); ++v) {
      const ValueId id = static_cast<ValueId>(v);
      if (g_.values[v].constant || placement_of(g_, producers, id).base != base) continue;
      g_.values[v].type.quant = activation_;
      g_.values[v].scale = scale;
    }
  }

  Graph& g_;
  const QuantizeOptions& options_;
  const Precision* default_ = nullptr;
  std::vector<const Precision*> layer_;  // per node: its precision, null where it is no linear layer
  std::map<std::pair<ValueId, std::string>, ValueId> quantized_weight_;  // by weight and type
  std::map<ValueId, std::vector<size_t>> wants_;  // value -> nodes that read it as codes
  QuantType activation_;
};

}  // namespace

const Precision* find_precision(const std::string& name) {
  for (const Precision& p : kPrecisions) {
    if (name == p.name) return &p;
  }
  return nullptr;
}

std::vector<std::string> precision_names() {
  std::vector<std::string> names;
  for (const Precision& p : kPrecisions) names.emplace_back(p.name);
  return names;
}

Result<Allowance> parse_allowance(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    return usage_error(cat("--allow '", text, "': wanted LAYER=PRECISION, for example 'blocks.*.mlp.fc2=fp16'"));
  }
  Allowance allowance{text.substr(0, equals), text.substr(equals + 1)};
  if (find_precision(allowance.precision) == nullptr) {
    std::string names;
    for (const Precision& p : kPrecisions) names += cat(names.empty() ? "" : ", ", p.name);
    return usage_error(cat("--allow '", text, "': precision '", allowance.precision, "' is unknown; accepted: ", names));
  }
  return allowance;
}

void assign_roles(Graph& g) {
  // Forward: has a layer been met? Backward: will one be met? Views and maps hand both on.
  const auto is_mark = [&](const Node& n) { return n.op == "norm" || n.op == "attention" || is_linear(g, n); };
  std::vector<bool> after(g.values.size(), false), before(g.values.size(), false);
  for (Node& n : g.nodes) {
    bool seen = false;
    for (ValueId in : n.inputs) seen = seen || (in != kNoValue && after[static_cast<size_t>(in)]);
    if (is_linear(g, n) && !seen) n.role = "embed";
    for (ValueId out : n.outputs) after[static_cast<size_t>(out)] = seen || is_mark(n);
  }
  for (size_t i = g.nodes.size(); i-- > 0;) {
    Node& n = g.nodes[i];
    bool coming = false;
    for (ValueId out : n.outputs) coming = coming || before[static_cast<size_t>(out)];
    // A layer that adds to a residual stream belongs to a block, even where nothing follows.
    if (is_linear(g, n) && n.role != "embed") n.role = coming || n.then.find(StepKind::residual) != nullptr ? "block" : "head";
    for (ValueId in : n.inputs) {
      if (in != kNoValue && (coming || is_mark(n))) before[static_cast<size_t>(in)] = true;
    }
  }
}

Status quantize(Graph& graph, const QuantizeOptions& options) { return Quantizer(graph, options).run(); }

}  // namespace tessera
