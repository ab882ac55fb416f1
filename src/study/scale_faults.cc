// SPDX-License-Identifier: Apache-2.0
#include "study/scale_faults.h"

#include <cmath>
#include <cstdio>
#include <functional>
#include <vector>

#include "base/parallel.h"
#include "base/status.h"
#include "ops/reference.h"
#include "study/scale_of.h"

namespace tessera {
namespace {

// Percentiles and searches clip up to a hundredth or so; a quarter is no choice of scales.
constexpr double kSaturatedNote = 0.01, kSaturatedFault = 0.25;
constexpr double kLostNote = 0.1, kLostFault = 0.5;
// A scale two times too small clips more than the coarsest element rounds: of numbers that are uniform up to their
// largest, (1 - 1/2)^1.5 = 0.35 of their size; of normal ones that reach 3.5 deviations, 0.15. e2m1 leaves 0.1. Below
// that inputs that reach a little farther than those of the calibration explain it, and the gate judges the outputs.
constexpr double kTooSmall = 2;
// A scale that is this much too large has not been made for these numbers.
constexpr double kTooLarge = 8;
// Numbers that masks add: no layer computes such.
constexpr double kMask = 1e30;
// Of a weight's numbers, those that may lie outside their rounding interval: a clip search leaves few.
constexpr double kOutsideFault = 0.1;
// No type of the product rounds weights worse: e2m1 in blocks of 16 leaves 0.1.
constexpr double kWeightFault = 0.3;

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

// The codes as the numbers that they are without scales.
std::vector<double> bare_codes(const TensorView& t) {
  Operand desc = *t.desc;
  desc.type = QuantType(desc.type.element);
  TensorView bare = t;
  bare.desc = &desc;
  bare.scale = bare.scale2 = nullptr;
  return decode(bare).v;
}

std::vector<double> scale_numbers(const TensorView& t, const ScaleLevel& level, const void* data) {
  if (level.granularity == Granularity::kNone || data == nullptr) return {};
  const int64_t cols = t.desc->shape.empty() ? 1 : std::max<int64_t>(1, t.desc->shape.back());
  std::vector<double> out(static_cast<size_t>(scale_count(level, elements(t.desc->shape) / cols, cols)));
  info(level.element).decode_f64(data, 0, static_cast<int64_t>(out.size()), out.data());
  return out;
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
  double saturated, lost;  // shares of them: at their largest; too small to be told apart
  const char* lost_how;
};

Finding judge_static_scale(const Driven& d, double reach, double amax) {
  const double ratio = reach > 0 ? amax / reach : 0;  // 0: not known
  if (d.saturated >= kSaturatedNote && d.count >= 64 && (ratio == 0 || ratio > 1.05)) {
    const std::string size = ratio > 0 ? cat(" ", brief(ratio), "x too small") : std::string(" too small");
    return {.text = cat(d.scale, size, ", ", percent(d.saturated), " of ", d.codes, " saturate"),
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

// Codes of one scale: a number that becomes zero is lost.
Driven drive_codes(const TensorView& t, std::span<const float> exact) {
  const std::vector<double> codes = bare_codes(t);
  const double max = info(t.desc->type.element).max, n = std::max<double>(1, static_cast<double>(codes.size()));
  double saturated = 0, zero = 0;
  for (size_t i = 0; i < codes.size(); ++i) {
    saturated += std::fabs(codes[i]) >= max;
    zero += codes[i] == 0 && (exact.size() != codes.size() || exact[i] != 0);
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
  const std::vector<double> scales = scale_numbers(t, level, t.scale);
  const double smallest = std::ldexp(1.0, element.min_exponent - element.mantissa_bits),
               n = std::max<double>(1, static_cast<double>(scales.size()));
  double saturated = 0, smallest_ones = 0;
  for (const double s : scales) saturated += s >= element.max, smallest_ones += s <= smallest;
  return {"global activation scale", "block scales", static_cast<int64_t>(scales.size()), saturated / n,
          smallest_ones / n, " underflow"};
}

// Sums over all numbers of a weight, added up in order.
struct Fit {
  double error = 0, size = 0, stored = 0, product = 0, outside = 0;
  double relative_l2() const { return size > 0 ? std::sqrt(error / size) : std::sqrt(error); }
  double cosine() const { return stored > 0 && size > 0 ? product / std::sqrt(stored * size) : 0; }
};

Fit fit(int64_t n, const std::function<void(int64_t begin, int64_t end, Fit&)>& body) {
  constexpr int64_t kPart = int64_t{1} << 16;
  std::vector<Fit> parts(static_cast<size_t>((n + kPart - 1) / kPart));
  parallel_for(static_cast<int64_t>(parts.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) body(p * kPart, std::min(n, (p + 1) * kPart), parts[static_cast<size_t>(p)]);
  });
  Fit all;
  for (const Fit& f : parts) {
    all.error += f.error, all.size += f.size, all.stored += f.stored, all.product += f.product;
    all.outside += f.outside;
  }
  return all;
}

void add(Fit& f, double w, double q) {
  f.error += (w - q) * (w - q), f.size += w * w, f.stored += q * q, f.product += w * q;
}

// Which misreading of codes and scales would give the weight, where one does.
std::string explain(const TensorView& t, std::span<const double> exact, const Fit& now) {
  const QuantType& type = t.desc->type;
  const int64_t n = static_cast<int64_t>(exact.size());
  const int64_t cols = std::max<int64_t>(1, t.desc->shape.back()), rows = n / cols;
  const std::vector<double> codes = bare_codes(t), first = scale_numbers(t, type.scale, t.scale),
                            second = scale_numbers(t, type.scale2, t.scale2);
  const double global = second.empty() ? 1 : second[0];
  const auto with = [&](const std::function<double(int64_t)>& number) {
    return fit(n, [&](int64_t begin, int64_t end, Fit& f) {
      for (int64_t i = begin; i < end; ++i) add(f, exact[static_cast<size_t>(i)], number(i));
    });
  };
  const auto scale_at = [&](int64_t row, int64_t col) {
    return first.empty() ? global : first[static_cast<size_t>(scale_index(type.scale, row, col, cols))] * global;
  };
  std::string best;
  double least = std::min(now.relative_l2(), kWeightFault) / 2;
  const auto consider = [&](const Fit& f, const std::string& text) {
    if (f.relative_l2() < least) least = f.relative_l2(), best = text;
  };
  if (info(type.element).bits == 4 && n % 2 == 0) {
    consider(with([&](int64_t i) { return codes[static_cast<size_t>(i ^ 1)] * scale_at(i / cols, i % cols); }),
             "the two codes of each byte are swapped");
  }
  if (type.scale.granularity == Granularity::kBlock) {
    const int64_t block = type.scale.block, blocks = (cols + block - 1) / block;
    consider(with([&](int64_t i) {
               const int64_t at = i % cols / block * rows + i / cols;
               return codes[static_cast<size_t>(i)] * first[static_cast<size_t>(at)] * global;
             }),
             cat("its scales lie transposed, [", blocks, ",", rows, "] where [", rows, ",", blocks, "] is read"));
    if (rows % block == 0 && cols % block == 0) {
      consider(with([&](int64_t i) {
                 return codes[static_cast<size_t>(i)] * first[static_cast<size_t>(i / cols / block * cols + i % cols)] *
                        global;
               }),
               cat("its blocks of ", block, " run along axis 0, the outputs, where axis 1 is read"));
    }
  }
  if (!best.empty()) return best;
  // A factor that all numbers share, as far as the type can tell.
  const double slope = now.stored > 0 ? now.product / now.stored : 0;
  if (now.cosine() > 0.95 && slope > 0) {
    return slope > 1 ? cat("its scales are ", brief(slope), "x too small")
                     : cat("its scales are ", brief(1 / slope), "x too large");
  }
  if (now.stored == 0) return "every code is zero";
  return cat("cosine ", brief(now.cosine()), ": it is not this layer's weight, or its scales are not its own");
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
    if (masks > 0) {  // passes/reach.h keeps such values in f32: whether a key stays hidden is no matter of luck
      return {cat(masks, " of ", exact.size(), " results are numbers that hide keys, which ", element.name, " makes ", brief(-element.max),
                  " of; bf16 or fp32 holds them"),
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
  return judge_static_scale(drive_codes(t, exact), exact.empty() ? 0 : scale * element.max, amax);
}

Finding judge_stated(const TensorView& t) {
  const QuantType& type = t.desc->type;
  if (t.scale == nullptr) return {};
  const bool two_levels = type.scale2.granularity == Granularity::kTensor && t.scale2 != nullptr;
  if (!two_levels && (type.dynamic || type.scale.granularity != Granularity::kTensor)) return {};
  if (!two_levels && is_of_mask(t)) return {};
  const Driven d = two_levels ? drive_block_scales(t) : drive_codes(t, {});
  if (d.count < 64 || d.saturated < kSaturatedFault) return {};
  const std::string share = percent(d.saturated);
  return {.text = cat(share, " of its input's ", d.codes, " saturate, under the scale that the model states")};
}

WeightFit judge_weight(const TensorView& stored, std::span<const double> exact, bool pruned) {
  const QuantType& type = stored.desc->type;
  const std::vector<double> numbers = decode(stored).v;
  const ElementInfo& element = info(type.element);
  const std::vector<double> codes = type.scaled() ? bare_codes(stored) : std::vector<double>();
  const ScaleOf scales(stored);
  const Fit now = fit(static_cast<int64_t>(exact.size()), [&](int64_t begin, int64_t end, Fit& f) {
    for (int64_t i = begin; i < end; ++i) {
      const double w = exact[static_cast<size_t>(i)], q = numbers[static_cast<size_t>(i)];
      if (pruned && q == 0) continue;
      add(f, w, q);
      const double scale = type.scaled() ? scales.at(i) : 1, code = type.scaled() ? codes[static_cast<size_t>(i)] : q;
      const bool clipped = std::fabs(code) >= element.max && (code > 0) == (w > 0) && std::fabs(w) > std::fabs(q);
      // Scales are rounded and quotients too: a number in the middle between two codes may fall to either.
      double allowed = 0.505 * step_at(type.element, code) * std::fabs(scale);
      if (type.product) allowed += std::ldexp(std::fabs(q), -info(*type.product).mantissa_bits - 1);
      f.outside += !clipped && !(std::fabs(w - q) <= allowed);
    }
  });
  WeightFit result{.relative_l2 = now.relative_l2(), .finding = {}};
  const double outside = now.outside / std::max<double>(1, static_cast<double>(exact.size()));
  if (outside <= kOutsideFault && now.relative_l2() <= kWeightFault) return result;
  char text[96];
  std::snprintf(text, sizeof(text),
                "its stored weight is off by %.2g of its size, %.0f %% of it beyond its rounding: ", now.relative_l2(),
                100 * outside);
  result.finding = {text + explain(stored, exact, now), true, true};
  return result;
}

Finding judge_codes(const TensorView& stored) {
  const QuantType& type = stored.desc->type;
  if (!type.scaled()) return {};
  double most = 0;
  for (double c : bare_codes(stored)) most = std::max(most, std::fabs(c));
  const double max = info(type.element).max;
  if (most == 0 || most * kTooLarge > max) return {};  // a weight of zeros is somebody's wish
  return {cat("weight scales ", brief(max / most), "x too large: its codes reach ", brief(most), " of ", brief(max)),
          false, true};
}

}  // namespace tessera
