// SPDX-License-Identifier: Apache-2.0
// Left operands of wgmma made of 4-bit codes (types/nibble_tiles.h) in registers, e2m1 times the e4m3 scale of its
// block. A thread has two rows, `lower` and `upper`, and of a stage of 128 numbers eight words, one per block of 16.
//   f16   e2m1's three bits are the lowest two of f16's exponent and the highest of its fraction: 2^-14 of the number,
//         subnormal ones included. One product with 2^7 times the scale gives 2^-kShift of the weight, exactly: e2m1
//         times e4m3 has six digits, and its unit, 2^-10, is far above f16's smallest
//   e4m3  what a scale makes of e2m1's eight magnitudes, rounded to nearest even and saturated, is looked up in a table
//         in shared memory, eight bytes for each of 256 scales, and a byte permutation picks four of them
// Counted per word of eight codes: f16 10 integer operations, 4 products, 1 conversion and 1 product per two scales;
// e4m3 7 integer operations, 2 loads of 8 bytes and 4 operations for their addresses.
#pragma once

#include <cuda_fp16.h>

#include "archs/planted_fault.h"
#include "archs/sm90/instructions.cuh"
#include "archs/sm90/products.cuh"
#include "tiles/cuda/elements.cuh"
#include "tiles/sm90/nibbles_shape.h"

namespace tessera::sm90 {

__device__ __forceinline__ uint4 load_shared16(uint32_t at) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
  return v;
}
__device__ __forceinline__ uint2 load_shared8(uint32_t at) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at));
  return v;
}

// Where the bytes are constant from the first product on.
__device__ __forceinline__ uint2 look_up(uint32_t at) {
  uint2 v;
  asm("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at));
  return v;
}
// Four bytes of eight, by four selectors of three bits, each in its nibble.
__device__ __forceinline__ uint32_t pick_bytes(const uint2& eight, uint32_t selectors) {
  uint32_t v;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(v) : "r"(eight.x), "r"(eight.y), "r"(selectors));
  return v;
}

// The scales of a thread's two rows, a byte per block of a stage.
struct NibbleScales {
  uint2 lower, upper;
};

// Operands of four instructions.
using NibbleOperands = uint32_t[4][4];

template <class In>
struct NibbleExpander;

template <>
struct NibbleExpander<__half> {
  static constexpr int kShift = 7;   // products are 2^-kShift of what they stand for
  static constexpr int kGroups = 2;  // of four instructions in a stage
  static constexpr int kWords = 4;   // of codes in a group
  static constexpr bool kTable = false;

  __device__ explicit NibbleExpander(uint32_t) {}
  static __device__ __forceinline__ void fill_table(uint8_t*, int, int) {}

  // Two neighbouring blocks' scales times 2^7.
  static __device__ __forceinline__ __half2 scale_pair(uint32_t two) {
    const __half2 v = __half2(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(two), __NV_E4M3));
    return __hmul2(v, __half2half2(__ushort_as_half(0x5800)));
  }
  static __device__ __forceinline__ uint32_t times(uint32_t codes, __half2 scale) {
    const __half2 v = __hmul2(*reinterpret_cast<const __half2*>(&codes), scale);
    return *reinterpret_cast<const uint32_t*>(&v);
  }

  // Words of blocks 4 group ... 4 group + 3.
  __device__ __forceinline__ void expand(NibbleOperands& a, const uint4& words, const NibbleScales& scales,
                                         int group) const {
    const uint32_t q[4] = {words.x, words.y, words.z, words.w};
    const uint32_t four_lower = group == 0 ? scales.lower.x : scales.lower.y,
                   four_upper = group == 0 ? scales.upper.x : scales.upper.y;
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const int from = planted(Fault::kMetadataOfNeighbour) ? 0 : pair * 16;
      const __half2 lower = scale_pair(four_lower >> from & 0xffff), upper = scale_pair(four_upper >> from & 0xffff);
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const uint32_t w = q[pair * 2 + b];
        const __half2 s = b == 0 ? __low2half2(lower) : __high2half2(lower),
                      t = b == 0 ? __low2half2(upper) : __high2half2(upper);
        uint32_t(&to)[4] = a[pair * 2 + b];
        to[0] = times(NibbleTiles::halves(w, 0), s);
        to[1] = times(NibbleTiles::halves(w, 1), t);
        to[2] = times(NibbleTiles::halves(w, 2), s);
        to[3] = times(NibbleTiles::halves(w, 3), t);
      }
    }
  }
};

template <>
struct NibbleExpander<__nv_fp8_e4m3> {
  static constexpr int kShift = 0, kGroups = 1, kWords = 8;
  static constexpr bool kTable = true;
  const uint32_t table;

  __device__ explicit NibbleExpander(uint32_t at) : table(at) {}

  // By `threads` threads together, each its part.
  static __device__ __forceinline__ void fill_table(uint8_t* at, int thread, int threads) {
    for (int code = thread; code < 256; code += threads) {
      const float s = cuda::decode_e4m3_pair(static_cast<uint32_t>(code)).x;
      reinterpret_cast<uint2*>(at)[code] = {pack_e4m3(0.0f * s, 0.5f * s, s, 1.5f * s),
                                            pack_e4m3(2.0f * s, 3.0f * s, 4.0f * s, 6.0f * s)};
    }
  }

  __device__ __forceinline__ uint2 products_of(const uint2& eight, int block) const {
    const int own = planted(Fault::kMetadataOfNeighbour) ? 0 : block;
    return look_up(table + 8 * __byte_perm(own < 4 ? eight.x : eight.y, 0, 0x4440 + own % 4));
  }

  __device__ __forceinline__ void expand(NibbleOperands& a, const uint4 (&words)[2], const NibbleScales& scales) const {
    const uint32_t q[8] = {words[0].x, words[0].y, words[0].z, words[0].w,
                           words[1].x, words[1].y, words[1].z, words[1].w};
#pragma unroll
    for (int b = 0; b < 8; ++b) {
      const uint2 lower = products_of(scales.lower, b), upper = products_of(scales.upper, b);
      a[b / 2][b % 2 * 2] = pick_bytes(lower, NibbleTiles::selectors(q[b], 0)) ^ NibbleTiles::signs(q[b], 0);
      a[b / 2][b % 2 * 2 + 1] = pick_bytes(upper, NibbleTiles::selectors(q[b], 1)) ^ NibbleTiles::signs(q[b], 1);
    }
  }
};

}  // namespace tessera::sm90
