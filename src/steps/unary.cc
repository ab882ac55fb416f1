// SPDX-License-Identifier: Apache-2.0
#include "steps/unary.h"

#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

constexpr double kUnit = 0x1p-24;  // of fp32

// How far fn may carry an error e of its argument x. Slopes are bounded for the functions that programs name most; the
// steepest are the GELUs and silu.
double carried(Unary fn, double x, double e) {
  switch (fn) {
    case Unary::identity:
    case Unary::neg:
    case Unary::abs:
    case Unary::relu:
    case Unary::tanh:
    case Unary::sin:
    case Unary::cos:
      return e;
    case Unary::sigmoid:
      return 0.25 * e;
    case Unary::erf:
    case Unary::silu:
    case Unary::gelu_erf:
    case Unary::gelu_tanh:
    case Unary::gelu_quick:
      return 1.13 * e;
    default: {  // monotone where they are defined: the ends of the interval are the farthest
      const double y = apply(fn, x);
      const double far = std::max(std::fabs(apply(fn, x + e) - y), std::fabs(apply(fn, x - e) - y));
      return std::isnan(far) ? INFINITY : far;
    }
  }
}

}  // namespace

double apply(Unary fn, double x) {
  switch (fn) {
    case Unary::identity:
      return x;
    case Unary::neg:
      return -x;
    case Unary::abs:
      return std::fabs(x);
    case Unary::exp:
      return std::exp(x);
    case Unary::log:
      return std::log(x);
    case Unary::sqrt:
      return std::sqrt(x);
    case Unary::rsqrt:
      return 1 / std::sqrt(x);
    case Unary::reciprocal:
      return 1 / x;
    case Unary::erf:
      return std::erf(x);
    case Unary::tanh:
      return std::tanh(x);
    case Unary::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Unary::relu:
      return x < 0 ? 0 : x;
    case Unary::silu:
      return x / (1 + std::exp(-x));
    case Unary::gelu_erf:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Unary::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Unary::gelu_quick:
      return x / (1 + std::exp(-1.702 * x));
    case Unary::floor:
      return std::floor(x);
    case Unary::ceil:
      return std::ceil(x);
    case Unary::round:
      return std::nearbyint(x);
    case Unary::sin:
      return std::sin(x);
    case Unary::cos:
      return std::cos(x);
    case Unary::logical_not:
      return x == 0 ? 1 : 0;
  }
  return x;
}

double unary_error(Unary fn, double x, double y, double e, double activation_error) {
  return carried(fn, x, e) + kUnit * (8 * std::fabs(y) + 4 * std::fabs(x)) + activation_error * std::fabs(x);
}

}  // namespace tessera
