// SPDX-License-Identifier: Apache-2.0
// Rows of 2:4 sparse codes (types/sparse24.h) back to dense ones, as CPU kernels unpack them: every group's two kept
// codes go to the places that its metadata says, zeros to the others.
#pragma once

#include <cstdint>

namespace tessera {

// Columns [col, col + n) of a row of a matrix of `cols` columns, densely from the beginning of `codes`. Contract: bits
// of a code are 4, 8, 16 or 32; col is a multiple of 8; `codes` has room for round_up(n, 8) codes. Any metadata is read
// without harm.
void expand_sparse_row(int bits, const void* kept, const void* metadata, int64_t row, int64_t col, int64_t n,
                       int64_t cols, void* codes);

}  // namespace tessera
