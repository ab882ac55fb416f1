// SPDX-License-Identifier: Apache-2.0
// What a step of an epilogue program does. Each step is a file of this shelf, <name>.cc, that defines
// `StepInfo <name>_step()`, and ir/steps.inc lists them; the arithmetic that kernels apply number by number stands in
// <name>.h (functor.h). Consumers ask a step's StepInfo; they do not switch on the kind.
// Steps see only rows of numbers, shapes and attributes, never a Problem or a Graph.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "base/status.h"
#include "ir/attrs.h"
#include "ir/program.h"
#include "ir/shape.h"
#include "steps/functor.h"
#include "types/quant_type.h"

namespace tessera {

// What the shape rule sees.
struct StepShapes {
  const Step& step;
  const Attrs& attrs;    // of the node
  const Shape &x, &y;    // the op's first operand; its result after the program
  int64_t cols, count;   // columns and numbers of the result before the step
  const Shape& operand;  // of the step; empty where it has none
  const QuantType& operand_type;
  bool operand_dense;
};

// A row of the result as a step meets it.
struct StepRow {
  const Step& step;
  const Attrs& attrs;  // of the node
  int64_t cols;        // before the step
  // A vector's numbers; the row of a matrix or of angles that goes with this one; the moments of this row of x. Null:
  // none.
  const double* operand = nullptr;
  int64_t operand_cols = 0;     // of the operand's rows
  int64_t x_cols = 0;           // of the op's first operand
  double activation_error = 0;  // for error rules: Arithmetic's
};

// One map of a step's unfused form: fn of what came before it and of a second operand, where there is one: the step's
// own, or a number.
struct StepMap {
  enum class With : uint8_t { kNothing, kVector, kMatrix, kNumber };
  std::string fn;
  With with = With::kNothing;
  double number = 0;
};

struct StepInfo {
  const char* meaning;                 // the formula, on v[row, col]
  const char* operand_name = nullptr;  // as people know it; null: the step's name
  bool rounds = false;                 // the numbers stay what they are, up to a rounding

  // Checks operand and numbers against the result; the error says what would be accepted. Null: nothing can be wrong.
  // That an operand is there and numbers are finite is checked before.
  Status (*check)(const StepShapes&) = nullptr;
  // v[0, cols) becomes the step's result, in f64; null: it stays.
  void (*reference)(const StepRow&, double* v) = nullptr;
  // On entry e[0, cols) bounds the errors of `before`, on return those of `after`: what the step makes of them, and its
  // own fp32 roundings. Null: they stay.
  void (*errors)(const StepRow&, const double* before, const double* after, double* e) = nullptr;

  // The maps that compute the same, one after the other; null: the graph has no such maps.
  std::vector<StepMap> (*unfused)(const Step&) = nullptr;
  // Reads function and numbers off maps that may be this step, false where they are not. Null: the step has neither.
  bool (*read)(std::span<const StepMap> maps, Step* step) = nullptr;

  std::array<double, kMaxStepNumbers> example = {};  // numbers that tests run it with

  // The functor on n numbers and, where the step has an operand, as many of it; null: the step does not work on numbers
  // one by one. Made of <name>.h by step.cc.
  void (*run)(const StepArgs& args, const float* operand, float* v, int64_t n) = nullptr;
};

const StepInfo& info(StepKind kind);

// What a step's operand is called.
const char* operand_name(StepKind kind);

// The step whose unfused form stands at the beginning of `maps`, the longest where several do.
struct FusedMaps {
  Step step;           // its operand is not set
  size_t count = 0;    // how many maps it takes
  size_t operand = 0;  // which of them has its operand, where it has one
};
std::optional<FusedMaps> find_fused(std::span<const StepMap> maps);

// Shape rules that steps share: a dense vector of the columns; rows of as many columns, which repeat evenly.
Status check_vector(const StepShapes& s);
Status check_matrix(const StepShapes& s);

// Reference and error rule of steps that add their operand.
void add_operand(const StepRow& r, double* v);
void errors_of_addition(const StepRow& r, const double* before, const double* after, double* e);

// Half a step of f32, relatively: what one operation in fp32 adds to an error.
constexpr double kFp32Unit = 0x1p-24;

}  // namespace tessera
