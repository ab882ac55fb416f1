// SPDX-License-Identifier: Apache-2.0
#include "ir/program.h"

#include <algorithm>

#include "base/status.h"
#include "ir/text.h"

namespace tessera {
namespace {

constexpr const char* kUnaryNames[] = {
#define TS_UNARY(name) #name,
#include "ir/unary.inc"
#undef TS_UNARY
};

std::string listed(const StepSet& set) {
  std::string text;
  for (const StepKind kind : set) text += cat(text.empty() ? "" : ", ", name_of(kind));
  return text;
}

}  // namespace

const char* name_of(Unary fn) { return kUnaryNames[static_cast<int>(fn)]; }

std::optional<Unary> find_unary(std::string_view name) {
  for (size_t i = 0; i < std::size(kUnaryNames); ++i) {
    if (name == kUnaryNames[i]) return static_cast<Unary>(i);
  }
  return std::nullopt;
}

std::optional<StepKind> find_step(std::string_view name) {
  for (size_t i = 0; i < kStepKinds; ++i) {
    if (name == kStepForms[i].name) return static_cast<StepKind>(i);
  }
  return std::nullopt;
}

std::string text_of(const Step& step, bool with_operand) {
  const StepForm& form = form_of(step.kind);
  std::string arguments;
  const auto add = [&](const std::string& text) { arguments += cat(arguments.empty() ? "" : ", ", text); };
  if (form.function) add(name_of(step.fn));
  if (form.operand != StepOperand::kNone && with_operand) add(std::to_string(step.operand));
  for (size_t i = 0; i < form.numbers; ++i) add(number_text(step.numbers[i]));
  return arguments.empty() ? form.name : cat(form.name, "(", arguments, ")");
}

std::string StepSet::says_in_order() const {
  return count_ == 1 ? cat("runs no program but ", listed(*this)) : cat("runs ", listed(*this), " in this order only");
}
std::string StepSet::says_in_any_order() const { return cat("runs no steps but ", listed(*this)); }

bool Program::is(const StepSet& set) const {
  return std::equal(steps.begin(), steps.end(), set.begin(), set.end(),
                    [](const Step& s, StepKind kind) { return s.kind == kind; });
}

bool Program::within(const StepSet& set) const {
  auto allowed = set.begin();
  for (const Step& s : steps) {
    allowed = std::find(allowed, set.end(), s.kind);
    if (allowed == set.end()) return false;
    ++allowed;
  }
  return true;
}

bool Program::among(const StepSet& set) const {
  return std::all_of(steps.begin(), steps.end(), [&](const Step& s) { return set.contains(s.kind); });
}

const Step* Program::find(StepKind kind) const {
  const auto found = std::find_if(steps.begin(), steps.end(), [&](const Step& s) { return s.kind == kind; });
  return found == steps.end() ? nullptr : &*found;
}

bool Program::gated() const { return cols_before(1) != 1; }

int64_t Program::cols_before(size_t step, int64_t cols) const {
  for (size_t i = step; i < steps.size(); ++i) {
    if (form_of(steps[i].kind).halves) return 2 * cols;
  }
  return cols;
}

std::string misplaced_step(const Program& program) {
  bool halved = false;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const StepForm& form = form_of(program.steps[i].kind);
    if (form.place == StepPlace::kFirst && i != 0) return cat(form.name, " must be the program's first step");
    if (form.place == StepPlace::kLast && i + 1 != program.steps.size())
      return cat(form.name, " must be the program's last step");
    if (form.halves && halved) return cat("a program has one ", form.name, " at most");
    halved = halved || form.halves;
  }
  return "";
}

}  // namespace tessera
