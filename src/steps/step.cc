// SPDX-License-Identifier: Apache-2.0
#include "steps/step.h"

#include <algorithm>
#include <cmath>

#include "steps/functors.h"

namespace tessera {

#define TS_STEP(name, ...) StepInfo name##_step();
#include "ir/steps.inc"
#undef TS_STEP

namespace {

template <StepKind kind>
StepInfo with_functor(StepInfo info) {
  if constexpr (WorksOnNumbers<kind>) {
    info.run = [](const StepArgs& args, const float* operand, float* v, int64_t n) {
      for (int64_t i = 0; i < n; ++i)
        v[i] = StepFunctor<kind>::apply(v[i], operand_of(kind) == StepOperand::kNone ? 0.0f : operand[i], args);
    };
  }
  return info;
}

// A single number repeats over the columns: it is a vector too.
bool fits(const StepMap& wanted, const StepMap& seen) {
  if (seen.fn != wanted.fn) return false;
  if (wanted.with == StepMap::With::kVector)
    return seen.with == StepMap::With::kVector || seen.with == StepMap::With::kNumber;
  if (seen.with != wanted.with) return false;
  return wanted.with != StepMap::With::kNumber || static_cast<float>(seen.number) == static_cast<float>(wanted.number);
}

}  // namespace

const StepInfo& info(StepKind kind) {
  static const StepInfo kInfos[] = {
#define TS_STEP(name, ...) with_functor<StepKind::name>(name##_step()),
#include "ir/steps.inc"
#undef TS_STEP
  };
  return kInfos[static_cast<size_t>(kind)];
}

const char* operand_name(StepKind kind) {
  const char* known = info(kind).operand_name;
  return known != nullptr ? known : name_of(kind);
}

std::optional<FusedMaps> find_fused(std::span<const StepMap> maps) {
  std::optional<FusedMaps> best;
  for (size_t k = 0; k < kStepKinds; ++k) {
    Step step{.kind = static_cast<StepKind>(k)};
    const StepInfo& known = info(step.kind);
    if (known.unfused == nullptr || (known.read != nullptr && !known.read(maps, &step))) continue;
    const std::vector<StepMap> wanted = known.unfused(step);
    if (wanted.size() > maps.size() || (best && best->count >= wanted.size())) continue;
    if (!std::equal(wanted.begin(), wanted.end(), maps.begin(), fits)) continue;
    const auto reads = std::find_if(wanted.begin(), wanted.end(), [](const StepMap& m) {
      return m.with == StepMap::With::kVector || m.with == StepMap::With::kMatrix;
    });
    best = {step, wanted.size(), static_cast<size_t>(reads - wanted.begin())};
  }
  return best;
}

Status check_vector(const StepShapes& s) {
  if (s.operand == Shape{s.cols}) return {};
  return bad_input(cat("wants [", s.cols, "], has ", to_string(s.operand)));
}

Status check_matrix(const StepShapes& s) {
  const int64_t here = elements(s.operand);
  const bool even = s.count == 0 || (here != 0 && s.count % here == 0);
  if (!s.operand.empty() && s.operand.back() == s.cols && even) return {};
  return bad_input(
      cat("wants rows of ", s.cols, " that repeat evenly over ", to_string(s.y), ", has ", to_string(s.operand)));
}

void add_operand(const StepRow& r, double* v) {
  for (int64_t c = 0; c < r.cols; ++c) v[c] += r.operand[c];
}

void errors_of_addition(const StepRow& r, const double*, const double* after, double* e) {
  for (int64_t c = 0; c < r.cols; ++c) e[c] += kFp32Unit * std::fabs(after[c]);
}

}  // namespace tessera
