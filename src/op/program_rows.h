// SPDX-License-Identifier: Apache-2.0
// A problem's program over the rows of its result, in f64: which numbers of its operand each step meets. What a step
// does with them is its own affair (steps/step.h).
#pragma once

#include <span>
#include <vector>

#include "op/op.h"
#include "steps/step.h"

namespace tessera {

class ProgramRows {
 public:
  // Contract: check_problem found nothing; problem and operands outlive this.
  ProgramRows(const Problem& problem, std::span<const Dense> in);
  size_t steps() const { return met_.size(); }
  int64_t cols_before() const { return cols_before_; }
  int64_t cols_after() const { return cols_after_; }
  // Step s on the columns of row `row` that are left before it.
  void apply(size_t s, int64_t row, double* v) const;
  // Its error rule: `e` are the errors of `before`, and become those of `after`.
  void carry(size_t s, int64_t row, const double* before, const double* after, double* e,
             double activation_error) const;

 private:
  struct Met {
    const StepInfo* info;
    int64_t cols;                     // before the step
    const double* operand = nullptr;  // its first row
    int64_t rows = 1, stride = 0;     // of the operand
    int64_t operand_cols = 0;
  };
  StepRow at(size_t s, int64_t row, double activation_error = 0) const;
  const Problem& problem_;
  int64_t x_cols_, cols_before_, cols_after_;
  std::vector<Met> met_;
};

// Keeps the first `kept` of every `cols` numbers; returns kept.
int64_t keep_columns(std::vector<double>& v, int64_t cols, int64_t kept);

}  // namespace tessera
