// SPDX-License-Identifier: Apache-2.0
// Elements that the machine itself has: f32, f64 and the integers that ids, masks and shapes are made of.
// Integers round to nearest even and saturate, asked or not; NaN becomes 0.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace tessera {

template <class T>
T saturate_to_integer(double x) {
  if (!(x == x)) return 0;
  const double r = std::nearbyint(x);
  // max() of a 64-bit integer rounds up as a double, so compare with >= there.
  if (r >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  if (r <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  return static_cast<T>(r);
}

struct F32 {
  using Storage = float;
  static constexpr int kBits = 32, kMantissaBits = 23, kMinExponent = -126;
  static constexpr double kMax = std::numeric_limits<float>::max();
  static Storage encode(double x, bool = true) { return static_cast<float>(x); }
  static double decode(Storage code) { return code; }
};

struct F64 {
  using Storage = double;
  static constexpr int kBits = 64, kMantissaBits = 52, kMinExponent = -1022;
  static constexpr double kMax = std::numeric_limits<double>::max();
  static Storage encode(double x, bool = true) { return x; }
  static double decode(Storage code) { return code; }
};

template <class T>
struct PlainInteger {
  using Storage = T;
  static constexpr int kBits = 8 * sizeof(T), kMantissaBits = 0, kMinExponent = 0;
  static constexpr bool kInteger = true;
  static constexpr double kMax = static_cast<double>(std::numeric_limits<T>::max());
  static Storage encode(double x, bool = true) { return saturate_to_integer<T>(x); }
  static double decode(Storage code) { return static_cast<double>(code); }
};
using I64 = PlainInteger<int64_t>;
using I32 = PlainInteger<int32_t>;
using U8 = PlainInteger<uint8_t>;

}  // namespace tessera
