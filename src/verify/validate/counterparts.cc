// SPDX-License-Identifier: Apache-2.0
#include "verify/validate/counterparts.h"

#include <algorithm>

#include "base/parallel.h"
#include "ir/layer_ops.h"
#include "ir/padding.h"
#include "steps/step.h"
#include "verify/validate/table_rows.h"

namespace tessera {
namespace {

const char* name_of_operand(const std::string& op, size_t operand) {
  if (multiplies_weights(op)) return operand == 1 ? "weight" : "input";
  if (op == "norm") return operand == 1 ? "gain" : operand == 2 ? "shift" : "input";
  if (op == "attention") return operand == 3 ? "attention bias" : operand == 4 ? "attention lengths" : "input";
  if (op == "gather" || op == "rotary") return "table";
  return "constant";
}

// The program step that reads an operand, and which of its kind it is.
struct ProgramRole {
  const Step* step = nullptr;
  int nth = 0;
};
ProgramRole role_of(const Program& then, size_t operand) {
  for (const Step& s : then.steps) {
    if (s.operand != static_cast<int>(operand)) continue;
    int nth = 0;
    for (const Step* before = then.steps.data(); before != &s; ++before) nth += before->kind == s.kind;
    return {&s, nth};
  }
  return {};
}

ValueId vector_of(const Node& layer, StepKind kind, int nth) {
  for (const Step& s : layer.then.steps) {
    if (s.kind == kind && nth-- == 0) return s.operand < 0 ? kNoValue : layer.inputs[static_cast<size_t>(s.operand)];
  }
  return kNoValue;
}

std::vector<Counterpart> constant(const ModelValues& m, ValueId id, const char* what) {
  if (id == kNoValue || !m.is_constant(id)) return {};
  const Type& type = m.graph().at(id).type;
  return {{.what = what, .shape = type.shape, .numbers = m.constant(id), .rounded = type.quant.scaled()}};
}

std::vector<double> numbers_or(const ModelValues& m, const Node& node, size_t input, int64_t count, double otherwise) {
  if (node.inputs.size() > input && node.inputs[input] != kNoValue) {
    return m.is_constant(node.inputs[input]) ? m.constant(node.inputs[input]) : std::vector<double>();
  }
  return std::vector<double>(static_cast<size_t>(count), otherwise);
}

std::vector<Counterpart> folded_weight(const ModelValues& m, const Node& layer, const Node& norm) {
  std::vector<Counterpart> made = constant(m, layer.inputs[1], "weight");
  if (made.empty() || made[0].shape.size() != 2) return {};
  const size_t rows = static_cast<size_t>(made[0].shape[0]), cols = static_cast<size_t>(made[0].shape[1]);
  const std::vector<double> gain = numbers_or(m, norm, 1, made[0].shape[1], 1);
  if (gain.size() != cols) return {};
  const bool centred = norm.attrs.word("kind", "layer") != "rms";
  std::vector<double>& w = made[0].numbers;
  parallel_for(static_cast<int64_t>(rows), 16, [&](int64_t begin, int64_t end) {
    for (size_t r = static_cast<size_t>(begin); r < static_cast<size_t>(end); ++r) {
      double sum = 0;
      for (size_t c = 0; c < cols; ++c) sum += w[r * cols + c] *= gain[c];
      for (size_t c = 0; centred && c < cols; ++c) w[r * cols + c] -= sum / static_cast<double>(cols);
    }
  });
  made[0].rounded = false, made[0].derived = true;
  return made;
}

std::vector<Counterpart> folded_bias(const ModelValues& m, const Node& layer, const Node& norm) {
  const std::vector<Counterpart> w = constant(m, layer.inputs[1], "weight");
  if (w.empty() || w[0].shape.size() != 2) return {};
  const size_t rows = static_cast<size_t>(w[0].shape[0]), cols = static_cast<size_t>(w[0].shape[1]);
  const std::vector<double> shift = numbers_or(m, norm, 2, w[0].shape[1], 0);
  std::vector<Counterpart> made = constant(m, vector_of(layer, StepKind::bias, 0), "bias");
  if (shift.size() != cols || (!made.empty() && made[0].numbers.size() != rows)) return {};
  if (made.empty()) made = {{.what = "bias", .shape = {w[0].shape[0]}, .numbers = std::vector<double>(rows, 0.0)}};
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c) made[0].numbers[r] += w[0].numbers[r * cols + c] * shift[c];
  }
  made[0].derived = true;
  return made;
}

// Both halves one after the other; those of one layer also the other way round.
std::vector<Counterpart> joined(std::vector<Counterpart> gate, const std::vector<Counterpart>& up, bool one) {
  Counterpart c = std::move(gate[0]);
  if (one) {
    Counterpart turned = c;
    std::rotate(turned.numbers.begin(), turned.numbers.begin() + static_cast<std::ptrdiff_t>(c.numbers.size() / 2),
                turned.numbers.end());
    return {std::move(c), std::move(turned)};
  }
  if (c.shape.empty() || !std::equal(c.shape.begin() + 1, c.shape.end(), up[0].shape.begin() + 1, up[0].shape.end()))
    return {};
  c.shape[0] += up[0].shape[0];
  c.numbers.insert(c.numbers.end(), up[0].numbers.begin(), up[0].numbers.end());
  c.rounded = c.rounded && up[0].rounded;
  return {std::move(c)};
}

std::vector<Counterpart> of_gate(const ModelValues& m, const PlanStep& step, size_t operand) {
  const std::vector<std::string> names = layers_of(step);
  const Node *gate = m.layer(names.front()), *up = m.layer(names.back());
  if (gate == nullptr || up == nullptr || gate->op != "matmul" || up->op != "matmul") return {};
  const bool one = gate == up;
  if (operand == 1) {
    std::vector<Counterpart> a = constant(m, gate->inputs[1], "weight"), b = constant(m, up->inputs[1], "weight");
    return a.empty() || b.empty() ? std::vector<Counterpart>() : joined(std::move(a), b, one);
  }
  const ProgramRole role = role_of(step.then, operand);
  if (role.step == nullptr || role.step->kind != StepKind::bias) return {};
  std::vector<Counterpart> a = constant(m, vector_of(*gate, StepKind::bias, 0), "bias"),
                           b = constant(m, vector_of(*up, StepKind::bias, 0), "bias");
  if (a.empty() && b.empty()) return {};
  const auto zeros = [&](const Node& layer) {
    const int64_t n = m.graph().at(layer.inputs[1]).type.shape[0];
    return std::vector<Counterpart>{
        {.what = "bias", .shape = {n}, .numbers = std::vector<double>(static_cast<size_t>(n), 0.0)}};
  };
  if (a.empty()) a = zeros(*gate);
  if (b.empty()) b = zeros(*up);
  return joined(std::move(a), b, one);
}

// A map of one of the layer's steps.
std::vector<Counterpart> of_unfused(const ModelValues& m, const PlanStep& step, const Node& layer) {
  std::vector<Counterpart> found;
  const std::string fn = step.attrs.word("fn");
  for (const Step& s : layer.then.steps) {
    const auto maps = info(s.kind).unfused;
    if (maps == nullptr) continue;
    for (const StepMap& map : maps(s)) {
      if (map.fn != fn || map.with == StepMap::With::kNothing) continue;
      const ValueId operand = s.operand < 0 ? kNoValue : layer.inputs[static_cast<size_t>(s.operand)];
      if (map.with == StepMap::With::kNumber) {
        found.push_back({.what = name_of(s.kind), .shape = {}, .numbers = {map.number}});
      } else {
        for (Counterpart& c : constant(m, operand, operand_name(s.kind))) found.push_back(std::move(c));
      }
    }
  }
  return found;
}

std::vector<Counterpart> unpadded(const ModelValues& model, const PlanStep& step, size_t operand, const Node& layer,
                                  bool plain);

// Cosines and sines of the rotary that turns the layer's result, side by side.
std::vector<Counterpart> of_angles(const ModelValues& m, const Node& layer) {
  const Node* rotary = rotary_behind(m, layer);
  if (rotary == nullptr) return {};
  std::vector<Counterpart> made = constant(m, rotary->inputs[1], "angles"),
                           sines = constant(m, rotary->inputs[2], "angles");
  if (made.empty() || sines.empty() || made[0].shape != sines[0].shape) return {};
  const size_t pairs = static_cast<size_t>(made[0].shape.back());
  std::vector<double> both;
  for (size_t at = 0; at < made[0].numbers.size(); at += pairs) {
    for (const Counterpart* c : {&made[0], &sines[0]})
      both.insert(both.end(), c->numbers.begin() + static_cast<std::ptrdiff_t>(at),
                  c->numbers.begin() + static_cast<std::ptrdiff_t>(at + pairs));
  }
  made[0].numbers = std::move(both);
  made[0].shape.back() *= 2;
  return made;
}

// Rows of all layers, one after the other; of each the same choice where there are several.
std::vector<Counterpart> of_joined(const ModelValues& m, const PlanStep& step, size_t operand, bool plain) {
  PlanStep alone = step;
  alone.attrs.erase(kJoined);
  const ProgramRole role = role_of(step.then, operand);
  std::vector<Counterpart> all;
  const std::vector<std::string> names = layers_of(step);
  for (size_t i = 0; i < names.size(); ++i) {
    const Node* layer = m.layer(names[i]);
    if (layer == nullptr || layer->op != "matmul") return {};
    std::vector<Counterpart> own = unpadded(m, alone, operand, *layer, plain);
    if (own.empty() && role.step != nullptr && operand_of(role.step->kind) == StepOperand::kVector) {
      const int64_t n = m.graph().at(layer->inputs[1]).type.shape[0];
      const double neutral = role.step->kind == StepKind::scale ? 1 : 0;
      own = {{.what = operand_name(role.step->kind),
              .shape = {n},
              .numbers = std::vector<double>(static_cast<size_t>(n), neutral)}};
    }
    if (own.empty()) return {};
    if (i > 0) all.resize(std::min(all.size(), own.size()));
    for (size_t c = 0; c < (i > 0 ? all.size() : own.size()); ++c) {
      if (i == 0) {
        all.push_back(own[c]);
        continue;
      }
      const std::vector<Counterpart> both = joined({all[c]}, {own[c]}, false);
      if (both.empty()) return {};
      all[c] = both[0];
    }
  }
  return all;
}

}  // namespace

const Node* norm_before(const ModelValues& model, const Node& layer) {
  if (layer.inputs.empty() || layer.inputs[0] == kNoValue || model.is_constant(layer.inputs[0])) return nullptr;
  const Node* norm = model.maker(model.place(layer.inputs[0]).base);
  return norm != nullptr && norm->op == "norm" ? norm : nullptr;
}

const Node* rotary_behind(const ModelValues& model, const Node& layer) {
  for (const Node& n : model.graph().nodes) {
    if (n.op != "rotary" || model.is_constant(n.inputs[0])) continue;
    const Place x = model.place(n.inputs[0]);
    if (x.base == layer.outputs[0] && x.region.whole()) return &n;
  }
  return nullptr;
}

bool is_plain(const Node& norm) {
  return std::all_of(norm.inputs.begin() + 1, norm.inputs.end(), [](ValueId v) { return v == kNoValue; });
}

namespace {

std::vector<Counterpart> unpadded(const ModelValues& model, const PlanStep& step, size_t operand, const Node& layer,
                                  bool plain) {
  if (const Step* read = role_of(step.then, operand).step; read != nullptr && read->kind == StepKind::rotary)
    return of_angles(model, layer);
  if (step.op == "matmul" && step.attrs.has(kJoined)) return of_joined(model, step, operand, plain);
  if (step.then.gated() && !layer.then.gated()) return of_gate(model, step, operand);
  if (step.op == "map" && layer.op != "map") return of_unfused(model, step, layer);
  if (step.op != layer.op) return {};
  const ProgramRole role = role_of(step.then, operand);
  const auto as_written = [&] {
    if (role.step != nullptr)
      return constant(model, vector_of(layer, role.step->kind, role.nth), operand_name(role.step->kind));
    return operand < layer.inputs.size() ? constant(model, layer.inputs[operand], name_of_operand(step.op, operand))
                                         : std::vector<Counterpart>();
  };
  const bool folded = step.then.find(StepKind::normalise) != nullptr && layer.then.find(StepKind::normalise) == nullptr;
  if (!folded && !(plain && step.op == "matmul")) return as_written();
  const Node* norm = norm_before(model, layer);
  if (norm == nullptr) return {};
  if (is_modulated(model, *norm)) return as_written();  // what changes with time is in no weight
  const bool weight = operand == 1, bias = role.step != nullptr && role.step->kind == StepKind::bias;
  if (!weight && !bias) return as_written();
  std::vector<Counterpart> made = weight ? folded_weight(model, layer, *norm) : folded_bias(model, layer, *norm);
  // A norm of the model that has neither: nothing tells whether the weights are centred, which its rows are already.
  if (!folded && is_plain(*norm)) {
    std::vector<Counterpart> own = as_written();
    made.insert(made.begin(), own.begin(), own.end());
  }
  return made;
}

// As the step has it padded; as it is where the step does not say how its shape becomes the stored one.
Counterpart padded(const PlanStep& step, size_t operand, Counterpart c, const Shape& stored) {
  if (c.shape == stored || c.shape.empty() || stored.size() != c.shape.size()) return c;
  if (multiplies_weights(step.op) && operand == 1) {
    std::vector<double> made = padded_weight(step.attrs, c.numbers, c.shape, stored);
    if (!made.empty()) c.numbers = std::move(made), c.shape = stored;
    return c;
  }
  if (!std::equal(c.shape.begin(), c.shape.end() - 1, stored.begin())) return c;
  std::optional<PaddedPlaces> cols;
  if (multiplies_weights(step.op) || step.op == "map")
    cols = read_places(step.attrs, kPaddedRows, c.shape.back(), stored.back());
  if (step.op == "attention" && operand < 3 && stored.back() > c.shape.back())
    cols = padded_groups(1, c.shape.back(), stored.back());
  if (cols) c.numbers = placed(c.numbers, c.shape.back(), std::nullopt, cols), c.shape = stored;
  return c;
}

}  // namespace

std::vector<Counterpart> counterparts(const ModelValues& model, const PlanStep& step, size_t operand, const Node& layer,
                                      bool plain, const Shape& stored) {
  std::vector<Counterpart> all = unpadded(model, step, operand, layer, plain);
  for (Counterpart& c : all) c = padded(step, operand, std::move(c), stored);
  return all;
}

}  // namespace tessera
