// SPDX-License-Identifier: Apache-2.0
#include "precision/give_carrier.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "base/refused_layers.h"
#include "io/mmap.h"
#include "ir/derived_constants.h"
#include "ir/layer_ops.h"
#include "op/extra_results.h"
#include "ops/runnable.h"
#include "plan/plan.h"
#include "precision/masks.h"
#include "precision/reach.h"

namespace tessera {
namespace {

bool is_float(Element e) { return info(e).kind == ElementKind::kFloat; }

Result<Bytes> convert(const Graph& g, const Bytes& data, Element from, Element to, int64_t count) {
  const auto make = [&]() -> Result<std::vector<Buffer>> {
    std::vector<float> numbers(static_cast<size_t>(count));
    info(from).decode(data.data(), 0, count, numbers.data());
    std::vector<Buffer> out;
    out.emplace_back(static_cast<size_t>(packed_bytes(to, count)));
    info(to).encode(numbers.data(), count, out[0].data(), 0);
    return out;
  };
  TS_ASSIGN(std::vector<Bytes> made,
            derive(g, cat("convert ", info(from).name, " ", info(to).name, " ", count), {&data, 1}, make));
  return std::move(made[0]);
}

class CarrierGiver {
 public:
  CarrierGiver(Graph& g, const CarrierOptions& options) : g_(g), options_(options) {}

  Status run(std::vector<size_t>& new_places) {
    const Element carrier = options_.carrier;
    std::set<ValueId> callers(g_.inputs.begin(), g_.inputs.end());
    callers.insert(g_.outputs.begin(), g_.outputs.end());
    for (const StatePair& s : g_.states) {  // the session's: in the carrier, as any value inside
      callers.erase(g_.inputs[s.input]);
      if (s.output) callers.erase(g_.outputs[*s.output]);
    }
    for (size_t v = 0; v < g_.values.size(); ++v) {
      if (g_.values[v].exact) callers.insert(static_cast<ValueId>(v));
    }
    // Views share their input's storage, so a view of an input stays f32 too; nodes are in order, so inputs are
    // settled.
    for (const Node& n : g_.nodes) {
      if (n.op == "view" && callers.contains(n.inputs[0])) callers.insert(n.outputs[0]);
    }
    std::set<ValueId> keep = only_masks_and_angles();
    keep.insert(callers.begin(), callers.end());
    keep_for_other_ports(keep);
    keep_vectors_of_results(keep);
    keep_rows_of_results(keep);
    keep.insert(options_.keep.begin(), options_.keep.end());
    for (const Node& n : g_.nodes) {
      const int moments = ExtraResults::of(n.attrs).moments;  // f32 whatever the carrier
      if (moments > 0) keep.insert(n.outputs[static_cast<size_t>(moments)]);
    }
    for (const Value& v : g_.values) keep.insert({v.scale, v.scale2});  // scales stay as their type says
    if (carrier != Element::f32) {
      TS_TRY(check_weights_fit(keep));
      keep_beyond(keep);
    }
    follow_storage(callers, keep);
    const std::vector<int> uses = g_.use_counts();  // weights that have codes by now are read no more
    for (size_t v = 0; v < g_.values.size(); ++v) {
      Value& value = g_.values[v];
      const Element is = value.type.quant.element;
      if (!is_float(is) || value.type.quant.scaled() || is == carrier || keep.contains(static_cast<ValueId>(v)))
        continue;
      if (value.constant && uses[v] == 0) continue;
      if (value.constant) {
        TS_ASSIGN(value.data, convert(g_, value.data, is, carrier, elements(value.type.shape)));
      }
      value.type.quant = carrier;
    }
    TS_TRY(check_readers(callers));
    cast_for_readers(callers, new_places);
    return {};
  }

 private:
  // Weights, vectors and tables that the carrier cannot hold would silently become its largest number.
  Status check_weights_fit(const std::set<ValueId>& keep) const {
    const ElementInfo& carrier = info(options_.carrier);
    for (const Node& n : g_.nodes) {
      if (!multiplies_weights(n.op) && n.op != "norm" && n.op != "gather") continue;
      for (ValueId in : n.inputs) {
        if (in == kNoValue || keep.contains(in)) continue;
        const Value& value = g_.at(in);
        if (!value.constant || !is_float(value.type.quant.element) || value.type.quant.scaled()) continue;
        std::vector<float> numbers(static_cast<size_t>(elements(value.type.shape)));
        info(value.type.quant.element)
            .decode(value.data.data(), 0, static_cast<int64_t>(numbers.size()), numbers.data());
        give_back(value.data.data(), value.data.size());
        for (float x : numbers) {
          if (std::fabs(x) <= carrier.max) continue;
          if (!std::isfinite(x))
            return bad_input(
                cat("layer ", n.name, ": its constant '", value.name, "' holds ", x, "; weights must be finite"));
          return refused_layer(n, n.asked,
                               cat("its constant '", value.name, "' holds ", x, ", and ", carrier.name,
                                   " holds at most ", carrier.max, "; build in another precision (bf16, fp32)"));
        }
      }
    }
    return {};
  }

  // Results in 16 bits other than the carrier's (rewrite/port_types.h) are rounded once: what a copy makes them of
  // stays f32, as results in f32 are.
  void keep_for_other_ports(std::set<ValueId>& keep) const {
    const std::vector<int> uses = g_.use_counts();
    for (const Node& n : g_.nodes) {
      if (n.op != "copy" || !n.then.empty()) continue;
      const ValueId from = n.inputs[0], to = n.outputs[0];
      const QuantType& port = g_.at(to).type.quant;
      const bool result = std::find(g_.outputs.begin(), g_.outputs.end(), to) != g_.outputs.end();
      if (result && !port.scaled() && is_float(port.element) && port.element != options_.carrier &&
          uses[static_cast<size_t>(from)] == 1 && !g_.at(from).constant)
        keep.insert(from);
    }
  }

  // Numbers that hide keys are of this kind where their attention was not recognised as one. Sums of them and scores
  // are f32, as attention's are (ops/attention/attention.h), also where the carrier holds the number: a query whose
  // keys are all masked by -1e4 follows what f32 leaves of its scores, and 16 bits would leave nothing.
  void keep_beyond(std::set<ValueId>& keep) {
    reach_ = reach_of_values(g_, options_.ranges);
    const std::vector<bool> of_softmax = reaching_softmax(g_);
    for (size_t v = 0; v < reach_.size(); ++v) {
      const Value& value = g_.values[v];
      const ValueId id = static_cast<ValueId>(v);
      if (!is_float(value.type.quant.element) || value.type.quant.scaled() || keep.contains(id)) continue;
      if (!reach_[v].leaves(options_.carrier) && !(of_softmax[v] && reach_[v].low <= kHidesKeys)) continue;
      keep.insert(id);
      if (!value.constant) beyond_.insert(id);
    }
  }

  // A view has the type of the storage that it shows.
  void follow_storage(const std::set<ValueId>& callers, std::set<ValueId>& keep) {
    for (const Node& n : g_.nodes) {
      if (n.op != "view" || g_.at(n.inputs[0]).constant) continue;
      for (std::set<ValueId>* set : {&keep, &beyond_}) {
        if (set->contains(n.inputs[0])) set->insert(n.outputs[0]);
      }
      if (!keep.contains(n.inputs[0]) && !options_.keep.contains(n.outputs[0]) && !callers.contains(n.outputs[0]))
        keep.erase(n.outputs[0]);
    }
  }

  // Heads that are refused for their size alone will be padded (lower/pad_heads.h): kernels are asked with those, too.
  bool runs(const std::vector<int>& producers, const Node& node) const {
    if (runnable(g_, producers, node, *options_.target)) return true;
    if (node.op != "attention") return false;
    Problem p = problem_of(g_, producers, node);
    const auto padded = [](const Operand& o) {
      Shape shape = o.shape;
      if (!shape.empty()) shape.back() = (shape.back() + 15) / 16 * 16;
      return dense_operand(shape, o.type);
    };
    for (size_t i = 0; i < 3; ++i) p.in[i] = padded(p.in[i]);
    p.out[0] = padded(p.out[0]);
    return runnable(p, *options_.target);
  }

  // A copy in the carrier would clamp what lies beyond it: such values are read as they are, or as codes that are made
  // of them.
  Status check_readers(const std::set<ValueId>& callers) const {
    if (!options_.target) return {};
    const std::vector<int> producers = g_.producers();
    const ElementInfo& carrier = info(options_.carrier);
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const Node& node = g_.nodes[n];
      if (node.op == "view" || node.op == "copy" || node.op == "concat") continue;  // they read anything
      bool in_codes = false;  // such layers have their kernel once their codes are placed: the plan judges them
      for (size_t i = 0; i < node.inputs.size(); ++i)
        in_codes = in_codes || (options_.has_codes && options_.has_codes(n, i));
      if (in_codes) continue;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const ValueId in = node.inputs[i];
        if (in == kNoValue || !beyond_.contains(in) || callers.contains(in)) continue;
        if (runs(producers, node)) continue;
        const Reach& r = reach_[static_cast<size_t>(in)];
        const std::string limit =
            r.leaves(options_.carrier) ? cat(" holds at most ", carrier.max) : " loses scores beside it";
        return refused_layer(node, node.asked,
                             cat("'", g_.at(in).name, "' reaches ", std::fabs(r.low) > r.high ? r.low : r.high, ", ",
                                 carrier.name, limit, ", and no kernel of ", info(*options_.target).name,
                                 " for this layer reads it in f32; build with --precision fp32"));
      }
    }
    return {};
  }

  // Vectors that only layers read whose results go to the caller in f32: libraries add a bias of the result's own type.
  void keep_vectors_of_results(std::set<ValueId>& keep) const {
    std::set<ValueId> vectors, others;
    for (const Node& n : g_.nodes) {
      const bool result =
          n.outputs.size() == 1 && std::find(g_.outputs.begin(), g_.outputs.end(), n.outputs[0]) != g_.outputs.end();
      for (size_t i = 0; i < n.inputs.size(); ++i) {
        const bool vector = std::any_of(n.then.steps.begin(), n.then.steps.end(), [&](const Step& s) {
          return s.operand == static_cast<int>(i) && operand_of(s.kind) == StepOperand::kVector;
        });
        if (n.inputs[i] != kNoValue)
          (result && vector && g_.at(n.inputs[i]).constant ? vectors : others).insert(n.inputs[i]);
      }
    }
    std::set_difference(vectors.begin(), vectors.end(), others.begin(), others.end(), std::inserter(keep, keep.end()));
  }

  // The same of a vector that is a row of a table made for this layer (lower/fold_one.h), with the table.
  void keep_rows_of_results(std::set<ValueId>& keep) const {
    const std::vector<int> producers = g_.producers();
    for (const Node& n : g_.nodes) {
      if (n.outputs.size() != 1 || std::find(g_.outputs.begin(), g_.outputs.end(), n.outputs[0]) == g_.outputs.end())
        continue;
      for (const Step& s : n.then.steps) {
        if (operand_of(s.kind) != StepOperand::kVector) continue;
        const ValueId row = placement_of(g_, producers, n.inputs[static_cast<size_t>(s.operand)]).base;
        const int maker = producers[static_cast<size_t>(row)];
        if (maker < 0 || !g_.nodes[static_cast<size_t>(maker)].attrs.has(kTables)) continue;
        keep.insert({g_.nodes[static_cast<size_t>(maker)].inputs[0], row});
      }
    }
  }

  // Values that only say which keys a query may see, or by which angle a token is turned, and what those are computed
  // from: 16 bits have no minus infinity that stays one (it saturates), and positions times frequencies lose their
  // angle in them. Attention and rotary read such operands in f32.
  std::set<ValueId> only_masks_and_angles() const {
    std::vector<int> other_readers(g_.values.size(), 0), readers(g_.values.size(), 0);
    for (ValueId out : g_.outputs) ++other_readers[static_cast<size_t>(out)];
    for (size_t n = g_.nodes.size(); n-- > 0;) {
      const Node& node = g_.nodes[n];
      bool passes_on =
          node.op == "map" || node.op == "view" || node.op == "copy" || node.op == "concat" || node.op == "gather";
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

  // Where a caller's reader is a copy already (patches), that one converts.
  void cast_for_readers(const std::set<ValueId>& callers, std::vector<size_t>& new_places) {
    std::map<ValueId, ValueId> cast;
    std::vector<Node> nodes;
    new_places.clear();
    const std::vector<int> producers = g_.producers();
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      Node& node = g_.nodes[n];
      const bool converts = node.op == "copy" || node.op == "view";
      const bool reads_as_is = options_.target && runs(producers, node);
      for (size_t i = 0; !converts && !reads_as_is && i < node.inputs.size(); ++i) {
        ValueId& in = node.inputs[i];
        // A constant that keeps f32 is read by a layer that does, too, once its input is what it asks for.
        if (in == kNoValue || !callers.contains(in) || g_.at(in).constant) continue;
        if (static_cast<int>(i) == ExtraResults::of(node.attrs).gain && i > 0) continue;  // f32 or the carrier
        if (!is_float(g_.at(in).type.quant.element)) continue;
        if (options_.carrier == Element::f32 || (options_.has_codes && options_.has_codes(n, i))) continue;
        auto [it, fresh] = cast.emplace(in, kNoValue);
        if (fresh) {
          Value v;
          v.name = g_.at(in).name + ".cast";
          v.type = {g_.at(in).type.shape, options_.carrier};
          it->second = g_.add_value(std::move(v));
          nodes.push_back({.name = g_.at(in).name + ".cast", .op = "copy", .inputs = {in}, .outputs = {it->second}});
        }
        in = it->second;
      }
      new_places.push_back(nodes.size());
      nodes.push_back(std::move(node));
    }
    g_.nodes = std::move(nodes);
  }

  Graph& g_;
  const CarrierOptions& options_;
  std::vector<Reach> reach_;  // of every value, where the carrier is not f32
  std::set<ValueId> beyond_;  // results that keep f32 because the carrier does not hold them
};

}  // namespace

Status give_carrier(Graph& graph, const CarrierOptions& options, std::vector<size_t>& new_places) {
  return CarrierGiver(graph, options).run(new_places);
}

}  // namespace tessera
