// SPDX-License-Identifier: Apache-2.0
// What a kernel computes, number by number, where the order of its operations is known (Variant::emulate). A number
// before its last rounding lies between `low` and `high`: equal where the kernel can give one number only, a few units
// of f32 apart where an instruction is approximate (archs/sm90/approximate.h) or the compiler may join a product and a
// sum. Rounding keeps the order of numbers, so the stored code lies between those of both ends.
// Numbers are in units of the result's element: codes before they are rounded.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "op/problem.h"

namespace tessera {

struct EmulatedResult {
  std::vector<float> low, high;  // in row order
  double middle(size_t i) const { return low[i] + (static_cast<double>(high[i]) - low[i]) / 2; }
};
using Emulation = std::vector<EmulatedResult>;  // per result

// An f32 number of the kernel, known up to `off`; 0: to the last bit.
struct Near {
  float v = 0, off = 0;
  static float unit(float v) { return 0x1p-23f * std::fabs(v) + 0x1p-149f; }

  // One f32 operation with exact operands: exact results stay exact.
  Near fma(float factor, float add) const {
    const float y = std::fmaf(v, factor, add);
    return {y, off == 0 ? 0 : std::fabs(factor) * off + unit(y)};
  }
  Near times(float factor) const { return fma(factor, 0.0f); }
  Near times(const Near& o) const {
    const float y = v * o.v;
    return {y, off == 0 && o.off == 0 ? 0 : std::fabs(o.v) * off + std::fabs(v) * o.off + off * o.off + unit(y)};
  }
  Near plus(float add) const { return fma(1.0f, add); }
  // What becomes of it where the compiler may keep more digits of it than f32 has.
  Near joined() const { return {v, off + unit(v)}; }
  float low() const { return std::isinf(v) ? v : v - off; }
  float high() const { return std::isinf(v) ? v : v + off; }
};

}  // namespace tessera
