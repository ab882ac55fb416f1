// SPDX-License-Identifier: Apache-2.0
// Results of short attention (short.cuh) go from registers to memory: each warp's 16 rows through shared memory of
// its own, which makes whole sectors of them. (TMA from there took longer: a fence, and its coordinates in
// uniform registers.)
#pragma once

#include "tiles/sm90/short/short_products.cuh"

namespace tessera::sm90 {

// A warp's 16 rows to shared memory, in blocks of 64 channels of 16 bits (rows of 128 bytes) ...
template <class F, class Half>
__device__ __forceinline__ void stage_halves(const ShortSums<F>& sums, const float (&factor)[2], uint32_t to) {
  const uint32_t lane = cuda::lane_here();
  if constexpr (F::kBytes) {  // four neighbouring channels of 16
#pragma unroll
    for (int g = 0; g < F::kHead / 16; ++g) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float *even = &sums.o[0][g * 8 + h * 2], *odd = even + 4;
        cuda::store_shared(to + g / 4 * F::kResultBlock + swizzled_offset(lane / 4 + h * 8, g % 4 * 32 + lane % 4 * 8),
                           uint2{cuda::pack_pair<Half>(even[0] * factor[h], odd[0] * factor[h]),
                                 cuda::pack_pair<Half>(even[1] * factor[h], odd[1] * factor[h])});
      }
    }
  } else {
#pragma unroll
    for (int b = 0; b < F::kBlocks; ++b) {
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        const float* o = &sums.o[b][j * 4];
        const uint32_t r[4] = {cuda::pack_pair<Half>(o[0] * factor[0], o[1] * factor[0]),
                               cuda::pack_pair<Half>(o[2] * factor[1], o[3] * factor[1]),
                               cuda::pack_pair<Half>(o[4] * factor[0], o[5] * factor[0]),
                               cuda::pack_pair<Half>(o[6] * factor[1], o[7] * factor[1])};
        store_matrices(to + b * F::kResultBlock + swizzled_offset(lane % 16, (j + lane / 16) * 16), r);
      }
    }
  }
}

// ... or as e4m3 or int8 in rows of 64 or 128 bytes.
template <class F>
constexpr int kResultRow = F::kHead == 64 ? 64 : 128;
template <class F, bool kInt8>
__device__ __forceinline__ void stage_codes(const ShortSums<F>& sums, const float (&factor)[2], uint32_t to) {
  constexpr int kRow = kResultRow<F>;
  const uint32_t lane = cuda::lane_here();
  if constexpr (F::kBytes) {
#pragma unroll
    for (int g = 0; g < F::kHead / 16; g += 2) {
      uint32_t r[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float *even = &sums.o[0][(g + i / 2) * 8 + i % 2 * 2], *odd = even + 4, f = factor[i % 2];
        r[i] = pack_e4m3(even[0] * f, odd[0] * f, even[1] * f, odd[1] * f);
      }
      store_matrices(to + swizzled_offset<kRow>(lane % 16, (g + lane / 16) * 16), r);
    }
  } else {
#pragma unroll
    for (int j = 0; j < F::kHead / 8; ++j) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float* o = &sums.o[j / 8][j % 8 * 4 + h * 2];
        const float a = o[0] * factor[h], b = o[1] * factor[h];
        cuda::store_shared(to + swizzled_offset<kRow>(lane / 4 + h * 8, j * 8 + lane % 4 * 2),
                           kInt8 ? cuda::encode_i8_pair(a, b) : static_cast<uint16_t>(cuda::encode_e4m3_pair(a, b)));
      }
    }
  }
}

// A warp's rows of kRow bytes from shared memory to y, a Piece a lane and step. to: where the first of them belongs.
// first_byte: which byte of a head's row they begin with.
template <int kRow, class Piece>
__device__ __forceinline__ void copy_rows(const ShortParams& p, uint32_t from, uint8_t* to, int first_byte, int rows) {
  constexpr int kAcross = kRow / sizeof(Piece), kDown = 32 / kAcross, kPieces = kWarpRows / kDown;
  const uint32_t lane = cuda::lane_here();
  const int row = lane / kAcross, byte = lane % kAcross * sizeof(Piece);
  Piece pieces[kPieces];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const uint32_t at = from + swizzled_offset<kRow>(row + i * kDown, byte);
    if constexpr (sizeof(Piece) == 16) {
      pieces[i] = cuda::load_shared_four(at);
    } else {
      pieces[i] = cuda::load_shared_pair(at);
    }
  }
  to += row * p.row_bytes + first_byte + byte;
#pragma unroll
  for (int i = 0; i < kPieces; ++i, to += kDown * p.row_bytes) {
    if (row + i * kDown < rows && first_byte + byte < p.value_bytes) *reinterpret_cast<Piece*>(to) = pieces[i];
  }
}

// A warp's 16 rows of y: of tile t of the block's count-th visit.
template <class F>
__device__ __forceinline__ void write_rows(const ShortParams& p, const ShortSums<F>& sums, const float (&factor)[2],
                                           uint32_t staging, int t, uint32_t count) {
  const ShortVisit at(p, visit_of(count));
  const int first_query = at.first_query(p, t, count) + static_cast<int>(threadIdx.x % kWarpgroup / 32) * kWarpRows,
            rows = p.queries - first_query;
  uint8_t* y = p.y + (int64_t{at.batch} * p.queries + first_query) * p.row_bytes + at.head * p.value_bytes;
  __syncwarp();  // those of the last tile have been read
  if (p.result == ShortResult::kF16 || p.result == ShortResult::kBf16) {
    if constexpr (F::kBytes) {
      p.result == ShortResult::kF16 ? stage_halves<F, __half>(sums, factor, staging)
                                    : stage_halves<F, __nv_bfloat16>(sums, factor, staging);
    } else {
      stage_halves<F, typename F::Operand>(sums, factor, staging);
    }
    __syncwarp();
#pragma unroll
    for (int b = 0; b < (F::kHead + 63) / 64; ++b)
      copy_rows<128, uint4>(p, staging + b * F::kResultBlock, y, b * 128, rows);
    return;
  }
  if (F::kBytes || p.result == ShortResult::kE4m3) {
    stage_codes<F, false>(sums, factor, staging);
  } else {
    stage_codes<F, true>(sums, factor, staging);
  }
  __syncwarp();
  p.whole_pieces ? copy_rows<kResultRow<F>, uint4>(p, staging, y, 0, rows)
                 : copy_rows<kResultRow<F>, uint2>(p, staging, y, 0, rows);
}

}  // namespace tessera::sm90
