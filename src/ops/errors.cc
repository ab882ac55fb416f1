// SPDX-License-Identifier: Apache-2.0
#include "ops/errors.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "ops/reference.h"
#include "ops/whole_numbers.h"

namespace tessera {
namespace {

constexpr double kUnit = 0x1p-24;  // programs run in fp32
constexpr int64_t kGrain = 4096;

// How far fn may carry an error e of its argument x. Slopes are bounded for the functions that programs name most; the
// steepest are the GELUs and silu.
double carried(Unary fn, double x, double e) {
  switch (fn) {
    case Unary::identity:
    case Unary::neg:
    case Unary::abs:
    case Unary::relu:
    case Unary::tanh:
    case Unary::sin:
    case Unary::cos:
      return e;
    case Unary::sigmoid:
      return 0.25 * e;
    case Unary::erf:
    case Unary::silu:
    case Unary::gelu_erf:
    case Unary::gelu_tanh:
    case Unary::gelu_quick:
      return 1.13 * e;
    default: {  // monotone where they are defined: the ends of the interval are the farthest
      const double y = apply(fn, x);
      const double far = std::max(std::fabs(apply(fn, x + e) - y), std::fabs(apply(fn, x - e) - y));
      return std::isnan(far) ? INFINITY : far;
    }
  }
}

double nearest_integer(Element e, double x) {
  int64_t code = 0;
  info(e).encode_f64(&x, 1, &code, 0);
  info(e).decode_f64(&code, 0, 1, &x);
  return x;
}

}  // namespace

Errors errors_before_program(const OpInfo& op, const Problem& problem, std::span<const Dense> in, const Dense& before,
                             const Roundings& roundings) {
  return op.errors != nullptr ? op.errors(problem, in, before, roundings) : Errors(before.v.size(), 0.0);
}

Errors errors_after_program(const Problem& problem, std::span<const Dense> in, std::vector<double>& numbers,
                            Errors errors) {
  parallel_for(static_cast<int64_t>(numbers.size()), kGrain, [&](int64_t begin, int64_t end) {
    for (const Step& step : problem.then.steps) {
      const Dense* operand = step.operand >= 0 ? &in[static_cast<size_t>(step.operand)] : nullptr;
      for (size_t i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        double &v = numbers[i], &e = errors[i];
        // A vector repeats every row, a matrix every so many rows: both are the index modulo the operand's size.
        const auto other = [&] { return operand->v[i % operand->v.size()]; };
        switch (step.kind) {
          case StepKind::bias:
          case StepKind::residual:
            v += other();
            e += kUnit * std::fabs(v);
            break;
          case StepKind::act: {
            // Eight units of the result; those whose formula cancels (GELUs, silu) also a few of the argument:
            // tiles/scalar.h, tiles/cpu_math.h.
            const double x = v;
            v = apply(step.fn, x);
            e = carried(step.fn, x, e) + kUnit * (8 * std::fabs(v) + 4 * std::fabs(x));
            break;
          }
          case StepKind::scale:
            v *= other();
            e = e * std::fabs(other()) + kUnit * std::fabs(v);
            break;
          case StepKind::quantize:
            break;
        }
      }
    }
  });
  return errors;
}

int64_t terms_of(const OpInfo& op, const Problem& problem) {
  const int64_t terms = op.errors == nullptr ? 0 : op.terms == nullptr ? 1 : op.terms(problem);
  // The quotient by a result's scale is rounded whatever the op does.
  return problem.out[0].type.scaled() ? std::max<int64_t>(1, terms) : terms;
}

AllowedResult allow(const QuantType& type, double scale, double exact, double error) {
  const ElementInfo& element = info(type.element);
  const double max = element.max * scale;
  AllowedResult a{.want = std::clamp(exact, -max, max)};
  // A static scale: the quotient is taken in fp32, as x / s or as x * (1 / s).
  a.error = error + (type.scaled() ? 0x1p-23 * std::fabs(a.want) : 0);
  a.rounding = 0.5 * scale * step_at(type.element, (std::fabs(a.want) + a.error) / scale);
  if (is_whole(type)) {
    a.want = nearest_integer(type.element, exact);
    a.rounding = exact == std::nearbyint(exact) ? 0 : 1;  // a number between two of them may go either way
  }
  return a;
}

}  // namespace tessera
