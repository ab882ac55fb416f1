// SPDX-License-Identifier: Apache-2.0
#include "calibrate/magnitudes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/parallel.h"
#include "types/quantize_array.h"

namespace tessera {
namespace {

// Normal numbers with a few outliers, as activations have them.
std::vector<float> activations(size_t n, unsigned seed, double outliers = 1e-3) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<double> uniform;
  std::vector<float> x(n);
  for (float& v : x) v = normal(random) * (uniform(random) < outliers ? 30.0f : 1.0f);
  return x;
}

double exact_percentile(std::vector<float> x, double percent) {
  for (float& v : x) v = std::fabs(v);
  std::sort(x.begin(), x.end());
  return x[static_cast<size_t>(std::ceil(percent / 100 * static_cast<double>(x.size()))) - 1];
}

// Error of quantizing the very numbers, by the product's own quantizer.
double squared_error(const std::vector<float>& x, Element element, float clip) {
  const QuantType type(element, {Granularity::kTensor, Element::f32});
  const float scale = scale_for_amax(element, clip);
  const int64_t n = static_cast<int64_t>(x.size());
  std::vector<uint8_t> codes(x.size());
  std::vector<float> y(x.size());
  encode_scaled(type, x.data(), 1, n, &scale, nullptr, codes.data());
  dequantize_array(type, codes.data(), &scale, nullptr, 1, n, y.data());
  double error = 0;
  for (size_t i = 0; i < x.size(); ++i) error += std::pow(static_cast<double>(y[i]) - x[i], 2);
  return error;
}

double nvfp4_error(const std::vector<float>& x, float clip) {
  const float scale2 = clip / (6 * 448);
  const int64_t rows = static_cast<int64_t>(x.size()) / 64;
  std::vector<uint8_t> codes(x.size() / 2), scale(x.size() / 16);
  std::vector<float> y(x.size());
  quantize_under(kNvfp4, x.data(), rows, 64, &scale2, scale.data(), codes.data());
  dequantize_array(kNvfp4, codes.data(), scale.data(), &scale2, rows, 64, y.data());
  double error = 0;
  for (size_t i = 0; i < x.size(); ++i) error += std::pow(static_cast<double>(y[i]) - x[i], 2);
  return error;
}

TEST(Magnitudes, PercentilesAreThoseOfTheSortedNumbersWithinABin) {
  const std::vector<float> x = activations(200000, 1);
  Magnitudes m;
  m.add(x.data(), 2000, 100, 0);
  EXPECT_EQ(m.count(), 200000);
  EXPECT_EQ(m.amax(), static_cast<float>(exact_percentile(x, 100)));
  for (const double p : {50.0, 90.0, 99.0, 99.9, 99.99, 99.999}) {
    const double want = exact_percentile(x, p);
    EXPECT_NEAR(m.percentile(p), want, want / 128) << p;
  }
}

TEST(Magnitudes, APercentileThatIsZeroBecomesAmax) {
  std::vector<float> x(1000, 0.0f);
  x[7] = -3;
  Magnitudes m;
  m.add(x.data(), 10, 100, 0);
  EXPECT_EQ(m.percentile(99), 3);
  EXPECT_EQ(m.percentile(99.999), 3);
  Magnitudes zeros;
  zeros.add(x.data(), 1, 7, 0);
  EXPECT_EQ(zeros.percentile(99), 0);
  EXPECT_EQ(zeros.best_clip(Element::i8), 0);
}

TEST(Magnitudes, TheBestClipIsThatOfTryingThemAll) {
  for (const double outliers : {0.0, 1e-4, 1e-2}) {
    const std::vector<float> x = activations(1 << 16, 3, outliers);
    Magnitudes m;
    m.add(x.data(), 1024, 64, 0);
    for (const Element e : {Element::i8, Element::e4m3}) {
      double best = INFINITY;
      for (int i = 0; i <= 128; ++i)
        best = std::min(best, squared_error(x, e, static_cast<float>(m.amax() * std::exp2(-i / 16.0))));
      // Spreading numbers evenly within a bin moves an error by far less than the errors of near-by clips differ.
      EXPECT_LE(squared_error(x, e, m.best_clip(e)), best * 1.02) << info(e).name << " " << outliers;
      EXPECT_GT(m.best_clip(e), 0);
    }
  }
  // With i8 and normal numbers, clipping is a real gain: it must be found.
  const std::vector<float> x = activations(1 << 16, 4, 1e-4);
  Magnitudes m;
  m.add(x.data(), 1024, 64, 0);
  EXPECT_LT(m.best_clip(Element::i8), m.amax());
  EXPECT_LT(squared_error(x, Element::i8, m.best_clip(Element::i8)), squared_error(x, Element::i8, m.amax()) * 0.9);
}

TEST(Magnitudes, TheBestNvfp4ClipIsThatOfTryingThemAll) {
  for (const double outliers : {0.0, 1e-4, 1e-2}) {
    std::vector<float> x = activations(1 << 16, 5, outliers);
    for (size_t i = 0; i < x.size(); ++i) x[i] *= std::exp2(static_cast<float>((i / 64) % 12));  // rows of all sizes
    Magnitudes m;
    m.add(x.data(), 1024, 64, 0);
    double best = INFINITY;
    for (int i = 0; i <= 12; ++i)
      best = std::min(best, nvfp4_error(x, static_cast<float>(m.amax() * std::exp2(-i / 4.0))));
    // Up to 64 blocks stand for each power of two: their mean error is known to some 1/sqrt(64 * 16) of itself.
    EXPECT_LE(nvfp4_error(x, m.best_nvfp4_clip()), best * 1.1) << outliers;
  }
}

TEST(Magnitudes, NeitherOrderNorThreadsMatter) {
  const std::vector<float> x = activations(1 << 20, 6);
  const auto gathered = [&](int threads, bool backwards, int64_t piece) {
    set_threads(threads);
    Magnitudes m;
    const int64_t rows = (1 << 20) / 256;
    for (int64_t r = 0; r < rows; r += piece) {
      const int64_t at = backwards ? rows - r - piece : r;
      m.add(x.data() + at * 256, piece, 256, at * 256);
    }
    return m.range(97.5);
  };
  const ValueRange want = gathered(1, false, 4096);
  EXPECT_EQ(want, gathered(4, false, 4096));
  EXPECT_EQ(want, gathered(4, true, 64));
  EXPECT_EQ(want, gathered(1, true, 1024));
  set_threads(0);
  EXPECT_TRUE(want.percentiles.contains(97.5));
  EXPECT_EQ(want.mse.size(), 3u);
}

TEST(Magnitudes, WhatIsNotFiniteShowsAndIsNotCounted) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const float x[4] = {1, -inf, 2, 3};
  Magnitudes m;
  m.add(x, 1, 4, 0);
  EXPECT_EQ(m.amax(), inf);
  EXPECT_EQ(m.count(), 3);
  m.add(&nan, 1, 1, 4);
  EXPECT_TRUE(std::isnan(m.amax()));
  EXPECT_TRUE(m.range(99).percentiles.empty());
}

}  // namespace
}  // namespace tessera
