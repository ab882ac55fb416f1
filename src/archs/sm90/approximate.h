// SPDX-License-Identifier: Apache-2.0
// Approximate instructions of Hopper, measured on an H200 over every input (docs/design/0020): how far each is from the
// function it is named after, and where it can be, the same number on the host.
//   ex2.approx.ftz.f32    within 2.5 units of the last place; subnormal results become 0
//   rcp.approx.ftz.f32    1.5 units; depends on the significand only
//   rsqrt.approx.f32      2.5 units; depends on the significand and the exponent's parity only
//   tanh.approx.f32       x itself below 2^-8, 1 from 8 on, between them off by 2^-16.4 of the result at most
//   tanh.approx.f16x2     tanh.approx.f32 truncated toward zero to f16
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace tessera::sm90 {

inline constexpr double kExp2Error = 0x1.4p-22, kReciprocalError = 0x1.8p-23, kRsqrtError = 0x1.4p-22;
inline constexpr double kTanhExactBelow = 0x1p-8, kTanhOneFrom = 8, kTanhError = 0x1.9p-17;

// How far tanh.approx.f32 may be from tanh(u).
inline double tanh_error(double u) {
  const double size = std::fabs(u);
  if (size >= kTanhOneFrom) return 1 - std::tanh(size);
  // Below kTanhExactBelow it is u, which tanh(u) is below by u^3 / 3.
  return size < kTanhExactBelow ? size * size * size / 3 + 0x1p-24 * size : kTanhError * std::fabs(std::tanh(u));
}

// A number rounded to f16, to nearest even; overflow becomes infinite.
inline double round_to_half(double x) {
  const double size = std::fabs(x);
  if (!(size < 65520)) return std::isnan(x) ? x : std::copysign(INFINITY, x);
  if (size < 0x1p-14) return (x + 0x1.8p28) - 0x1.8p28;  // subnormals are multiples of 2^-24
  const auto bits = std::bit_cast<uint64_t>(x);
  constexpr int kDropped = 52 - 10;
  const uint64_t half = (uint64_t{1} << (kDropped - 1)) - 1 + (bits >> kDropped & 1);
  return std::bit_cast<double>((bits + half) >> kDropped << kDropped);
}

// tanh.approx.f16x2 of one f16 number.
inline double tanh_half(double x) {
  // Where tanh.approx.f32 lies on the other side of an f16 number than tanh: codes of x, and what truncation gives
  // more.
  struct Other {
    uint16_t code;
    int8_t more;
  };
  static constexpr Other kOthers[] = {{0x29c6, 1}, {0x2c95, 1},  {0x2c96, 1},  {0x2d3f, -1}, {0x2e39, 1}, {0x2e9d, 1},
                                      {0x3064, 1}, {0x323f, 1},  {0x32ff, 1},  {0x355b, 1},  {0x372d, 1}, {0x3824, 1},
                                      {0x399a, 1}, {0x39f8, -1}, {0x3c8e, -1}, {0x3c9d, -1}, {0x3cc9, 1}, {0x3db8, -1},
                                      {0x3de3, 1}, {0x3e23, -1}, {0x3eab, -1}, {0x3ed6, 1},  {0x4080, 1}, {0x4429, -1}};
  const double size = std::fabs(x);
  if (std::isnan(x) || size < 0x1.02p-8) return x;  // f16 numbers up to 2^-8 (1 + 7 / 1024): nothing is truncated
  if (size >= kTanhOneFrom) return std::copysign(1.0, x);
  const double exact = std::tanh(size), unit = std::ldexp(1.0, std::ilogb(exact) - 10);
  double y = std::trunc(exact / unit) * unit;
  const auto bits = std::bit_cast<uint64_t>(size);
  const auto code = static_cast<uint16_t>(((bits >> 52) - 1023 + 15) << 10 | (bits >> 42 & 0x3ff));
  for (const Other& o : kOthers) {
    if (o.code == code) y += o.more * unit;
  }
  return std::copysign(y, x);
}

}  // namespace tessera::sm90
