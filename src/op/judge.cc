// SPDX-License-Identifier: Apache-2.0
#include "op/judge.h"

#include <algorithm>
#include <cmath>

#include "op/extra_results.h"
#include "op/reference.h"
#include "op/whole_numbers.h"

namespace tessera {
namespace {

// Numbers in units of a type's element, rounded to it.
std::vector<double> rounded(const QuantType& type, std::vector<double> numbers) {
  const auto n = static_cast<int64_t>(numbers.size());
  std::vector<uint8_t> codes(static_cast<size_t>(packed_bytes(type.element, n)));
  encode_units(type, numbers, codes.data());
  info(type.element).decode_f64(codes.data(), 0, n, numbers.data());
  return numbers;
}

// The walk is the size of an error, not its bound. Its roundings are taken as large as they can be, three times what
// they are on average: five times the walk is some fifteen deviations.
constexpr double kMultiple = 5;

// Errors and numbers of one result, squared and added up.
struct Norms {
  double off = 0, allowed = 0, size = 0, got = 0, product = 0;
  void add(double g, const AllowedNumber& a) {
    const double may = std::max(a.high - a.nominal, a.nominal - a.low);
    off += (g - a.nominal) * (g - a.nominal), allowed += may * may;
    size += a.nominal * a.nominal, got += g * g, product += g * a.nominal;
  }
  void finish(Judgement& j) const {
    const double all = size > 0 ? std::sqrt(size) : 1;
    j.cosine = std::min(j.cosine, got > 0 && size > 0 ? product / std::sqrt(got * size) : got == size ? 1.0 : 0.0);
    j.relative_l2 = std::max(j.relative_l2, std::sqrt(off) / all);
    j.allowed_l2 = std::max(j.allowed_l2, std::sqrt(allowed) / all);
  }
};

// How far a finite number is from the nominal one, as a share of what is allowed: above 1 outside.
double share_of(double g, const AllowedNumber& a) {
  const double outside = std::max({0.0, a.low - g, g - a.high});
  if (outside > 0) return 1 + outside / std::max(a.high - a.low, a.step);
  return g == a.nominal ? 0 : std::fabs(g - a.nominal) / std::max(a.high - a.nominal, a.nominal - a.low);
}

bool holds_nan(Element element) {
  const double nan = NAN;
  double back = 0;
  uint8_t code[8];
  info(element).encode_f64(&nan, 1, code, 0);
  info(element).decode_f64(code, 0, 1, &back);
  return std::isnan(back);
}

// Holds the numbers of one result against what they may be.
class Comparison {
 public:
  Comparison(size_t result, Element element, Judgement& j) : result_(result), nan_(holds_nan(element)), j_(j) {}
  ~Comparison() { norms_.finish(j_); }

  void add(size_t at, double g, const AllowedNumber& a) {
    ++j_.results;
    if (std::isnan(a.low) || std::isnan(a.high)) {
      if (nan_ && !std::isnan(g)) note(at, INFINITY, g, a);
      return;
    }
    const bool inside = a.low <= g && g <= a.high;
    j_.may_differ += a.high > a.low, j_.differ += g != a.nominal;
    if (!std::isfinite(g) && !inside) j_.finite = false;
    if (std::isfinite(g) && std::isfinite(a.low) && std::isfinite(a.high)) {
      norms_.add(g, a);
      note(at, share_of(g, a), g, a);
    } else if (!inside) {  // infinities are what masks are made of
      note(at, INFINITY, g, a);
    }
  }

 private:
  void note(size_t at, double share, double g, const AllowedNumber& a) {
    if (share <= j_.share) return;
    j_.share = share;
    j_.result = static_cast<int64_t>(result_), j_.at = static_cast<int64_t>(at);
    j_.got = g, j_.low = a.low, j_.high = a.high;
  }

  const size_t result_;
  const bool nan_;
  Judgement& j_;
  Norms norms_;
};

}  // namespace

Judge::Judge(const OpInfo& op, const Variant& variant, const Problem& problem, std::span<const TensorView> in,
             std::span<const TensorView> out)
    : problem_(problem) {
  for (const TensorView& t : out) scales_.push_back(t.desc->type.dynamic ? 1 : tensor_scale(t));
  if (variant.emulate != nullptr) emulation_ = variant.emulate(problem, in, out);
  for (size_t r = 0; r < emulation_.size(); ++r) {
    const EmulatedResult& e = emulation_[r];
    low_.push_back(rounded(problem.out[r].type, {e.low.begin(), e.low.end()}));
    nominal_.push_back(rounded(problem.out[r].type, middle(r)));
    high_.push_back(rounded(problem.out[r].type, {e.high.begin(), e.high.end()}));
  }
  if (emulated()) return;
  std::vector<Dense> numbers;
  for (const TensorView& t : in) numbers.push_back(t.desc != nullptr ? decode(t) : Dense{});
  const Dense before = compute_reference(op, before_program(problem), numbers)[0];
  const Arithmetic arithmetic = variant.arithmetic(problem);
  Errors worst = errors_before_program(op, problem, numbers, before, Roundings(arithmetic));
  const Errors walk = errors_before_program(op, problem, numbers, before, Roundings(arithmetic, Growth::kWalk));
  for (size_t i = 0; i < worst.size(); ++i) worst[i] = std::min(worst[i], kMultiple * walk[i]);
  Dense v = before;
  const Errors e = errors_after_program(problem, numbers, v.v, std::move(worst), arithmetic.activation_error);
  exact_.push_back(std::move(v));
  allowed_.push_back(e);
  for (size_t r = 1; r < problem.out.size(); ++r) {
    const Dense of = made_of(problem, r, numbers, exact_[0]);
    exact_.push_back(op.extra_result(problem, r, numbers, of));
    allowed_.push_back(
        errors_of_result(op, problem, r, numbers, of, errors_made_of(problem, r, numbers, exact_[0], e)));
  }
}

std::vector<double> Judge::middle(size_t r) const {
  std::vector<double> v;
  if (emulated()) {
    for (size_t i = 0; i < emulation_[r].low.size(); ++i) v.push_back(emulation_[r].middle(i));
  } else {
    for (const double x : exact_[r].v) v.push_back(x / scales_[r]);
  }
  return v;
}

void Judge::judge_emulated(size_t r, const TensorView& got, Judgement& j) const {
  const Element element = got.desc->type.element;
  const std::vector<float> codes = decode_codes(got);
  const double scale = scales_[r];
  Comparison comparison(r, element, j);
  for (size_t i = 0; i < codes.size(); ++i) {
    const double step = step_at(element, nominal_[r][i]);
    comparison.add(i, codes[i] * scale,
                   {low_[r][i] * scale, nominal_[r][i] * scale, high_[r][i] * scale, step * scale});
  }
}

void Judge::judge_bounded(size_t r, const TensorView& got, Judgement& j) const {
  const QuantType& type = got.desc->type;
  const JudgedScales scales(got, exact_[r], allowed_[r]);
  const std::vector<double> numbers = decode(got).v;
  // Scales that a kernel makes may be either of two: their codes are held to a tolerance. All others lie between the
  // codes of both ends, as emulated ones do.
  const bool between = !type.dynamic && !is_whole(type);
  std::vector<double> low(numbers.size()), nominal(numbers.size()), high(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    const double scale = scales.at(static_cast<int64_t>(i)), unit = between ? scale : 1;
    AllowedResult a = allow(type, scale, exact_[r].v[i], allowed_[r][i]);
    if (info(type.element).mantissa_bits < 23) a.error += 0x1p-24 * std::fabs(a.want);  // by way of f32
    const double tolerance = a.error + (between ? 0 : a.rounding);
    low[i] = (a.want - tolerance) / unit, nominal[i] = a.want / unit, high[i] = (a.want + tolerance) / unit;
  }
  if (between) low = rounded(type, low), nominal = rounded(type, nominal), high = rounded(type, high);
  Comparison comparison(r, type.element, j);
  for (size_t i = 0; i < numbers.size(); ++i) {
    const double scale = scales.at(static_cast<int64_t>(i)), unit = between ? scale : 1;
    const double step = step_at(type.element, nominal[i] * unit / scale) * scale;
    comparison.add(i, numbers[i], {low[i] * unit, nominal[i] * unit, high[i] * unit, step});
  }
}

Judgement Judge::of(std::span<const TensorView> got) const {
  Judgement j;
  for (size_t r = 0; r < got.size(); ++r) emulated() ? judge_emulated(r, got[r], j) : judge_bounded(r, got[r], j);
  return j;
}

}  // namespace tessera
