// SPDX-License-Identifier: Apache-2.0
#include "op/errors.h"

#include <algorithm>
#include <cmath>

#include "base/buffer.h"
#include "base/parallel.h"
#include "op/reference.h"
#include "op/row_moments.h"
#include "op/whole_numbers.h"
#include "types/quantize_array.h"

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

// An activation's error: eight units of the result; those whose formula cancels (GELUs, silu) also a few of the
// argument (tiles/scalar.h, tiles/cpu/math.h).
double activation_errors(Unary fn, double x, double y, double e, double activation_error) {
  return carried(fn, x, e) + kUnit * (8 * std::fabs(y) + 4 * std::fabs(x)) + activation_error * std::fabs(x);
}

// What a normalise step multiplies a row by, and how far fp32 may be from it, relatively.
struct Factor {
  double value, error;
};
std::vector<Factor> factors_of(const Problem& problem, std::span<const Dense> in) {
  const Step* step = problem.then.find(StepKind::normalise);
  if (step == nullptr) return {};
  const int64_t cols = problem.in[0].shape.back(), words = 2 * moment_groups(cols);
  const FoldedNorm norm = FoldedNorm::of(problem.attrs);
  const std::vector<double>& moments = in[static_cast<size_t>(step->operand)].v;
  std::vector<Factor> factors;
  for (size_t at = 0; at < moments.size(); at += static_cast<size_t>(words)) {
    const double* row = moments.data() + at;
    factors.push_back({inverse_deviation(row, cols, norm), inverse_deviation_error(row, cols, norm) + kUnit});
  }
  return factors;
}

// Steps that leave the columns as they are.
void carry_steps(std::span<const Step> steps, const Problem& problem, std::span<const Dense> in,
                 std::vector<double>& numbers, Errors& errors, double activation_error) {
  const std::vector<Factor> factors = factors_of(problem, in);
  const size_t cols = factors.empty() ? 1 : numbers.size() / factors.size();
  parallel_for(static_cast<int64_t>(numbers.size()), kGrain, [&](int64_t begin, int64_t end) {
    for (const Step& step : steps) {
      const Dense* operand = step.operand >= 0 ? &in[static_cast<size_t>(step.operand)] : nullptr;
      for (size_t i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        double &v = numbers[i], &e = errors[i];
        // A vector repeats every row, a matrix every so many rows: both are the index modulo the operand's size.
        const auto other = [&] { return operand->v[i % operand->v.size()]; };
        switch (step.kind) {
          case StepKind::normalise: {
            const Factor& f = factors[i / cols];
            v *= f.value;
            e = e * f.value + std::fabs(v) * f.error;
            break;
          }
          case StepKind::bias:
          case StepKind::residual:
            v += other();
            e += kUnit * std::fabs(v);
            break;
          case StepKind::act: {
            const double x = v;
            v = apply(step.fn, x);
            e = activation_errors(step.fn, x, v, e, activation_error);
            break;
          }
          case StepKind::scale:
            v *= other();
            e = e * std::fabs(other()) + kUnit * std::fabs(v);
            break;
          case StepKind::gate:
          case StepKind::quantize:
            break;
        }
      }
    }
  });
}

// v = f(a) b: |dv| <= |b| |df| + |f(a)| |db| + |df| |db|, and the product's own rounding.
void carry_gate(Unary fn, int64_t cols, std::vector<double>& numbers, Errors& errors, double activation_error) {
  const size_t kept = static_cast<size_t>(cols / 2), count = numbers.size() / 2;
  std::vector<double> v(count);
  Errors e(count);
  parallel_for(static_cast<int64_t>(count), kGrain, [&](int64_t begin, int64_t end) {
    for (size_t i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const size_t a = i / kept * 2 * kept + i % kept, b = a + kept;
      const double f = apply(fn, numbers[a]), g = numbers[b];
      const double f_error = activation_errors(fn, numbers[a], f, errors[a], activation_error);
      v[i] = f * g;
      e[i] = f_error * std::fabs(g) + (std::fabs(f) + f_error) * errors[b] + kUnit * std::fabs(v[i]);
    }
  });
  numbers = std::move(v);
  errors = std::move(e);
}

}  // namespace

Errors errors_before_program(const OpInfo& op, const Problem& problem, std::span<const Dense> in, const Dense& before,
                             const Roundings& roundings) {
  return op.errors != nullptr ? op.errors(problem, in, before, roundings) : Errors(before.v.size(), 0.0);
}

Errors errors_after_program(const Problem& problem, std::span<const Dense> in, std::vector<double>& numbers,
                            Errors errors, double activation_error) {
  const std::span<const Step> steps = problem.then.steps;
  const Step* gate = problem.then.find(StepKind::gate);
  const size_t at = gate == nullptr ? steps.size() : static_cast<size_t>(gate - steps.data());
  carry_steps(steps.first(at), problem, in, numbers, errors, activation_error);
  if (gate == nullptr) return errors;
  carry_gate(gate->fn, problem.then.cols_before(problem.out[0].shape.back()), numbers, errors, activation_error);
  carry_steps(steps.subspan(at + 1), problem, in, numbers, errors, activation_error);
  return errors;
}

Errors errors_of_result(const OpInfo& op, const Problem& problem, size_t result, const Dense& first,
                        const Errors& errors) {
  return result == 0 ? errors : op.extra_result_errors(problem, result, first, errors);
}

int64_t terms_of(const OpInfo& op, const Problem& problem) {
  const int64_t terms = op.errors == nullptr ? 0 : op.terms == nullptr ? 1 : op.terms(problem);
  // The quotient by a result's scale is rounded whatever the op does.
  return problem.out[0].type.scaled() ? std::max<int64_t>(1, terms) : terms;
}

JudgedScales::JudgedScales(const TensorView& result, const Dense& exact, const Errors& errors)
    : type_(result.desc->type),
      cols_(result.desc->shape.empty() ? 1 : std::max<int64_t>(1, result.desc->shape.back())) {
  const int64_t rows = elements(result.desc->shape) / cols_;
  const auto decoded = [&](const ScaleLevel& level, const void* data) {
    std::vector<double> numbers(data == nullptr ? 0 : static_cast<size_t>(scale_count(level, rows, cols_)));
    info(level.element).decode_f64(data, 0, static_cast<int64_t>(numbers.size()), numbers.data());
    return numbers;
  };
  first_ = decoded(type_.scale, result.scale);
  second_ = decoded(type_.scale2, result.scale2);
  if (type_.dynamic) judge(result, exact, errors, rows);
}

double JudgedScales::at(int64_t i) const {
  double s = 1;
  if (!first_.empty()) s *= first_[static_cast<size_t>(scale_index(type_.scale, i / cols_, i % cols_, cols_))];
  if (!second_.empty()) s *= second_[static_cast<size_t>(scale_index(type_.scale2, i / cols_, i % cols_, cols_))];
  return s;
}

void JudgedScales::judge(const TensorView& result, const Dense& exact, const Errors& errors, int64_t rows) {
  // Magnitudes reach the scale through two quotients in fp32, which a kernel may take as products: a few roundings.
  constexpr double kRoundings = 4 * kUnit;
  std::vector<float> low(first_.size(), 0), high(first_.size(), 0);
  for (int64_t i = 0; i < rows * cols_; ++i) {
    const size_t s = static_cast<size_t>(scale_index(type_.scale, i / cols_, i % cols_, cols_)),
                 at = static_cast<size_t>(i);
    const double x = std::fabs(exact.v[at]), e = errors[at] + kRoundings * x;
    // A NaN once met stays.
    if (!std::isnan(low[s]) && !(low[s] >= x - e)) low[s] = static_cast<float>(x - e);
    if (!std::isnan(high[s]) && !(high[s] >= x + e)) high[s] = static_cast<float>(x + e);
  }
  QuantType alone = type_;  // each magnitude under a scale of its own
  alone.scale.granularity = Granularity::kBlock, alone.scale.block = 1;
  const int64_t count = static_cast<int64_t>(first_.size());
  Buffer codes(static_cast<size_t>(packed_bytes(type_.scale.element, count)));
  const auto scales_of = [&](const std::vector<float>& amax) {
    std::vector<double> scales(first_.size());
    make_scales(alone, amax.data(), 1, count, result.scale2, codes.data());
    info(type_.scale.element).decode_f64(codes.data(), 0, count, scales.data());
    return scales;
  };
  const std::vector<double> least = scales_of(low), most = scales_of(high);
  for (size_t s = 0; s < first_.size(); ++s) {
    // What may be all zero may have the scale of zeros, which is 1 and none of the neighbours.
    const double from = low[s] > 0 ? least[s] : 0;
    if (std::isfinite(most[s]) && std::isfinite(from)) {
      first_[s] = std::isnan(first_[s]) ? most[s] : std::clamp(first_[s], from, most[s]);
    } else {
      first_[s] = most[s];
    }
  }
}

AllowedResult allow(const QuantType& type, double scale, double exact, double error) {
  const ElementInfo& element = info(type.element);
  const double max = element.max * scale;
  // f32 and f64 are what kernels compute in: they do not saturate (types/plain.h).
  if (!type.scaled() && element.kind == ElementKind::kFloat && element.mantissa_bits >= 23) {
    return std::isfinite(exact) ? AllowedResult{.want = exact,
                                                .error = error,
                                                .rounding = 0.5 * step_at(type.element, std::fabs(exact) + error)}
                                : AllowedResult{.want = exact};
  }
  AllowedResult a{.want = std::clamp(exact, -max, max)};
  // The quotient is taken in fp32, as x / s or as x * (1 / s); s may be a product itself.
  const double quotient = !type.scaled() ? 0 : type.scale2.granularity == Granularity::kNone ? 0x1p-23 : 0x1.8p-23;
  a.error = error + quotient * std::fabs(a.want);
  a.rounding = 0.5 * scale * step_at(type.element, (std::fabs(a.want) + a.error) / scale);
  if (is_whole(type)) {
    a.want = nearest_integer(type.element, exact);
    a.rounding = exact == std::nearbyint(exact) ? 0 : 1;  // a number between two of them may go either way
  }
  return a;
}

}  // namespace tessera
