// SPDX-License-Identifier: Apache-2.0
#include "tiles/activation_fast.h"

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
template <Unary kAct>
void check() {
  ASSERT_TRUE(is_fast_activation(kAct));
  const double allowed = kActivationError - 0x1p-12;
  const auto at = [&](float x) {
    const double got = activate_half_argument<kAct>(0.5f * x), want = exact(kAct, static_cast<double>(x));
    EXPECT_LE(std::fabs(got - want), allowed * std::fabs(static_cast<double>(x))) << name_of(kAct) << " of " << x;
  };
  for (int i = -40000; i <= 40000; ++i) at(static_cast<float>(i) * 0x1p-11f);  // -19.5 to 19.5
  for (float x = 1e-30f; x < 1e5f; x *= 1.37f) at(x), at(-x);
}

TEST(ActivationFast, ErrsByNoMoreThanItsArgumentsShare) {
  check<Unary::gelu_erf>();
  check<Unary::gelu_tanh>();
  check<Unary::gelu_quick>();
  check<Unary::silu>();
}

TEST(ActivationFast, TheOthersAreOfTheArgumentItself) {
  EXPECT_EQ(activate_half_argument<Unary::relu>(-3.0f), 0.0f);
  EXPECT_EQ(activate_half_argument<Unary::relu>(3.0f), 3.0f);
  EXPECT_EQ(activate_half_argument<Unary::identity>(-3.0f), -3.0f);
  EXPECT_FALSE(is_fast_activation(Unary::relu));
}

}  // namespace
}  // namespace tessera
