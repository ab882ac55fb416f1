// SPDX-License-Identifier: Apache-2.0
// Epilogue program: what happens to each result of an anchor op before it is stored. A short list of steps, run in
// order on an fp32 (ref: f64) value. Written as text: `bias(2) act(gelu_erf) residual(3) quantize`, `bias(2)
// gate(silu)`. The operand of a step is an index into the node's inputs. Graphs know how a step looks (StepForm); what
// it does is known to steps/.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

enum class Unary : uint8_t {
#define TS_UNARY(name) name,
#include "ir/unary.inc"
#undef TS_UNARY
};
const char* name_of(Unary fn);
std::optional<Unary> find_unary(std::string_view name);

enum class StepKind : uint8_t {
#define TS_STEP(name, ...) name,
#include "ir/steps.inc"
#undef TS_STEP
};

// A vector has a number for each column, a matrix rows of them, which repeat where they are fewer than the result's;
// moments are those of x's rows (steps/row_moments.h); angles are rows of cosines and as many sines, which repeat too
// (steps/rotary.h).
enum class StepOperand : uint8_t { kNone, kVector, kMatrix, kMoments, kAngles };
enum class StepPlace : uint8_t { kAny, kFirst, kLast };

constexpr size_t kMaxStepNumbers = 2;

struct StepForm {
  const char* name;
  StepOperand operand = StepOperand::kNone;
  bool function = false;  // names one: act(silu)
  size_t numbers = 0;     // how many it has, at most kMaxStepNumbers: name(30.0)
  StepPlace place = StepPlace::kAny;
  bool halves = false;  // leaves half of the columns; a program has one such step at most
};
inline constexpr StepForm kStepForms[] = {
#define TS_STEP(step, ...) {.name = #step __VA_OPT__(, ) __VA_ARGS__},
#include "ir/steps.inc"
#undef TS_STEP
};
constexpr size_t kStepKinds = std::size(kStepForms);

constexpr const StepForm& form_of(StepKind kind) { return kStepForms[static_cast<size_t>(kind)]; }
constexpr StepOperand operand_of(StepKind kind) { return form_of(kind).operand; }
constexpr bool names_function(StepKind kind) { return form_of(kind).function; }
constexpr const char* name_of(StepKind kind) { return form_of(kind).name; }
std::optional<StepKind> find_step(std::string_view name);

struct Step {
  StepKind kind;
  Unary fn = Unary::identity;                     // where it names a function
  int operand = -1;                               // index into the node's inputs
  std::array<double, kMaxStepNumbers> numbers{};  // those that it has come first; else 0
  bool operator==(const Step&) const = default;
};
// "act(silu)", "bias(2)"; without its operand "act(silu)", "bias".
std::string text_of(const Step& step, bool with_operand = true);

// Steps that a kernel runs or a pass takes, in its order.
class StepSet {
 public:
  consteval StepSet(std::initializer_list<StepKind> kinds) {  // NOLINT: a list is a set
    for (const StepKind kind : kinds) kinds_[count_++] = kind;
  }
  constexpr const StepKind* begin() const { return kinds_; }
  constexpr const StepKind* end() const { return kinds_ + count_; }
  constexpr bool contains(StepKind kind) const {
    for (const StepKind k : *this) {
      if (k == kind) return true;
    }
    return false;
  }
  // Why a program that is not `within` the set, or not `among` it, is refused.
  std::string says_in_order() const;
  std::string says_in_any_order() const;

 private:
  StepKind kinds_[kStepKinds] = {};
  size_t count_ = 0;
};

struct Program {
  std::vector<Step> steps;
  bool operator==(const Program&) const = default;
  bool empty() const { return steps.empty(); }
  // True where the kinds are exactly these, in this order.
  bool is(const StepSet& set) const;
  // True where every step's kind is in the set, each at most once, in its order.
  bool within(const StepSet& set) const;
  // True where every step's kind is in the set, in any order and number.
  bool among(const StepSet& set) const;
  const Step* find(StepKind kind) const;
  // Whether a step halves the columns.
  bool gated() const;
  // Columns before step `step`, where results have `cols` after the last.
  int64_t cols_before(size_t step, int64_t cols) const;
  int64_t cols_before(int64_t cols) const { return cols_before(0, cols); }
};

// Whether steps stand where they may, in one sentence; empty: they do. Operands are not looked at.
std::string misplaced_step(const Program& program);

}  // namespace tessera
