// SPDX-License-Identifier: Apache-2.0
// How TMA and wgmma lay tiles in shared memory: rows of 128 bytes, the eight
// 16-byte chunks of a row permuted by the row's number modulo 8, so that eight rows of one chunk touch all banks. A
// tile starts at a multiple of 1024 bytes. Host and device, constexpr: tested on the CPU.
#pragma once

#include <cstdint>

#include "types/small_float.h"

namespace tessera::sm90 {

constexpr int kSwizzleRowBytes = 128;
constexpr int kSwizzleAtomBytes = 1024;  // eight rows: the pattern repeats

// Byte offset of (row, byte in row) inside a tile of kRowBytes-byte rows: 128, or 64 and 32, where two and four rows
// share a line of 128 bytes and its pattern.
template <int kRowBytes = kSwizzleRowBytes>
TS_HOST_DEVICE constexpr uint32_t swizzled_offset(uint32_t row, uint32_t byte) {
  constexpr uint32_t kRowsPerLine = 128 / kRowBytes, kChunks = kRowBytes / 16;
  return row * kRowBytes + (((byte >> 4) ^ (row / kRowsPerLine % kChunks)) << 4) + (byte & 15);
}

// wgmma's description of an operand in shared memory, both operands K-major:
//   bits 0-13    address / 16
//   bits 16-29   leading offset / 16 (unused with a swizzle: 1)
//   bits 32-45   stride between groups of 8 rows / 16
//   bits 62-63   swizzle (1: 128 bytes, 2: 64, 3: 32)
template <int kRowBytes = kSwizzleRowBytes>
TS_HOST_DEVICE constexpr uint64_t operand_descriptor(uint32_t shared_address) {
  constexpr uint64_t kSwizzle = kRowBytes == 128 ? 1 : kRowBytes == 64 ? 2 : 3;
  return static_cast<uint64_t>((shared_address & 0x3ffff) >> 4) | uint64_t{1} << 16 |
         static_cast<uint64_t>(8 * kRowBytes >> 4) << 32 | kSwizzle << 62;
}
// Steps of a descriptor: 32 bytes along K (16 f16 or 32 e4m3 numbers, one wgmma), and 64 rows.
constexpr uint64_t kDescriptorStepK = 32 >> 4;
constexpr uint64_t kDescriptorStep64Rows = 64 * kSwizzleRowBytes >> 4;

// Who holds what of a wgmma result of 64 rows: thread t of a warpgroup holds, for each group j of eight columns, four
// numbers: rows r and r + 8, columns 8 j + c and 8 j + c + 1.
TS_HOST_DEVICE constexpr int result_row(int thread) { return thread / 32 * 16 + thread % 32 / 4; }
TS_HOST_DEVICE constexpr int result_col(int thread) { return thread % 4 * 2; }

}  // namespace tessera::sm90
