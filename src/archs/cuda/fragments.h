// SPDX-License-Identifier: Apache-2.0
// Where the numbers of the tensor-core instruction mma.m16n8k16 (16-bit operands, f32 accumulators) and of ldmatrix lie
// among a warp's 32 lanes.
//   D[16,8] += A[16,16] * B[16,8]    A: 4 registers, B: 2, D: 4 floats. A register holds two adjacent numbers, the
//                                    lower column (A, D) or row (B) in its low half.
//   ldmatrix                         moves 8x8 tiles. Lane t gives the address of row t%8 of tile t/8 and receives,
//                                    from every tile, row t/4, columns 2*(t%4) and +1 (.trans: of the transposed tile).
// Pure functions, tested on the host: a kernel that only uses these for its addresses needs no GPU to be checked.
#pragma once

#include "types/small_float.h"

namespace tessera::cuda {

struct Cell {
  int row, col;
};

// Number `i` (0..3) of lane `lane` in D.
TS_HOST_DEVICE constexpr Cell accumulator_cell(int lane, int i) {
  return {lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2};
}
// First number of register `r` (0..3) of A; the second is one column on.
TS_HOST_DEVICE constexpr Cell a_cell(int lane, int r) { return {lane / 4 + 8 * (r % 2), 2 * (lane % 4) + 8 * (r / 2)}; }
// First number of register `r` (0..1) of B; the second is one row on.
TS_HOST_DEVICE constexpr Cell b_cell(int lane, int r) { return {2 * (lane % 4) + 8 * r, lane / 4}; }

// ldmatrix.x4 of a 16x16 block, by the lane's share of the address: which row and which chunk of 8 columns it points
// at. A from rows of A (Q: row = query, columns = head): registers 0..3 become a_cell's.
TS_HOST_DEVICE constexpr Cell a_source(int lane) { return {lane % 16, lane / 16}; }
// Two B operands from rows that hold a column of B each (K: row = key, columns = head): registers 0,1 are B for keys
// 0..7, registers 2,3 for keys 8..15.
TS_HOST_DEVICE constexpr Cell b_source_by_column(int lane) { return {lane % 8 + 8 * (lane / 16), lane / 8 % 2}; }
// Two B operands from rows of B, with .trans (V: row = key, columns = head): registers 0,1 are B for columns 0..7,
// registers 2,3 for columns 8..15.
TS_HOST_DEVICE constexpr Cell b_source_by_row(int lane) { return {lane % 16, lane / 16}; }

// A tile of rows of kCols 16-bit numbers in shared memory. Each row is 16 bytes longer than its numbers: an odd count
// of 16-byte units for any kCols that is a multiple of 16, so the 8 rows of one ldmatrix tile start in 8 different
// groups of 4 banks and are read without conflicts.
template <int kCols>
struct PaddedTile {
  static constexpr int kRowBytes = 2 * kCols + 16;
  static_assert(kCols % 16 == 0);
  TS_HOST_DEVICE static constexpr int offset_bytes(int row, int chunk) { return row * kRowBytes + chunk * 16; }
  TS_HOST_DEVICE static constexpr int bytes(int rows) { return rows * kRowBytes; }
};

}  // namespace tessera::cuda
