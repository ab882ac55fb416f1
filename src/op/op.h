// SPDX-License-Identifier: Apache-2.0
// Op: what is computed. A signature whose named dimensions are the shape rule, a reference in f64, and the list of
// variants, best first.
//   "x[...,m,k], w[n,k] -> y[...,m,n]"    `...`: any number of axes, the same wherever it appears; `?`: optional
// The reference is a pure function over decoded numbers: it knows no layouts, strides or programs. The program is
// interpreted once for all ops (reference.h), then each result is rounded to its type.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "op/problem.h"
#include "op/variant.h"

namespace tessera {

// A decoded tensor in row order.
struct Dense {
  Shape shape;
  std::vector<double> v;
};

enum class StridedInputs : uint8_t {
  kDense,     // every input must be dense
  kRows,      // uniform rows with a contiguous last axis
  kLastAxis,  // any strides but a contiguous last axis
  kAny,       // any strides
};

struct OpInfo {
  const char* name;
  const char* signature;
  StridedInputs strided = StridedInputs::kDense;
  bool boundary = false;  // its CUDA variants can read and write the caller's buffers through a slot
  bool takes_program = false;
  bool takes_gate = false;  // a program with a gate too: its rule halves the columns, its reference makes all of them
  // The input whose own memory a result lies in, where a plan places it so: kernels then write only what differs. -1:
  // none; null: of no result. Where both have memory of their own the kernel copies the rest.
  int (*in_place)(const Problem&, size_t result) = nullptr;
  // The input whose stored element says what the products must be made in (matmul: w; attention: k); -1: nothing is
  // multiplied that a precision is asked for.
  int promises = -1;
  // Of a problem whose products no matrix instruction makes (each channel by its own weights): any arithmetic keeps the
  // promise that holds every code exactly; the plan says which. Null: of none.
  bool (*by_number)(const Problem&) = nullptr;
  // Result types where the signature cannot say them (null: shapes by the signature, element of the first input).
  Result<std::vector<Type>> (*infer)(const Problem&) = nullptr;
  void (*reference)(const Problem&, std::span<const Dense> in, std::span<Dense> out) = nullptr;
  // How far a variant's arithmetic may take each result from `before`, the exact one before the program and the last
  // rounding; null: not at all. Tests of variants and `verify` derive their tolerances from it (errors.h).
  std::vector<double> (*errors)(const Problem&, std::span<const Dense> in, const Dense& before,
                                const Roundings&) = nullptr;
  // Results beside the first (op/extra_results.h), made of the first one's numbers after the program, before their last
  // rounding; and how far an error of those numbers takes them. null: the op has one result.
  Dense (*extra_result)(const Problem&, size_t result, std::span<const Dense> in, const Dense& first) = nullptr;
  std::vector<double> (*extra_result_errors)(const Problem&, size_t result, std::span<const Dense> in,
                                             const Dense& first, const std::vector<double>& errors) = nullptr;
  // Products that one result sums up, or 0 where it is exact; null: nothing is summed. Ask terms_of (errors.h).
  int64_t (*terms)(const Problem&) = nullptr;
  // What must hold of the operands' numbers and only shows while running (ids inside a table); null: nothing.
  Status (*check_numbers)(const Problem&, std::span<const Dense> in) = nullptr;
  double (*flops)(const Problem&) = nullptr;
  std::span<const Variant* const> variants;
};

// Element of a result that follows an operand: the operand's own, or f32 where the operand has scales (a result's
// scales are its own affair).
inline Element result_element(const Operand& o) { return o.type.scaled() ? Element::f32 : o.type.element; }

// Result types of a problem whose `out` is still empty; the error says which dimension disagrees.
Result<std::vector<Type>> infer_types(const OpInfo& op, const Problem& problem);
// What the signature alone says; an op's own rule may check its attributes and then ask this.
Result<std::vector<Type>> infer_by_signature(const OpInfo& op, const Problem& problem);
// For problems that come from a file: results have the shapes that the operands imply, strides have an entry per axis,
// the program's operands fit.
Status check_problem(const OpInfo& op, const Problem& problem);

}  // namespace tessera
