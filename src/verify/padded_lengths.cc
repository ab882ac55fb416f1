// SPDX-License-Identifier: Apache-2.0
#include "verify/padded_lengths.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <optional>
#include <set>

#include "compile/compile.h"
#include "golden/closeness.h"
#include "golden/golden_run.h"
#include "inputs/samples.h"
#include "op/errors.h"
#include "ops/ops.h"
#include "precision/masks.h"
#include "runtime/fit_lengths.h"

namespace tessera {
namespace {

constexpr double kOneRounding = 0x1p-24;  // of f32, relative
// What padding changes is larger; where roundings alone could do so much, nothing can be told.
constexpr double kWidestBound = 0x1p-12;

std::string brief(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1e", x);
  return text;
}

const Operand& desc_of(const Plan& plan, const Port& port) {
  return plan.tensors[static_cast<size_t>(port.tensor)].desc;
}

bool is_whole(const Plan& plan, size_t output) {
  return info(desc_of(plan, plan.outputs[output]).type.element).kind == ElementKind::kInteger;
}

// The model at both lengths, as plans of the references.
struct Both {
  Engine engine;
  Plan exact, padded;
};
Result<Both> make_both(const Graph& exact, const Graph& padded) {
  Both both;
  ConstantPool pool(both.engine.constants);
  TS_ASSIGN(both.exact, lower_in_f32(exact, pool, /*as_reference=*/true));
  TS_ASSIGN(both.padded, lower_in_f32(padded, pool, /*as_reference=*/true));
  return both;
}

// Both runs compute each number alike, but for sums: they may be taken in another order where there is more to add.
std::vector<double> noise_of_sums(const Plan& plan) {
  std::vector<double> noise;
  for (const PlanStep& s : plan.steps) {
    const OpInfo* const op = find_op(s.op);
    noise.push_back(op != nullptr && terms_of(*op, problem_of(plan, s)) > 1 ? kOneRounding : 0);
  }
  return noise;
}

// Random inputs, and masks that hide nothing.
Samples seen_samples(const Plan& plan, const Graph& graph, uint64_t seed) {
  Samples samples = random_samples(plan, plan.batch, seed);
  const std::set<ValueId> masks = mask_inputs(graph);
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    std::string name = plan.inputs[i].name;
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    const bool acts =
        std::any_of(masks.begin(), masks.end(), [&](ValueId id) { return graph.at(id).name == plan.inputs[i].name; });
    if (!acts && name.find("mask") == std::string::npos) continue;
    const Operand& desc = desc_of(plan, plan.inputs[i]);
    const std::vector<float> ones(static_cast<size_t>(elements(desc.shape)), 1.0f);
    Buffer b(samples.data[i].size());
    info(desc.type.element).encode(ones.data(), static_cast<int64_t>(ones.size()), b.data(), 0);
    samples.data[i] = Bytes::own(std::move(b));
  }
  return samples;
}

Samples with_zeros(const Plan& exact, const Plan& padded, const Samples& samples) {
  Samples longer = samples;
  for (size_t i = 0; i < padded.inputs.size(); ++i) {
    const Operand &from = desc_of(exact, exact.inputs[i]), &to = desc_of(padded, padded.inputs[i]);
    Buffer b(static_cast<size_t>(packed_bytes(to.type.element, elements(to.shape))));
    copy_front(from.shape, samples.data[i].data(), to.shape, b.data(), info(to.type.element).bits / 8);
    longer.data[i] = Bytes::own(std::move(b));
  }
  return longer;
}

// What both shapes have, from the front of the larger one; nothing where it is smaller along an axis.
std::optional<std::vector<double>> cut(const std::vector<double>& numbers, const Shape& from, const Shape& to) {
  if (from.size() != to.size()) return std::nullopt;
  for (size_t a = 0; a < to.size(); ++a) {
    if (from[a] < to[a]) return std::nullopt;
  }
  std::vector<double> out(static_cast<size_t>(elements(to)));
  copy_front(from, numbers.data(), to, out.data(), sizeof(double));
  return out;
}

bool all_finite(const std::vector<double>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](double x) { return std::isfinite(x); });
}

// One output of a run at its own length, and of the padded run.
std::string compare_output(const Both& both, size_t o, double bound, const std::vector<double>& want,
                           const std::vector<double>& padded) {
  const Operand &small = desc_of(both.exact, both.exact.outputs[o]),
                &large = desc_of(both.padded, both.padded.outputs[o]);
  const std::string name = cat("output '", both.exact.outputs[o].name, "'");
  const auto got = cut(padded, large.shape, small.shape);
  if (!got) return cat(name, " is ", to_string(small.shape), " as it is, and ", to_string(large.shape), " when padded");
  if (!all_finite(want) || !all_finite(*got)) return cat(name, " holds NaN or Inf on random inputs");
  if (is_whole(both.exact, o)) return *got == want ? "" : cat(name, ", whole numbers, is not the same when padded");
  const double apart = compare(*got, want, both.exact.batch).relative_l2;
  if (bound > kWidestBound) return cat(name, " may change by ", brief(bound), " (relative L2) by roundings alone");
  if (apart <= bound) return "";
  return cat(name, " differs by ", brief(apart), " (relative L2; roundings explain ", brief(bound), ")");
}

}  // namespace

Result<std::string> what_padding_changes(const Graph& exact, const Graph& padded, uint64_t seed) {
  TS_ASSIGN(const Both both, make_both(exact, padded));
  const size_t outputs = both.exact.outputs.size();
  std::vector<size_t> real;
  for (size_t o = 0; o < outputs; ++o) {
    if (!is_whole(both.exact, o)) real.push_back(o);
  }
  if (real.empty()) return std::string("all outputs are whole numbers, in which the effect of padding need not show");
  std::vector<double> bounds;  // from the first inputs: f64 is slow
  std::vector<Outputs64> runs;
  for (const uint64_t s : {seed, seed + 1}) {
    const Samples samples = seen_samples(both.exact, exact, s);
    TS_ASSIGN(const Outputs64 want, run_plan(both.engine, both.exact, samples));
    if (bounds.empty()) {
      const std::vector<double> noise = noise_of_sums(both.exact);
      TS_ASSIGN(const Outputs64 noisy, run_noisy(both.engine, both.exact, samples, noise, want, nullptr));
      for (size_t o = 0; o < outputs; ++o) bounds.push_back(bound_from(noisy[o], want[o], both.exact.batch));
    }
    TS_ASSIGN(const Outputs64 got, run_plan(both.engine, both.padded, with_zeros(both.exact, both.padded, samples)));
    for (size_t o = 0; o < outputs; ++o) {
      const std::string changed = compare_output(both, o, bounds[o], want[o], got[o]);
      if (!changed.empty()) return changed;
    }
    runs.push_back(want);
  }
  const bool all_same = std::all_of(real.begin(), real.end(), [&](size_t o) { return runs[0][o] == runs[1][o]; });
  if (all_same) return std::string("the outputs do not depend on the inputs that were tried");
  return std::string();
}

}  // namespace tessera
