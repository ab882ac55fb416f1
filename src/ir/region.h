// SPDX-License-Identifier: Apache-2.0
// Region: which elements of a dense storage a tensor addresses, and in what order. Element (i, j, ...) lies at offset +
// i * strides[0] + j * strides[1] + ... Reshaping, transposing, slicing and repeating a tensor are arithmetic on its
// region; only where no strides can say it, a copy is needed. Contracts: axes and permutations are valid (callers check
// what users gave them); axes of size 1 get the stride of a dense neighbour.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/shape.h"

namespace tessera {

struct Region {
  Shape shape, strides;
  int64_t offset = 0;
  bool operator==(const Region&) const = default;
  // The whole of a dense storage of as many elements, in its order.
  bool whole() const { return offset == 0 && is_dense(shape, strides); }
};

Region dense_region(const Shape& shape);
std::optional<Region> reshaped(const Region& region, const Shape& shape);
Region permuted(const Region& region, const std::vector<int64_t>& perm);
// Elements start, start + step, ... (count of them) of one axis; step may be negative.
Region sliced(const Region& region, size_t axis, int64_t start, int64_t step, int64_t count);
// Aligned at the last axis; axes of size 1, and new ones in front, repeat.
Region expanded(const Region& region, const Shape& shape);

// `outer` addresses a dense tensor of shape inner.shape, whose elements are copies of those that `inner` addresses. The
// same elements straight from inner's storage; nothing where no strides say it.
std::optional<Region> composed(const Region& inner, const Region& outer);

// The same shape, and the same elements of the storage in the same order.
bool same_elements(const Region& a, const Region& b);

// True where every element lies in a storage of `count` elements. Safe for any numbers: nothing overflows.
bool in_range(const Region& region, int64_t count);

// Product of the sizes, or nothing where a size is negative or the product exceeds `limit`.
std::optional<int64_t> checked_elements(const Shape& shape, int64_t limit);
// Largest tensor that a graph may hold, in elements; keeps every index and byte count far from overflow.
constexpr int64_t kMaxElements = int64_t{1} << 40;

}  // namespace tessera
