// SPDX-License-Identifier: Apache-2.0
#include "steps/row_moments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace tessera {
namespace {

std::vector<double> draw(int64_t n, double mean, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(mean, 1);
  std::vector<double> v(static_cast<size_t>(n));
  for (double& x : v) x = static_cast<float>(normal(random));  // numbers that fp32 holds
  return v;
}

double inverse_of(const std::vector<double>& v, const FoldedNorm& norm) {
  const double n = static_cast<double>(v.size());
  double mean = 0, squares = 0;
  for (double x : v) mean += x / n;
  for (double x : v) squares += (norm.rms ? x * x : (x - mean) * (x - mean)) / n;
  return 1 / std::sqrt(squares + static_cast<double>(norm.eps));
}

// Whole groups, tails, fewer columns than a group; far from zero as well, where squares of means would cancel.
TEST(RowMoments, JoinToTheDeviationOfTheRow) {
  for (const int64_t cols : {1, 8, 63, 64, 65, 200, 768, 3072}) {
    for (const double mean : {0.0, 3.0, 1e4}) {
      for (const bool rms : {false, true}) {
        const FoldedNorm norm{.rms = rms, .eps = 1e-6f};
        const std::vector<double> v = draw(cols, mean, static_cast<uint64_t>(cols));
        std::vector<double> moments(static_cast<size_t>(2 * moment_groups(cols)));
        take_moments(v.data(), cols, moments.data());
        const double want = inverse_of(v, norm);
        EXPECT_NEAR(inverse_deviation(moments.data(), cols, norm), want, 1e-7 * want)
            << cols << " " << mean << " " << rms;
      }
    }
  }
}

// What fp32 makes of the same formula stays inside what is allowed of it.
TEST(RowMoments, ErrorsHoldForSinglePrecision) {
  for (const int64_t cols : {64, 200, 768}) {
    for (const double mean : {0.0, 5.0, 300.0}) {
      const std::vector<double> v = draw(cols, mean, 7 + static_cast<uint64_t>(cols)), none(v.size(), 0.0);
      std::vector<double> exact(static_cast<size_t>(2 * moment_groups(cols))), allowed(exact.size());
      take_moments(v.data(), cols, exact.data());
      moment_errors(v.data(), none.data(), cols, allowed.data());
      for (int64_t g = 0; g < moment_groups(cols); ++g) {
        const int64_t first = g * kMomentsGroup, end = std::min(cols, first + kMomentsGroup);
        float sum = 0, squares = 0;
        for (int64_t i = first; i < end; ++i) sum += static_cast<float>(v[static_cast<size_t>(i)]);
        const float middle = sum / static_cast<float>(end - first);
        for (int64_t i = first; i < end; ++i) {
          const float d = static_cast<float>(v[static_cast<size_t>(i)]) - middle;
          squares += d * d;
        }
        const size_t at = static_cast<size_t>(2 * g);
        EXPECT_NEAR(middle, exact[at], allowed[at]);
        EXPECT_NEAR(squares, exact[at + 1], allowed[at + 1]);
        EXPECT_LT(allowed[at], 1e-5 * (1 + mean));
      }
    }
  }
}

}  // namespace
}  // namespace tessera
