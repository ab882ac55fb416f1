// SPDX-License-Identifier: Apache-2.0
// What the arithmetic of a variant may do to its results, and results held against it. One derivation for the tests of
// all variants and for `verify`:
//   |got - exact| <= error of the op's arithmetic (OpInfo::errors, carried through the program) + half a step of the
//   result's type
// Errors are per element, in the units of the result.
#pragma once

#include <span>
#include <vector>

#include "op/op.h"

namespace tessera {

using Errors = std::vector<double>;

// The op's errors on results `before` the program.
Errors errors_before_program(const OpInfo& op, const Problem& problem, std::span<const Dense> in, const Dense& before,
                             const Roundings& roundings);
// Carries numbers before the program (`v`, which become those after it) and their errors through the program, each step
// with its own fp32 roundings.
// `activation_error`: Arithmetic's.
Errors errors_after_program(const Problem& problem, std::span<const Dense> in, std::vector<double>& v, Errors e,
                            double activation_error);

// Errors of result `result`, of which that of the first is known: `first` are its numbers after the program, `errors`
// theirs.
Errors errors_of_result(const OpInfo& op, const Problem& problem, size_t result, std::span<const Dense> in,
                        const Dense& first, const Errors& errors);

// Products that one result sums up: the size of a typical error grows with their root. 1: it is rounded, but nothing is
// summed; 0: every arithmetic gives the same result.
int64_t terms_of(const OpInfo& op, const Problem& problem);

// The scales that results are judged under, both levels multiplied, by element in row order: the tensor's own, but for
// those that are made while running. Such a scale follows the largest magnitude under it, which the arithmetic moves by
// its error: where the quotient lies near the boundary of two codes of the scale, either may be taken, and every code
// under it with it. So a made scale counts as it is between those of (amax - error) and (amax + error); outside,
// results are judged under the nearest of both, where codes made for another scale are wrong numbers. NaN or Inf: the
// exact numbers give no scale either, and nothing can be said of results under it.
class JudgedScales {
 public:
  // `result`: a tensor in host memory; `exact` and `errors`: its numbers before the last rounding.
  JudgedScales(const TensorView& result, const Dense& exact, const Errors& errors);
  double at(int64_t i) const;

 private:
  void judge(const TensorView& result, const Dense& exact, const Errors& errors, int64_t rows);
  QuantType type_;
  int64_t cols_;
  std::vector<double> first_, second_;
};

// One result of a type with this scale (1: none): what the exact number becomes at best (saturated; integers rounded),
// how much the arithmetic may add
// (`error`, and the quotient by the scale), and what rounding to the type may.
struct AllowedResult {
  double want = 0, error = 0, rounding = 0;
};
AllowedResult allow(const QuantType& type, double scale, double exact, double error);

}  // namespace tessera
