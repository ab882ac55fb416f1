// SPDX-License-Identifier: Apache-2.0
// Arithmetic that kernels share with the host: division by multiplication, walking axes, the fast GELU.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tiles/cuda/device_axes.h"
#include "tiles/cuda/fast_divide.h"
#include "tiles/cuda/gelu_fast.h"

namespace tessera {
namespace {

TEST(FastDivide, IsExactBelow31Bits) {
  std::mt19937 random(1);
  std::vector<uint32_t> divisors = {1,
                                    2,
                                    3,
                                    5,
                                    7,
                                    8,
                                    12,
                                    49,
                                    96,
                                    197,
                                    641,
                                    768,
                                    3072,
                                    65535,
                                    65536,
                                    65537,
                                    (1u << 30) - 1,
                                    1u << 30,
                                    (1u << 30) + 1,
                                    (1u << 31) - 1};
  for (int i = 0; i < 200; ++i) divisors.push_back(1 + random() % ((1u << 31) - 1) / (1u << random() % 31));
  for (uint32_t d : divisors) {
    const FastDivide divide(d);
    ASSERT_EQ(divide.divisor, d);
    std::vector<uint32_t> numbers = {0, 1, (1u << 31) - 1, (1u << 31) - 2};
    for (int i = 0; i < 300; ++i) {
      const uint32_t n = random() % (1u << 31), multiple = n / d * d;
      numbers.insert(numbers.end(), {n, multiple, multiple == 0 ? 0 : multiple - 1});
    }
    for (uint32_t n : numbers) ASSERT_EQ(divide.quotient(n), n / d) << n << " / " << d;
  }
}

TEST(DeviceAxes, UnitsShortenTheLastAxis) {
  DeviceAxes<2> axes;
  axes.set({3, 5, 16}, 8);
  axes.set_strides(0, {100, 20, 1}, 8);
  axes.set_strides(1, {80, 16, 1}, 8);
  EXPECT_EQ(axes.rank, 3);
  EXPECT_EQ(axes.size[0].divisor, 3u);
  EXPECT_EQ(axes.size[2].divisor, 2u);
  EXPECT_EQ(axes.stride[0][1], 20);
  EXPECT_EQ(axes.stride[0][2], 8);
  EXPECT_EQ(axes.stride[1][2], 8);
}

// The host's reciprocal and exponential are better than the device's by an ulp or two of Q: half of the stated bound is
// left for them.
TEST(GeluFast, StaysInItsBound) {
  double worst = 0;
  for (double at = -12; at < 12; at += 1.0 / 65536) {
    const float x = static_cast<float>(at + at * 1e-7);
    if (x == 0.0f) continue;
    const double exact = 0.5 * x * std::erfc(-static_cast<double>(x) / std::sqrt(2.0));
    worst = std::max(worst, std::fabs(gelu_erf_fast(x) - exact) / std::fabs(x));
  }
  EXPECT_LT(worst, 0x1p-22);
  EXPECT_GT(worst, 0x1p-26);  // it is an approximation: a bound that nothing comes near would be a mistake in this test
}

TEST(GeluFast, Limits) {
  EXPECT_EQ(gelu_erf_fast(0.0f), 0.0f);
  EXPECT_EQ(gelu_erf_fast(INFINITY), INFINITY);
  EXPECT_EQ(gelu_erf_fast(-INFINITY), 0.0f);
  EXPECT_EQ(gelu_erf_fast(-40.0f), 0.0f);
  EXPECT_EQ(gelu_erf_fast(40.0f), 40.0f);
  EXPECT_EQ(gelu_erf_fast(3e38f), 3e38f);
  EXPECT_TRUE(std::isnan(gelu_erf_fast(NAN)));
}

}  // namespace
}  // namespace tessera
