// SPDX-License-Identifier: Apache-2.0
#include "op/program_rows.h"

#include <algorithm>

#include "steps/row_moments.h"

namespace tessera {

ProgramRows::ProgramRows(const Problem& problem, std::span<const Dense> in)
    : problem_(problem),
      x_cols_(cols_of(problem.in[0].shape)),
      cols_before_(problem.then.cols_before(cols_of(problem.out[0].shape))),
      cols_after_(cols_of(problem.out[0].shape)) {
  for (size_t s = 0; s < problem.then.steps.size(); ++s) {
    const Step& step = problem.then.steps[s];
    Met met{.info = &info(step.kind), .cols = problem.then.cols_before(s, cols_after_)};
    if (step.operand >= 0) {
      const std::vector<double>& numbers = in[static_cast<size_t>(step.operand)].v;
      met.operand = numbers.data();
      const StepOperand what = operand_of(step.kind);
      met.operand_cols = cols_of(problem.step_operand(step).shape);
      if (what == StepOperand::kMatrix) met.stride = met.cols;
      if (what == StepOperand::kAngles) met.stride = met.operand_cols;
      if (what == StepOperand::kMoments) met.stride = 2 * moment_groups(x_cols_);
      if (met.stride > 0) met.rows = std::max<int64_t>(1, static_cast<int64_t>(numbers.size()) / met.stride);
    }
    met_.push_back(met);
  }
}

StepRow ProgramRows::at(size_t s, int64_t row, double activation_error) const {
  const Met& met = met_[s];
  return {.step = problem_.then.steps[s],
          .attrs = problem_.attrs,
          .cols = met.cols,
          .operand = met.operand == nullptr ? nullptr : met.operand + row % met.rows * met.stride,
          .operand_cols = met.operand_cols,
          .x_cols = x_cols_,
          .activation_error = activation_error};
}

void ProgramRows::apply(size_t s, int64_t row, double* v) const {
  if (met_[s].info->reference != nullptr) met_[s].info->reference(at(s, row), v);
}

void ProgramRows::carry(size_t s, int64_t row, const double* before, const double* after, double* e,
                        double activation_error) const {
  if (met_[s].info->errors != nullptr) met_[s].info->errors(at(s, row, activation_error), before, after, e);
}

int64_t keep_columns(std::vector<double>& v, int64_t cols, int64_t kept) {
  if (kept == cols) return kept;
  const int64_t rows = static_cast<int64_t>(v.size()) / std::max<int64_t>(1, cols);
  for (int64_t row = 1; row < rows; ++row) std::copy_n(v.begin() + row * cols, kept, v.begin() + row * kept);
  v.resize(static_cast<size_t>(rows * kept));
  return kept;
}

}  // namespace tessera
