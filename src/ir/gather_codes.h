// SPDX-License-Identifier: Apache-2.0
// Codes of a dense storage in another order: element i of the result is the i-th that the region addresses, in row
// order. Codes are moved as bits, whatever they mean; 4-bit ones lie two in a byte (types/codes.h).
#pragma once

#include "base/buffer.h"
#include "ir/region.h"

namespace tessera {

// Contract: the region stays inside the storage (in_range); bits: 4, 8, 16, 32 or 64.
Buffer gather_codes(const void* codes, int bits, const Region& region);

// Calls body(index in row order, offset in the storage) for every element that the region addresses.
template <class Body>
void for_each_element(const Region& r, const Body& body) {
  const size_t rank = r.shape.size();
  const int64_t inner = rank == 0 ? 1 : r.shape[rank - 1], step = rank == 0 ? 1 : r.strides[rank - 1];
  const int64_t rows = inner == 0 ? 0 : elements(r.shape) / inner;
  Shape index(rank, 0);
  int64_t at = r.offset;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < inner; ++i) body(row * inner + i, at + i * step);
    for (size_t a = rank < 2 ? 0 : rank - 1; a-- > 0;) {
      at += r.strides[a];
      if (++index[a] < r.shape[a]) break;
      at -= r.strides[a] * r.shape[a];
      index[a] = 0;
    }
  }
}

}  // namespace tessera
