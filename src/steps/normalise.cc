// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "steps/row_moments.h"
#include "steps/step.h"

namespace tessera {
namespace {

// f32 moments, as many as x has rows and groups; and the attributes beside them.
Status check(const StepShapes& s) {
  const int64_t cols = s.x.empty() ? 1 : s.x.back(), rows = elements(s.x) / std::max<int64_t>(1, cols);
  const Shape& m = s.operand;
  if (s.operand_type != QuantType(Element::f32) || !s.operand_dense || m.size() < 2 || m.back() != 2 ||
      m[m.size() - 2] != moment_groups(cols) || elements(m) != rows * 2 * moment_groups(cols)) {
    return bad_input(cat("wants moments in dense f32 [", rows, ", ", moment_groups(cols), ", 2] for x", to_string(s.x),
                         ", has ", to_string(s.operand_type), to_string(m)));
  }
  const std::string kind = s.attrs.word(kFoldedKind, "layer");
  if (kind != "layer" && kind != "rms") return bad_input(cat("norm.kind \"", kind, "\" is unknown; known: layer, rms"));
  const double eps = s.attrs.number(kFoldedEps);
  if (!(eps >= 0) || !std::isfinite(eps)) return bad_input(cat("norm.eps ", eps, " must be a number and not negative"));
  return {};
}

void reference(const StepRow& r, double* v) {
  const double factor = inverse_deviation(r.operand, r.x_cols, FoldedNorm::of(r.attrs));
  for (int64_t c = 0; c < r.cols; ++c) v[c] *= factor;
}

void errors(const StepRow& r, const double*, const double* after, double* e) {
  const FoldedNorm norm = FoldedNorm::of(r.attrs);
  const double factor = inverse_deviation(r.operand, r.x_cols, norm);
  const double off = inverse_deviation_error(r.operand, r.x_cols, norm) + kFp32Unit;
  for (int64_t c = 0; c < r.cols; ++c) e[c] = e[c] * factor + std::fabs(after[c]) * off;
}

}  // namespace

StepInfo normalise_step() {
  return {.meaning =
              "v /= deviation[row], that of x's row, from its moments: the norm before a matmul whose w has gain "
              "and centring in it",
          .check = check,
          .reference = reference,
          .errors = errors};
}

}  // namespace tessera
