// SPDX-License-Identifier: Apache-2.0
#include "tiles/sm90/activation_fast.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tessera {
namespace {

double exact(Unary fn, double x) {
  switch (fn) {
    case Unary::gelu_erf:
      return 0.5 * x * std::erfc(-x * std::sqrt(0.5));
    case Unary::gelu_tanh: {
      const double u = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
      return x / (1 + std::exp(-2 * u));
    }
    case Unary::gelu_quick:
      return x / (1 + std::exp(-1.702 * x));
    default:
      return x / (1 + std::exp(-x));  // silu
  }
}

// kActivationError is the device's tanh, 2^-12 of x, and that of its argument; here tanh is right to a few roundings.
TEST(ActivationFast, ErrsByNoMoreThanItsArgumentsShare) {
  const double allowed = kActivationError - 0x1p-12;
  for (const Unary fn : {Unary::gelu_erf, Unary::gelu_tanh, Unary::gelu_quick, Unary::silu}) {
    ASSERT_TRUE(is_fast_activation(fn));
    const SmoothActivation act = smooth_activation(fn);
    ASSERT_TRUE(act.present);
    const auto check = [&](float x) {
      const double got = static_cast<double>(act(0.5f * x)), want = exact(fn, static_cast<double>(x));
      EXPECT_LE(std::fabs(got - want), allowed * std::fabs(static_cast<double>(x))) << name_of(fn) << " of " << x;
    };
    for (int i = -40000; i <= 40000; ++i) check(static_cast<float>(i) * 0x1p-11f);  // -19.5 to 19.5
    for (float x = 1e-30f; x < 2e18f; x *= 1.37f) check(x), check(-x);
  }
}

TEST(ActivationFast, ReluIsExact) {
  ASSERT_TRUE(is_fast_activation(Unary::relu));
  const SmoothActivation act = smooth_activation(Unary::relu);
  for (float x = 1e-37f; x < 3e38f; x *= 1.37f) {
    EXPECT_EQ(act(0.5f * x), x);
    EXPECT_EQ(act(-0.5f * x), 0.0f);
    float both[2] = {0.5f * x, -0.5f * x};
    act.run<2>(both);
    EXPECT_EQ(both[0], x);
    EXPECT_EQ(both[1], 0.0f);
  }
  EXPECT_TRUE(std::isnan(act(NAN)));
}

TEST(ActivationFast, OthersAreAbsent) {
  EXPECT_FALSE(is_fast_activation(Unary::tanh));
  EXPECT_FALSE(smooth_activation(Unary::identity).present);
}

}  // namespace
}  // namespace tessera
