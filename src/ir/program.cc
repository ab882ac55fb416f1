// SPDX-License-Identifier: Apache-2.0
#include "ir/program.h"

#include <iterator>

namespace tessera {
namespace {

constexpr const char* kUnaryNames[] = {
#define TS_UNARY(name) #name,
#include "ir/unary.inc"
#undef TS_UNARY
};
struct StepInfo {
  const char* name;
  StepOperand operand;
};
constexpr StepInfo kSteps[] = {
#define TS_STEP(name, operand, meaning) {#name, StepOperand::operand},
#include "ir/steps.inc"
#undef TS_STEP
};

}  // namespace

const char* name_of(Unary fn) { return kUnaryNames[static_cast<int>(fn)]; }
const char* name_of(StepKind kind) { return kSteps[static_cast<int>(kind)].name; }
StepOperand operand_of(StepKind kind) { return kSteps[static_cast<int>(kind)].operand; }

std::optional<Unary> find_unary(std::string_view name) {
  for (size_t i = 0; i < std::size(kUnaryNames); ++i) {
    if (name == kUnaryNames[i]) return static_cast<Unary>(i);
  }
  return std::nullopt;
}

std::optional<StepKind> find_step(std::string_view name) {
  for (size_t i = 0; i < std::size(kSteps); ++i) {
    if (name == kSteps[i].name) return static_cast<StepKind>(i);
  }
  return std::nullopt;
}

bool Program::is(std::initializer_list<StepKind> kinds) const { return steps.size() == kinds.size() && within(kinds); }

bool Program::within(std::initializer_list<StepKind> kinds) const {
  auto allowed = kinds.begin();
  for (const Step& s : steps) {
    while (allowed != kinds.end() && *allowed != s.kind) ++allowed;
    if (allowed == kinds.end()) return false;
    ++allowed;
  }
  return true;
}

int64_t Program::cols_before(size_t step, int64_t cols) const {
  for (size_t i = step; i < steps.size(); ++i) {
    if (steps[i].kind == StepKind::gate) return 2 * cols;
  }
  return cols;
}

const Step* Program::find(StepKind kind) const {
  for (const Step& s : steps) {
    if (s.kind == kind) return &s;
  }
  return nullptr;
}

}  // namespace tessera
