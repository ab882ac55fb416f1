// SPDX-License-Identifier: Apache-2.0
#include "weights/clip_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/parallel.h"

namespace tessera {
namespace {

// Steps of 1/32 meet every e4m3 (8 per octave) and e8m0 between the ends.
constexpr int kSteps = 32;
constexpr int kFirst = kSteps / 2, kLast = kSteps * 3 / 2;

struct Scales {
  Buffer scale, scale2;
};

Result<Scales> amax_scales(const QuantType& type, const float* w, int64_t rows, int64_t cols) {
  TS_TRY(check_quantizable(type));
  if (!type.scaled()) return bad_input(cat("type ", to_string(type), " has no scales to choose"));
  const auto bytes_of = [&](const ScaleLevel& level) {
    return static_cast<size_t>(packed_bytes(level.element, scale_count(level, rows, cols)));
  };
  Scales out{Buffer(bytes_of(type.scale)), Buffer(bytes_of(type.scale2))};
  make_scale2(type, w, rows, cols, out.scale2.data());
  make_scales(type, w, rows, cols, out.scale2.data(), out.scale.data());
  return out;
}

// The scales times `factor`, as their element holds them: within its positive numbers.
std::vector<float> times(const std::vector<float>& scales, const ElementInfo& element, float factor) {
  std::vector<float> out(scales.size());
  const float smallest = std::ldexp(1.0f, element.min_exponent - element.mantissa_bits);
  for (size_t i = 0; i < scales.size(); ++i) out[i] = std::max(scales[i] * factor, smallest);
  Buffer codes(static_cast<size_t>(element.bits / 8) * out.size());
  element.encode(out.data(), static_cast<int64_t>(out.size()), codes.data(), 0);
  element.decode(codes.data(), 0, static_cast<int64_t>(out.size()), out.data());
  return out;
}

}  // namespace

Result<WeightGrid> amax_grid(const QuantType& type, const float* w, int64_t rows, int64_t cols) {
  TS_ASSIGN(Scales s, amax_scales(type, w, rows, cols));
  return WeightGrid(type, rows, cols, std::move(s.scale), std::move(s.scale2));
}

Result<WeightGrid> clip_weights(const QuantType& type, const float* w, int64_t rows, int64_t cols,
                                const std::vector<float>& importance) {
  TS_ASSIGN(Scales s, amax_scales(type, w, rows, cols));
  const ElementInfo& element = info(type.scale.element);
  const int64_t count = scale_count(type.scale, rows, cols);
  // Rows whose scales are independent of those of other rows are searched in pieces; one scale for all is one piece.
  const bool whole = type.scale.granularity == Granularity::kTensor;
  const int64_t grain = whole ? rows : std::max<int64_t>(1, 16384 / std::max<int64_t>(cols, 1));
  const int64_t per_row = whole ? count : count / std::max<int64_t>(rows, 1);
  parallel_for(divide_up(rows, std::max<int64_t>(grain, 1)), 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t row = piece * grain, n = std::min(grain, rows - row), numbers = n * cols;
      const int64_t first = whole ? 0 : row * per_row, scales = whole ? count : n * per_row;
      std::vector<float> base(static_cast<size_t>(scales));
      element.decode(s.scale.data(), first, scales, base.data());
      std::vector<float> best = base, last(base.size(), -1.0f), number(static_cast<size_t>(numbers));
      std::vector<double> least(base.size(), INFINITY), error(base.size());
      Buffer codes(static_cast<size_t>(packed_bytes(type.element, numbers))), tried(s.scale.size());
      // 1 first: of equal errors the scale that clips nothing wins.
      for (int step = kFirst - 1; step <= kLast; ++step) {
        const std::vector<float> scale =
            step < kFirst ? base : times(base, element, static_cast<float>(step) / static_cast<float>(kSteps));
        if (scale == last) continue;
        last = scale;
        element.encode(scale.data(), scales, tried.data(), 0);
        encode_scaled(type, w + row * cols, n, cols, tried.data(), s.scale2.data(), codes.data());
        dequantize_array(type, codes.data(), tried.data(), s.scale2.data(), n, cols, number.data());
        std::fill(error.begin(), error.end(), 0.0);
        for (int64_t i = 0; i < numbers; ++i) {
          const int64_t c = i % cols;
          const double off = static_cast<double>(number[static_cast<size_t>(i)]) - w[row * cols + i];
          const double weight = importance.empty() ? 1.0 : importance[static_cast<size_t>(c)];
          error[static_cast<size_t>(scale_index(type.scale, i / cols, c, cols))] += weight * off * off;
        }
        for (size_t i = 0; i < error.size(); ++i) {
          if (error[i] < least[i]) least[i] = error[i], best[i] = scale[i];
        }
      }
      element.encode(best.data(), scales, s.scale.data(), first);
    }
  });
  return WeightGrid(type, rows, cols, std::move(s.scale), std::move(s.scale2));
}

}  // namespace tessera
