// SPDX-License-Identifier: Apache-2.0
// Epilogue program: what happens to each result of an anchor op before it is stored. A short list of steps, run in
// order on an fp32 (ref: f64) value. Written as text: `bias(%b) act(gelu_erf) residual(%r) quantize`, `bias(%b)
// gate(silu)`. The operand of a step is an index into the node's inputs.
#pragma once

#include <cstdint>
#include <optional>
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

enum class StepOperand : uint8_t { kNone, kVector, kMatrix, kMoments };
enum class StepKind : uint8_t {
#define TS_STEP(name, operand, meaning) name,
#include "ir/steps.inc"
#undef TS_STEP
};
const char* name_of(StepKind kind);
StepOperand operand_of(StepKind kind);
std::optional<StepKind> find_step(std::string_view name);
// Whether the step names a function: act(silu), gate(silu).
inline bool names_function(StepKind kind) { return kind == StepKind::act || kind == StepKind::gate; }

struct Step {
  StepKind kind;
  Unary fn = Unary::identity;  // act, gate
  int operand = -1;            // index into the node's inputs
  bool operator==(const Step&) const = default;
};

struct Program {
  std::vector<Step> steps;
  bool operator==(const Program&) const = default;
  bool empty() const { return steps.empty(); }
  // True where the kinds are exactly these, in this order.
  bool is(std::initializer_list<StepKind> kinds) const;
  // True where every step's kind is among these, each at most once, in this order.
  bool within(std::initializer_list<StepKind> kinds) const;
  const Step* find(StepKind kind) const;
  bool gated() const { return find(StepKind::gate) != nullptr; }
  // Columns before step `step`, where results have `cols` after the last: a gate, of which a program has one at most,
  // halves them.
  int64_t cols_before(size_t step, int64_t cols) const;
  int64_t cols_before(int64_t cols) const { return cols_before(0, cols); }
};

}  // namespace tessera
