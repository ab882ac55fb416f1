// SPDX-License-Identifier: Apache-2.0
// wgmma in the two shapes of attention with heads of 64: scores[64, keys] = q[64, 16] * k[keys, 16], both in shared memory; out[64, 64] += p[64, 16] * v[16, 64], p
// in registers (a thread's scores, packed in pairs, are its part of p: swizzle.h, result_row) and v key by key, its last axis contiguous.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "archs/sm90/register_lists.cuh"

namespace tessera::sm90 {

template <class Half, int kKeys>
__device__ __forceinline__ void multiply_scores(float (&d)[kKeys / 2], uint64_t q, uint64_t k, int accumulate);
template <class Half>
__device__ __forceinline__ void multiply_values(float (&d)[32], const uint32_t (&p)[4], uint64_t v, int accumulate);

// registers: kKeys / 2; the descriptors and the predicate's number follow them.
#define TS_SCORES(Half, type, kKeys, registers, q_at, k_at, accumulate_at)                                                              \
  template <>                                                                                                                         \
  __device__ __forceinline__ void multiply_scores<Half, kKeys>(float (&d)[registers], uint64_t q, uint64_t k, int accumulate) {        \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #accumulate_at ", 0;\nwgmma.mma_async.sync.aligned.m64n" #kKeys "k16.f32." type \
                 "." type " {" TS_REGISTERS_##registers "}, %" #q_at ", %" #k_at ", p, 1, 1, 0, 0;\n}"                                  \
                 : TS_RESULTS_##registers(d)                                                                                          \
                 : "l"(q), "l"(k), "r"(accumulate));                                                                                  \
  }
#define TS_ATTENTION_PRODUCTS(Half, type)                                                                                             \
  TS_SCORES(Half, type, 128, 64, 64, 65, 66)                                                                                          \
  TS_SCORES(Half, type, 208, 104, 104, 105, 106)                                                                                      \
  TS_SCORES(Half, type, 256, 128, 128, 129, 130)                                                                                      \
  template <>                                                                                                                         \
  __device__ __forceinline__ void multiply_values<Half>(float (&d)[32], const uint32_t (&p)[4], uint64_t v, int accumulate) {          \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                 \
                 " {" TS_REGISTERS_32 "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}"                                                   \
                 : TS_RESULTS_32(d)                                                                                                   \
                 : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(v), "r"(accumulate));                                              \
  }

TS_ATTENTION_PRODUCTS(__half, "f16")
TS_ATTENTION_PRODUCTS(__nv_bfloat16, "bf16")

#undef TS_ATTENTION_PRODUCTS
#undef TS_SCORES

}  // namespace tessera::sm90
