// SPDX-License-Identifier: Apache-2.0
// What Hopper's FP8 tensor cores compute. wgmma e4m3 (SASS: QGMMA) multiplies exactly; its running sum keeps about 13
// significand bits and truncates the rest, unless a kernel moves the sum into f32 registers every few steps
// ("promotion"). mma.sync on e4m3 compiles too but becomes HMMA, which is FP16 arithmetic: it does not count as FP8.
#pragma once

#include <cstdint>

namespace tessera::sm90 {

constexpr int kFp8AccumulatorBits = 13;
// Operand rows are read in units of 16 bytes: K, N and the strides of rows must be multiples of 16.
constexpr int64_t kFp8Alignment = 16;

}  // namespace tessera::sm90
