// SPDX-License-Identifier: Apache-2.0
// Products with a 2:4 sparse operand: d[64, 128] (+)= a[64, k] * b[128, k], k 64 bytes long, of which a has 32, kept
// numbers in registers beside their metadata (types/sparse24_tiles.h). b as in products.cuh.
#pragma once

#include "archs/sm90/products.cuh"

namespace tessera::sm90 {

template <class Operand>
struct SparseProducts;

#define TS_SPARSE_PRODUCTS_(Operand, types, c, flags)                                                            \
  template <>                                                                                                    \
  struct SparseProducts<Operand> {                                                                               \
    static __device__ __forceinline__ void registers(SumOf<Operand> (&d)[64], const uint4& a, uint32_t metadata, \
                                                     uint64_t b, int accumulate) {                               \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %70, 0;\nwgmma.mma_async.sp.sync.aligned.m64n128" types     \
                   " {" TS_NAMES_64 "}, {%64, %65, %66, %67}, %68, %69, 0, p" flags ";\n}"                       \
                   : TS_BINDS_64(c, d)                                                                           \
                   : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b), "r"(metadata), "r"(accumulate));            \
    }                                                                                                            \
  };
TS_SPARSE_PRODUCTS_(__half, "k32.f32.f16.f16", "+f", ", 1, 1, 0")
TS_SPARSE_PRODUCTS_(__nv_bfloat16, "k32.f32.bf16.bf16", "+f", ", 1, 1, 0")
TS_SPARSE_PRODUCTS_(__nv_fp8_e4m3, "k64.f32.e4m3.e4m3", "+f", ", 1, 1")
TS_SPARSE_PRODUCTS_(int8_t, "k64.s32.s8.s8", "+r", "")
#undef TS_SPARSE_PRODUCTS_

}  // namespace tessera::sm90
