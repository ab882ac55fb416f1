// SPDX-License-Identifier: Apache-2.0
#include "ops/judge.h"

#include <algorithm>
#include <cmath>

#include "ops/reference.h"
#include "ops/whole_numbers.h"

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

// The walk is the size of an error, not its bound. Its roundings are taken as large as they can be, three times what they
// are on average: five times the walk is some fifteen deviations.
constexpr double kMultiple = 5;

struct Norms {
  double off = 0, allowed = 0, size = 0, got = 0, product = 0;
  void add(double g, double want, double may) {
    off += (g - want) * (g - want), allowed += may * may, size += want * want, got += g * g, product += g * want;
  }
  void finish(Judgement& j) const {
    const double all = size > 0 ? std::sqrt(size) : 1;
    j.cosine = std::min(j.cosine, got > 0 && size > 0 ? product / std::sqrt(got * size) : got == size ? 1.0 : 0.0);
    j.relative_l2 = std::max(j.relative_l2, std::sqrt(off) / all);
    j.allowed_l2 = std::max(j.allowed_l2, std::sqrt(allowed) / all);
  }
};

void note(Judgement& j, size_t r, size_t i, double share, double got, double low, double high) {
  if (!(share <= j.share)) j.share = std::isnan(share) ? INFINITY : share, j.result = static_cast<int64_t>(r), j.at = static_cast<int64_t>(i), j.got = got, j.low = low, j.high = high;
}

}  // namespace

Judge::Judge(const Variant& variant, const Problem& problem, std::span<const TensorView> in, std::span<const TensorView> out) : problem_(problem) {
  for (const TensorView& t : out) scales_.push_back(t.desc->type.dynamic ? 1 : tensor_scale(t));
  if (variant.emulate != nullptr) emulation_ = variant.emulate(problem, in, out);
  for (size_t r = 0; r < emulation_.size(); ++r) {
    const EmulatedResult& e = emulation_[r];
    low_.push_back(rounded(problem.out[r].type, {e.low.begin(), e.low.end()}));
    high_.push_back(rounded(problem.out[r].type, {e.high.begin(), e.high.end()}));
  }
  if (emulated()) return;
  const OpInfo& op = *find_op(problem.op);
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
  for (size_t r = 1; r < problem.out.size(); ++r) exact_.push_back(op.beside(problem, r, exact_[0]));
  for (size_t r = 0; r < problem.out.size(); ++r) allowed_.push_back(errors_of_result(op, problem, r, exact_[0], e));
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
  const std::vector<double>&low = low_[r], &high = high_[r];
  const std::vector<float> codes = decode_codes(got);
  const double scale = scales_[r];
  Norms norms;
  for (size_t i = 0; i < codes.size(); ++i) {
    const double l = low[i], h = high[i], g = codes[i], middle = (l + h) / 2;
    if (std::isnan(l) || std::isnan(h)) {
      if (!std::isnan(g) && info(element).kind == ElementKind::kFloat) note(j, r, i, INFINITY, g * scale, l, h);
      continue;
    }
    if (!std::isfinite(g)) {
      j.finite = j.finite && (g == l || g == h);
      if (g != l && g != h) note(j, r, i, INFINITY, g * scale, l * scale, h * scale);
      continue;
    }
    norms.add(g, middle, (h - l) / 2);
    const double outside = std::max({0.0, l - g, g - h});
    // Nothing but the interval is right: whatever lies outside is as far off as it is in steps.
    const double share = outside == 0 ? (h > l ? 0.5 : 0) : 1 + outside / std::max(h - l, step_at(element, middle));
    note(j, r, i, share, g * scale, l * scale, h * scale);
  }
  norms.finish(j);
}

void Judge::judge_bounded(size_t r, const TensorView& got, Judgement& j) const {
  const QuantType& type = got.desc->type;
  const JudgedScales scales(got, exact_[r], allowed_[r]);
  const std::vector<double> numbers = decode(got).v;
  // Scales that a kernel makes may be either of two: their codes are held to a tolerance. All others lie between the codes
  // of both ends, as emulated ones do.
  const bool between = !type.dynamic && !is_whole(type);
  std::vector<double> low(numbers.size()), high(numbers.size()), tolerance(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    const double scale = scales.at(static_cast<int64_t>(i));
    AllowedResult a = allow(type, scale, exact_[r].v[i], allowed_[r][i]);
    if (info(type.element).mantissa_bits < 23) a.error += 0x1p-24 * std::fabs(a.want);  // by way of f32
    tolerance[i] = a.error + (between ? 0 : a.rounding);
    low[i] = (a.want - tolerance[i]) / (between ? scale : 1), high[i] = (a.want + tolerance[i]) / (between ? scale : 1);
  }
  if (between) low = rounded(type, low), high = rounded(type, high);
  Norms norms;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const double scale = scales.at(static_cast<int64_t>(i)), g = numbers[i], unit = between ? scale : 1;
    if ((std::isnan(exact_[r].v[i]) || std::isnan(scale)) && std::isnan(g)) continue;
    const double l = low[i] * unit, h = high[i] * unit, middle = (l + h) / 2;
    if (std::isinf(l) || std::isinf(h)) {  // f32 has infinities: masks are made of them
      if (!(l <= g && g <= h)) note(j, r, i, INFINITY, g, l, h);
      continue;
    }
    const double outside = std::max({0.0, l - g, g - h});
    if (!std::isfinite(g) && std::isfinite(middle)) j.finite = false;
    const double share = std::isnan(g) ? INFINITY : outside == 0 ? (h > l ? std::fabs(g - middle) / (h - l) : 0) : 1 + outside / std::max(h - l, step_at(type.element, middle / scale) * scale);
    note(j, r, i, share, g, l, h);
    if (std::isfinite(g) && std::isfinite(middle)) norms.add(g, middle, (h - l) / 2);
  }
  norms.finish(j);
}

Judgement Judge::of(std::span<const TensorView> got) const {
  Judgement j;
  for (size_t r = 0; r < got.size(); ++r) emulated() ? judge_emulated(r, got[r], j) : judge_bounded(r, got[r], j);
  return j;
}

}  // namespace tessera
