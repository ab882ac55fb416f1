// SPDX-License-Identifier: Apache-2.0
#include "verify/validate/table_rows.h"

#include <algorithm>

#include "base/parallel.h"
#include "op/extra_results.h"
#include "steps/step.h"
#include "verify/validate/counterparts.h"

namespace tessera {
namespace {

ValueId vector_of(const Node& layer, StepKind kind) {
  const Step* step = layer.then.find(kind);
  return step == nullptr ? kNoValue : layer.inputs[static_cast<size_t>(step->operand)];
}

// A vector of the model that is part of a picked row.
std::optional<TableColumns> of_vector(const ModelValues& m, ValueId v, const char* what) {
  if (v == kNoValue || m.is_constant(v)) return std::nullopt;
  const Place place = m.place(v);
  const Node* gather = m.maker(place.base);
  if (gather == nullptr || gather->op != "gather" || !m.is_constant(gather->inputs[0]) ||
      !is_dense(place.region.shape, place.region.strides))
    return std::nullopt;
  const Shape& table = m.graph().at(gather->inputs[0]).type.shape;
  if (table.size() != 2) return std::nullopt;
  const int64_t count = elements(place.region.shape);
  const std::vector<double> all = m.constant(gather->inputs[0]);
  TableColumns t{.columns = {.what = what, .shape = {count, table[0]}, .numbers = {}},
                 .ids = m.place(gather->inputs[1]),
                 .place = Place{place.base, {{count}, {1}, place.region.offset}},
                 .picked = {}};
  for (int64_t c = 0; c < count; ++c) {
    for (int64_t r = 0; r < table[0]; ++r)
      t.columns.numbers.push_back(all[static_cast<size_t>(r * table[1] + place.region.offset + c)]);
  }
  return t;
}

// to[c, r] = bias[c] + sum_k w[c, k] shift[k, r]
std::vector<double> through_weight(const std::vector<double>& w, const std::vector<double>& shift,
                                   const std::vector<double>& bias, size_t rows) {
  const size_t k = shift.size() / rows, n = w.size() / k;
  std::vector<double> to(n * rows);
  parallel_for(static_cast<int64_t>(n), 16, [&](int64_t begin, int64_t end) {
    for (size_t c = static_cast<size_t>(begin); c < static_cast<size_t>(end); ++c) {
      for (size_t r = 0; r < rows; ++r) to[c * rows + r] = bias.empty() ? 0 : bias[c];
      for (size_t i = 0; i < k; ++i) {
        for (size_t r = 0; r < rows; ++r) to[c * rows + r] += w[c * k + i] * shift[i * rows + r];
      }
    }
  });
  return to;
}

// The bias of a layer behind a norm whose shift is a picked row.
Result<std::optional<TableColumns>> of_shift(ModelValues& m, const Node& layer) {
  const std::optional<TableColumns> none;
  const Node* norm = norm_before(m, layer);
  if (norm == nullptr || norm->inputs.size() < 3 || m.graph().at(layer.inputs[1]).type.shape.size() != 2) return none;
  std::optional<TableColumns> t = of_vector(m, norm->inputs[2], "bias");
  if (!t) return none;
  const ValueId own = vector_of(layer, StepKind::bias);
  if (own != kNoValue && !m.is_constant(own)) return none;
  const std::vector<double> w = m.constant(layer.inputs[1]),
                            bias = own == kNoValue ? std::vector<double>() : m.constant(own);
  TS_ASSIGN(const Dense shift, m.read(*t->place));
  t->columns.numbers = through_weight(w, t->columns.numbers, bias, static_cast<size_t>(t->columns.shape[1]));
  t->columns.shape[0] = m.graph().at(layer.inputs[1]).type.shape[0];
  t->columns.derived = true;
  t->picked = through_weight(w, shift.v, bias, 1);
  t->place.reset();
  return t;
}

// Columns of one behind those of the other.
Result<bool> append(ModelValues& m, TableColumns& to, TableColumns more) {
  if (to.ids.base != more.ids.base || to.columns.shape[1] != more.columns.shape[1]) return false;
  for (TableColumns* t : {&to, &more}) {
    if (!t->place) continue;
    TS_ASSIGN(Dense picked, m.read(*t->place));
    t->picked = std::move(picked.v);
    t->place.reset();
  }
  to.columns.shape[0] += more.columns.shape[0];
  to.columns.numbers.insert(to.columns.numbers.end(), more.columns.numbers.begin(), more.columns.numbers.end());
  to.picked.insert(to.picked.end(), more.picked.begin(), more.picked.end());
  return true;
}

// A step's vector of all its layers.
Result<std::vector<TableColumns>> of_program(ModelValues& m, const PlanStep& step, const Step& role,
                                             const Node& layer) {
  const bool folded = step.then.find(StepKind::normalise) != nullptr && role.kind == StepKind::bias;
  std::vector<TableColumns> all;
  const std::vector<std::string> names = layers_of(step);
  for (const std::string& name : names) {
    const Node* own = names.size() == 1 ? &layer : m.layer(name);
    if (own == nullptr || own->op != "matmul") return std::vector<TableColumns>();
    std::optional<TableColumns> part;
    if (folded) {
      TS_ASSIGN(part, of_shift(m, *own));
    } else {
      part = of_vector(m, vector_of(*own, role.kind), operand_name(role.kind));
    }
    if (!part) return std::vector<TableColumns>();
    if (all.empty()) {
      all.push_back(std::move(*part));
      continue;
    }
    TS_ASSIGN(const bool fits, append(m, all[0], std::move(*part)));
    if (!fits) return std::vector<TableColumns>();
  }
  return all;
}

}  // namespace

bool is_modulated(const ModelValues& m, const Node& norm) {
  return norm.inputs.size() > 1 && norm.inputs[1] != kNoValue && !m.is_constant(norm.inputs[1]);
}

const Node* norm_with_gain(const ModelValues& m, ValueId x, const Place& gain) {
  for (const Node& n : m.graph().nodes) {
    if (n.op != "norm" || m.place(n.inputs[0]).base != x || !is_modulated(m, n)) continue;
    const Place own = m.place(n.inputs[1]);
    if (own.base == gain.base && same_elements(own.region, gain.region)) return &n;
  }
  return nullptr;
}

Result<std::vector<TableColumns>> table_columns(ModelValues& m, const PlanStep& step, size_t operand,
                                                const Node& layer) {
  for (const Step& s : step.then.steps) {
    if (s.operand == static_cast<int>(operand)) return of_program(m, step, s, layer);
  }
  std::vector<TableColumns> all;
  const auto add = [&](ValueId v, const char* what) {
    if (auto t = of_vector(m, v, what)) all.push_back(std::move(*t));
  };
  if (const int gain = ExtraResults::of(step.attrs).gain; gain > 0 && operand == static_cast<size_t>(gain)) {
    for (const Node& n : m.graph().nodes) {
      if (n.op == "norm" && is_modulated(m, n) && m.place(n.inputs[0]).base == layer.outputs[0])
        add(n.inputs[1], "gain");
    }
  } else if (step.op == layer.op && operand < layer.inputs.size()) {
    add(layer.inputs[operand], "vector");
  }
  return all;
}

}  // namespace tessera
