// SPDX-License-Identifier: Apache-2.0
// 2:4 sparsity along the last axis: of each four numbers at most two are not zero, and two are stored, in order.
//   metadata   4 bits per group: the place of the first kept number | the place of the second << 2, first < second
//   kept       codes [rows, 2 * groups], packed densely; groups = ceil(cols / 4), a short last group ends in zeros
//   bytes      [rows, ceil(groups / 2)]: group g of a row is in byte g / 2, at bit 0 (g even) or 4 (g odd)
// A group with fewer than two numbers is filled with its lowest free places, so that metadata is always in order; the
// half byte after an odd number of groups is that of an empty group. -0 is zero; a zero that fills keeps its code.
#pragma once

#include <cstdint>

#include "base/buffer.h"
#include "base/status.h"
#include "types/element.h"
#include "types/small_float.h"

namespace tessera {

TS_HOST_DEVICE constexpr int64_t groups24(int64_t cols) { return (cols + 3) / 4; }
TS_HOST_DEVICE constexpr int64_t kept24_cols(int64_t cols) { return 2 * groups24(cols); }
TS_HOST_DEVICE constexpr int64_t meta24_row_bytes(int64_t cols) { return (groups24(cols) + 1) / 2; }
TS_HOST_DEVICE constexpr int64_t meta24_byte(int64_t row, int64_t group, int64_t cols) {
  return row * meta24_row_bytes(cols) + group / 2;
}
TS_HOST_DEVICE constexpr int meta24_shift(int64_t group) { return static_cast<int>(group % 2) * 4; }

TS_HOST_DEVICE constexpr int first24(uint32_t metadata) { return static_cast<int>(metadata & 3); }
TS_HOST_DEVICE constexpr int second24(uint32_t metadata) { return static_cast<int>(metadata >> 2 & 3); }

// Metadata of a group from the set of its numbers that are not zero (bit i: number i), at most two of them.
TS_HOST_DEVICE constexpr uint32_t metadata24(uint32_t nonzero) {
  for (uint32_t i = 0; i < 4 && (nonzero & (nonzero - 1)) == 0; ++i) nonzero |= 1u << i;  // fill up to two
  uint32_t first = 0, second = 3;
  while ((nonzero >> first & 1) == 0) ++first;
  while ((nonzero >> second & 1) == 0) --second;
  return first | second << 2;
}

struct Sparse24 {
  Buffer kept, metadata;
};

// Of codes [rows, cols] of any element that has a zero. An error names the first group with more than two numbers.
Result<Sparse24> compress24(Element element, const void* codes, int64_t rows, int64_t cols);
// Back; what was not kept is zero. Contract: metadata as above, each pair in order.
void expand24(Element element, const void* kept, const void* metadata, int64_t rows, int64_t cols, void* codes);

// Layout::kSparse24 stores the kept codes, then the metadata, as one array.
inline const void* metadata24_of(const void* stored, Element element, int64_t rows, int64_t cols) {
  return static_cast<const uint8_t*>(stored) + packed_bytes(element, rows * kept24_cols(cols));
}

// Keeps the two largest magnitudes of each group and makes the others +0; of equal ones the lower place is kept. NaN
// counts as the largest.
void prune24(float* x, int64_t rows, int64_t cols);

}  // namespace tessera
