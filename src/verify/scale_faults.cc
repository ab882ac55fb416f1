// SPDX-License-Identifier: Apache-2.0
#include "verify/scale_faults.h"

#include <cmath>
#include <cstdio>
#include <functional>
#include <vector>

#include "base/parallel.h"
#include "base/status.h"
#include "op/reference.h"
#include "verify/validate/scale_of.h"

namespace tessera {
namespace {

// Percentiles and searches clip up to a hundredth or so; a quarter is no choice of scales.
constexpr double kSaturatedNote = 0.01, kSaturatedFault = 0.25;
constexpr double kLostNote = 0.1, kLostFault = 0.5;
constexpr int64_t kFewestCodes = 64;
// A scale two times too small clips more than the coarsest element rounds: of numbers that are uniform up to their
// largest, (1 - 1/2)^1.5 = 0.35 of their size; of normal ones that reach 3.5 deviations, 0.15. e2m1 leaves 0.1. Below
// that inputs that reach a little farther than those of the calibration explain it, and the gate judges the outputs.
constexpr double kTooSmall = 2;
// A scale that is this much too large has not been made for these numbers.
constexpr double kTooLarge = 8;
// Numbers that masks add: no layer computes such.
constexpr double kMask = 1e30;

std::string brief(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), x < 10 || x >= 1e6 ? "%.2g" : "%.0f", x);
  return text;
}
std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof(text), share < 0.1 ? "%.2g %%" : "%.0f %%", 100 * share);
  return text;
}

double largest(std::span<const float> numbers) {
  double amax = 0;
  for (float x : numbers) {
    if (std::fabs(x) < kMask) amax = std::max(amax, std::fabs(static_cast<double>(x)));
  }
  return amax;
}

// What one static scale does to the codes under it (of two levels: to the block scales).
struct Driven {
  const char *scale, *codes;  // what they are called
  int64_t count;
  double saturated, lost;  // shares of them: beyond their largest, or at it where the numbers are not known; too small
                           // to be told apart
  const char* lost_how;
};

Finding judge_static_scale(const Driven& d, double reach, double amax) {
  const double ratio = reach > 0 ? amax / reach : 0;  // 0: not known
  if (reach == 0) {
    if (d.saturated < kSaturatedFault || d.count < kFewestCodes) return {};
    return {
        .text = cat(d.scale, " may be too small, ", percent(d.saturated), " of ", d.codes, " are the largest there is"),
        .of_calibration = true};
  }
  if (d.saturated >= kSaturatedNote && d.count >= kFewestCodes && ratio > 1.05) {
    return {
        .text = cat(d.scale, " ", brief(ratio), "x too small, ", percent(d.saturated), " of ", d.codes, " saturate"),
        .fault = ratio >= kTooSmall && d.saturated >= kSaturatedFault,
        .of_calibration = true};
  }
  if (d.lost >= kLostNote && ratio > 0 && ratio * kTooLarge < 1) {
    return {.text = cat(d.scale, " ", brief(1 / ratio), "x too large, ", percent(d.lost), " of ", d.codes, d.lost_how),
            .fault = d.lost >= kLostFault,
            .of_calibration = true};
  }
  return {};
}

// Codes of one scale that reaches so far: a number that becomes zero is lost. The amax that a scale was made of has the
// largest code, and so has what rounds to it: only a number beyond it saturates.
Driven drive_codes(const TensorView& t, std::span<const float> exact, double reach) {
  const std::vector<float> codes = decode_codes(t);
  const double max = info(t.desc->type.element).max, n = std::max<double>(1, static_cast<double>(codes.size()));
  double saturated = 0, zero = 0;
  for (size_t i = 0; i < codes.size(); ++i) {
    const bool known = exact.size() == codes.size();
    saturated += std::fabs(codes[i]) >= max && (!known || std::fabs(exact[i]) > reach);
    zero += codes[i] == 0 && (!known || exact[i] != 0);
  }
  return {"activation scale", "codes", static_cast<int64_t>(codes.size()), saturated / n, zero / n, " are zero"};
}

// The static scale of a mask's codes: there are two codes, and the largest is meant.
bool is_of_mask(const TensorView& t) {
  double scale = 0;
  info(t.desc->type.scale.element).decode_f64(t.scale, 0, 1, &scale);
  return scale * info(t.desc->type.element).max >= kMask;
}

// Block scales under a second level: they are made no smaller than their element's smallest number, and those of
// blocks of zeros are 1 (docs/formats.md), so a block whose scale is the smallest had no scale of its own.
Driven drive_block_scales(const TensorView& t) {
  const ScaleLevel& level = t.desc->type.scale;
  const ElementInfo& element = info(level.element);
  const std::vector<double> scales = first_scales(t);
  const double smallest = std::ldexp(1.0, element.min_exponent - element.mantissa_bits),
               n = std::max<double>(1, static_cast<double>(scales.size()));
  double saturated = 0, smallest_ones = 0;
  for (const double s : scales) saturated += s >= element.max, smallest_ones += s <= smallest;
  return {"global activation scale", "block scales", static_cast<int64_t>(scales.size()), saturated / n,
          smallest_ones / n,         " underflow"};
}

}  // namespace

Finding judge_activation(const TensorView& t, std::span<const float> exact) {
  const QuantType& type = t.desc->type;
  const ElementInfo& element = info(type.element);
  const double amax = largest(exact);
  if (!type.scaled()) {
    if (element.kind != ElementKind::kFloat || element.max > 1e5 || exact.empty()) return {};
    int64_t beyond = 0, masks = 0;
    for (float x : exact) (std::fabs(x) < kMask ? beyond : masks) += std::fabs(x) > element.max;
    if (masks > 0) {  // precision/reach.h keeps such values in f32: whether a key stays hidden is no matter of luck
      return {cat(masks, " of ", exact.size(), " results are numbers that hide keys, which ", element.name, " makes ",
                  brief(-element.max), " of; bf16 or fp32 holds them"),
              true};
    }
    if (beyond == 0) return {};
    return {cat(beyond, " of ", exact.size(), " results lie beyond ", brief(element.max), ", the largest ",
                element.name, ", and saturate (up to ", brief(amax), "); bf16 or fp32 holds them"),
            static_cast<double>(beyond) >= kSaturatedFault * static_cast<double>(exact.size())};
  }
  if (type.scale2.granularity == Granularity::kTensor && t.scale != nullptr && t.scale2 != nullptr) {
    double global = 0;
    info(type.scale2.element).decode_f64(t.scale2, 0, 1, &global);
    const double reach = global * info(type.scale.element).max * element.max;
    return judge_static_scale(drive_block_scales(t), exact.empty() ? 0 : reach, amax);
  }
  if (type.dynamic || type.scale.granularity != Granularity::kTensor || t.scale == nullptr) return {};
  double scale = 0;
  info(type.scale.element).decode_f64(t.scale, 0, 1, &scale);
  if (is_of_mask(t)) return {};
  const double reach = scale * element.max;
  return judge_static_scale(drive_codes(t, exact, reach), exact.empty() ? 0 : reach, amax);
}

Finding judge_stated(const TensorView& t) {
  const QuantType& type = t.desc->type;
  if (t.scale == nullptr) return {};
  const bool two_levels = type.scale2.granularity == Granularity::kTensor && t.scale2 != nullptr;
  if (!two_levels && (type.dynamic || type.scale.granularity != Granularity::kTensor)) return {};
  if (!two_levels && is_of_mask(t)) return {};
  const Driven d = two_levels ? drive_block_scales(t) : drive_codes(t, {}, 0);
  if (d.count < kFewestCodes || d.saturated < kSaturatedFault) return {};
  const std::string share = percent(d.saturated);
  return {.text = cat(share, " of its input's ", d.codes, " saturate, under the scale that the model states")};
}

Finding judge_codes(const TensorView& stored) {
  const QuantType& type = stored.desc->type;
  if (!type.scaled()) return {};
  double most = 0;
  for (const double c : decode_codes(stored)) most = std::max(most, std::fabs(c));
  const double max = info(type.element).max;
  if (most == 0 || most * kTooLarge > max) return {};  // a weight of zeros is somebody's wish
  return {cat("weight scales ", brief(max / most), "x too large: its codes reach ", brief(most), " of ", brief(max)),
          false, true};
}

}  // namespace tessera
