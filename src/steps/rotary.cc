// SPDX-License-Identifier: Apache-2.0
// Queries and keys turned where they are made. What the rotary op reads was rounded to the carrier; here the sum is
// turned as it is. It mixes columns, so no map of the graph computes it.
#include "steps/rotary.h"

#include <cmath>

#include "steps/step.h"

namespace tessera {
namespace {

Status check(const StepShapes& s) {
  const double head = s.step.numbers[0], columns = s.step.numbers[1];
  if (!(head >= 2 && head <= 0x1p31) || head != std::floor(head) || !(columns >= head) ||
      std::fmod(columns, head) != 0 || columns > static_cast<double>(s.cols))
    return bad_input(cat("wants the size of a head and a number of columns, whole heads and at most ", s.cols, "; has ",
                         head, " and ", columns));
  const int64_t width = s.operand.empty() ? 0 : s.operand.back(), all = elements(s.operand);
  const int64_t rows = width == 0 ? 0 : all / width, of_result = s.cols == 0 ? 0 : s.count / s.cols;
  const bool even = rows > 0 && of_result % rows == 0;
  if (width >= 2 && width % 2 == 0 && width <= static_cast<int64_t>(head) && even) return {};
  return bad_input(cat("wants rows of at most ", head / 2, " cosines and as many sines, which repeat evenly over ",
                       to_string(s.y), "; has ", to_string(s.operand)));
}

// Calls body(column of the first number, of the second, cosine, sine) for each pair.
template <class Body>
void for_each_pair(const StepRow& r, const Body& body) {
  const RotaryStep s = RotaryStep::of(r.step, r.operand_cols);
  for (int64_t head = 0; head < s.columns; head += s.head) {
    for (int64_t i = 0; i < s.pairs; ++i) body(head + i, head + i + s.pairs, r.operand[i], r.operand[s.pairs + i]);
  }
}

void reference(const StepRow& r, double* v) {
  for_each_pair(r, [&](int64_t a, int64_t b, double cos, double sin) {
    const double x1 = v[a], x2 = v[b];
    v[a] = x1 * cos - x2 * sin;
    v[b] = x2 * cos + x1 * sin;
  });
}

// Each product is rounded at most once, their sum once: two units of the products' magnitudes.
void errors(const StepRow& r, const double* before, const double*, double* e) {
  for_each_pair(r, [&](int64_t a, int64_t b, double cos, double sin) {
    const double x1 = std::fabs(before[a]), x2 = std::fabs(before[b]), c = std::fabs(cos), s = std::fabs(sin);
    const double e1 = e[a], e2 = e[b];
    e[a] = c * e1 + s * e2 + 2 * kFp32Unit * (c * (x1 + e1) + s * (x2 + e2));
    e[b] = c * e2 + s * e1 + 2 * kFp32Unit * (c * (x2 + e2) + s * (x1 + e1));
  });
}

}  // namespace

StepInfo rotary_step() {
  return {.meaning = "v[row, i], v[row, i + r] of each head turned by the angle of pair i in row `row` of the angles",
          .operand_name = "angles",
          .check = check,
          .reference = reference,
          .errors = errors,
          .example = {2, 2}};
}

}  // namespace tessera
