// SPDX-License-Identifier: Apache-2.0
#include "lower/find_folds.h"

#include <algorithm>
#include <cmath>

#include "op/extra_results.h"
#include "precision/roles.h"

namespace tessera {
namespace {

bool is_plain_constant(const Graph& g, ValueId id) {
  return g.at(id).constant && g.at(id).type.quant == QuantType(Element::f32);
}

ValueId input_of(const Node& node, size_t i) { return i < node.inputs.size() ? node.inputs[i] : kNoValue; }

}  // namespace

std::optional<TableRow> table_row(const Graph& g, const std::vector<int>& producers, ValueId v) {
  if (v == kNoValue) return std::nullopt;
  const Placement p = placement_of(g, producers, v);
  const int maker = producers[static_cast<size_t>(p.base)];
  if (maker < 0 || !is_dense(g.at(v).type.shape, p.strides)) return std::nullopt;
  const Node& node = g.nodes[static_cast<size_t>(maker)];
  if (node.op != "gather" || !is_plain_constant(g, node.inputs[0])) return std::nullopt;
  const Shape& table = g.at(node.inputs[0]).type.shape;
  if (table.size() != 2 || elements(g.at(node.inputs[1]).type.shape) != 1) return std::nullopt;
  return TableRow{static_cast<size_t>(maker), node.inputs[0], node.inputs[1], p.offset};
}

std::optional<Fold> NormFinder::find(size_t norm) const {
  const Node& node = g_.nodes[norm];
  if (node.op != "norm" || !node.then.empty()) return std::nullopt;
  for (const auto& [name, unused] : node.attrs.all()) {
    if (name != "kind" && name != "eps") return std::nullopt;
  }
  Fold f{.norm = norm};
  if (!constant_vectors(node)) {
    f.modulated = modulation_of(node);
    if (!f.modulated) return std::nullopt;
  }
  const auto x = whole(node.inputs[0]);
  const int maker = x ? producers_[static_cast<size_t>(*x)] : -1;
  if (maker < 0 || !is_matmul_layer(g_, g_.nodes[static_cast<size_t>(maker)])) return std::nullopt;
  f.before = static_cast<size_t>(maker);
  const Node& before = g_.nodes[f.before];
  if (before.outputs[0] != *x || before.then.gated() || !find_readers(node.outputs[0], f)) return std::nullopt;
  if (f.modulated && !makes_room(f, *x)) return std::nullopt;
  f.alone = !others_read(*x, norm);
  return f;
}

bool NormFinder::constant_vectors(const Node& norm) const {
  return std::all_of(norm.inputs.begin() + 1, norm.inputs.end(),
                     [&](ValueId v) { return v == kNoValue || (is_plain_constant(g_, v) && is_finite(v)); });
}

// A norm about the mean would want rows of x times gain centred, which no weight can do for a gain that changes.
std::optional<Modulation> NormFinder::modulation_of(const Node& norm) const {
  const auto gain = table_row(g_, producers_, input_of(norm, 1));
  if (!gain || norm.attrs.word("kind", "layer") != "rms" || !is_finite(gain->table)) return std::nullopt;
  Modulation m{*gain, {}};
  if (input_of(norm, 2) == kNoValue) return m;
  m.shift = table_row(g_, producers_, input_of(norm, 2));
  const bool fits = m.shift && m.shift->ids == gain->ids && is_finite(m.shift->table) &&
                    g_.at(m.shift->table).type.shape[0] == g_.at(gain->table).type.shape[0];
  return fits ? std::optional(m) : std::nullopt;
}

// The layer before knows the gain when it runs, and makes codes of no other norm yet.
bool NormFinder::makes_room(const Fold& f, ValueId x) const {
  if (f.modulated->gain.gather > f.before || ExtraResults::of(g_.nodes[f.before].attrs).codes != 0) return false;
  for (size_t n = 0; n < f.norm; ++n) {
    const Node& other = g_.nodes[n];
    if (other.op == "norm" && whole(other.inputs[0]) == x && !constant_vectors(other)) return false;
  }
  return true;
}

std::optional<ValueId> NormFinder::whole(ValueId v) const {
  const Placement p = placement_of(g_, producers_, v);
  const Shape &shape = g_.at(v).type.shape, &base = g_.at(p.base).type.shape;
  if (shape.empty() || base.empty() || shape.back() != base.back() || elements(shape) != elements(base) ||
      p.offset != 0 || !is_dense(shape, p.strides))
    return std::nullopt;
  return p.base;
}

// What is not is told of the norm itself, by who reads it.
bool NormFinder::is_finite(ValueId id) const {
  const std::vector<double> numbers = g_.numbers(id);
  return std::all_of(numbers.begin(), numbers.end(), [](double x) { return std::isfinite(x); });
}

bool NormFinder::in_storage(ValueId id, ValueId base) const {
  return id != kNoValue && !g_.at(id).constant && placement_of(g_, producers_, id).base == base;
}

bool NormFinder::others_read(ValueId x, size_t norm) const {
  for (size_t n = 0; n < g_.nodes.size(); ++n) {
    if (n == norm || g_.nodes[n].op == "view") continue;
    if (std::any_of(g_.nodes[n].inputs.begin(), g_.nodes[n].inputs.end(),
                    [&](ValueId in) { return in_storage(in, x); }))
      return true;
  }
  return false;
}

bool NormFinder::find_readers(ValueId y, Fold& f) const {
  for (ValueId out : g_.outputs) {
    if (in_storage(out, y)) return false;
  }
  for (size_t n = 0; n < g_.nodes.size(); ++n) {
    const Node& reader = g_.nodes[n];
    if (reader.op == "view") continue;
    for (size_t i = 0; i < reader.inputs.size(); ++i) {
      if (!in_storage(reader.inputs[i], y)) continue;
      if (i != 0 || !takes_factors(reader, f.modulated.has_value()) || whole(reader.inputs[0]) != y) return false;
      f.behind.push_back(n);
    }
  }
  return !f.behind.empty();
}

bool NormFinder::takes_factors(const Node& layer, bool modulated) const {
  // A bias that comes later than first would have to take the shift through what stands before it.
  if (!is_matmul_layer(g_, layer) ||
      !layer.then.within({StepKind::bias, StepKind::act, StepKind::scale, StepKind::residual}) ||
      layer.attrs.has("type.0"))
    return false;
  const ValueId w = layer.inputs[1];
  if (!is_plain_constant(g_, w) || g_.at(w).type.shape.size() != 2) return false;
  if (const Step* bias = layer.then.find(StepKind::bias);
      bias != nullptr && !is_plain_constant(g_, layer.inputs[static_cast<size_t>(bias->operand)]))
    return false;
  // Layers that a gate joins become one matmul, which is worth more (lower/fuse_gate.h) than a norm whose gain is in
  // the weights. One that reads its gain costs more: it goes, and the gate joins what is left.
  return modulated || std::none_of(g_.nodes.begin(), g_.nodes.end(), [&](const Node& n) {
           return n.op == "map" && std::any_of(n.inputs.begin(), n.inputs.end(),
                                               [&](ValueId in) { return in_storage(in, layer.outputs[0]); });
         });
}

}  // namespace tessera
