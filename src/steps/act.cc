// SPDX-License-Identifier: Apache-2.0
#include "steps/act.h"

#include "steps/step.h"
#include "steps/unary.h"

namespace tessera {
namespace {

void reference(const StepRow& r, double* v) {
  for (int64_t c = 0; c < r.cols; ++c) v[c] = apply(r.step.fn, v[c]);
}

void errors(const StepRow& r, const double* before, const double* after, double* e) {
  for (int64_t c = 0; c < r.cols; ++c) e[c] = unary_error(r.step.fn, before[c], after[c], e[c], r.activation_error);
}

// Functions that models have between layers: others stay maps.
bool is_activation(Unary fn) {
  switch (fn) {
    case Unary::relu:
    case Unary::silu:
    case Unary::gelu_erf:
    case Unary::gelu_tanh:
    case Unary::gelu_quick:
    case Unary::tanh:
    case Unary::sigmoid:
      return true;
    default:
      return false;
  }
}

bool read(std::span<const StepMap> maps, Step* step) {
  const auto fn = maps.empty() ? std::nullopt : find_unary(maps[0].fn);
  if (!fn || !is_activation(*fn)) return false;
  step->fn = *fn;
  return true;
}

}  // namespace

StepInfo act_step() {
  return {.meaning = "v = f(v)",
          .reference = reference,
          .errors = errors,
          .unfused = [](const Step& step) { return std::vector<StepMap>{{name_of(step.fn)}}; },
          .read = read};
}

}  // namespace tessera
