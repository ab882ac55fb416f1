// SPDX-License-Identifier: Apache-2.0
#include "op/errors.h"

#include <algorithm>
#include <cmath>

#include "base/buffer.h"
#include "base/parallel.h"
#include "op/program_rows.h"
#include "op/reference.h"
#include "op/whole_numbers.h"
#include "types/quantize_array.h"

namespace tessera {
namespace {

constexpr double kUnit = 0x1p-24;  // scales are made in fp32
constexpr int64_t kGrain = 4096;

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
                            Errors errors, double activation_error) {
  const ProgramRows program(problem, in);
  const int64_t made = std::max<int64_t>(1, program.cols_before());
  const int64_t rows = static_cast<int64_t>(numbers.size()) / made;
  parallel_for(rows, std::max<int64_t>(1, kGrain / made), [&](int64_t begin, int64_t end) {
    std::vector<double> before(static_cast<size_t>(made));
    for (int64_t row = begin; row < end; ++row) {
      double *v = numbers.data() + row * made, *e = errors.data() + row * made;
      for (size_t s = 0; s < program.steps(); ++s) {
        std::copy_n(v, made, before.begin());
        program.apply(s, row, v);
        program.carry(s, row, before.data(), v, e, activation_error);
      }
    }
  });
  keep_columns(numbers, made, program.cols_after());
  keep_columns(errors, made, program.cols_after());
  return errors;
}

Errors errors_of_result(const OpInfo& op, const Problem& problem, size_t result, std::span<const Dense> in,
                        const Dense& first, const Errors& errors) {
  return result == 0 ? errors : op.extra_result_errors(problem, result, in, first, errors);
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
