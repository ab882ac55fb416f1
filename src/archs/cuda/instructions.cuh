// SPDX-License-Identifier: Apache-2.0
// Instructions of every NVIDIA GPU from sm_80 on that C++ has no name for, one function each.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace tessera::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// 16 bytes from global to shared memory, asynchronously; only the first `bytes` (0 or 16) are read, the rest becomes
// zeros.
__device__ __forceinline__ void copy_async_16(uint32_t to_shared, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to_shared), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `kPending` of this thread's committed groups are still under way.
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// For code that has no registers to spare. From here on the compiler does not know what x is: what follows from it is
// made anew, not kept from before.
__device__ __forceinline__ void forget(uint32_t& x) { asm volatile("" : "+r"(x)); }
// threadIdx.x % 32 of a row of threads, in the same way.
__device__ __forceinline__ uint32_t lane_here() {
  uint32_t lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

// Shared memory by its 32-bit address.
__device__ __forceinline__ void store_shared(uint32_t to, uint16_t a) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(to), "h"(a) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t to, float a) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(a) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t to, uint2 a) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(a.x), "r"(a.y) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t to, const uint4& a) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t to, const float2& a) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(a.x), "f"(a.y) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t to, const float4& a) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(a.x), "f"(a.y), "f"(a.z), "f"(a.w) : "memory");
}
__device__ __forceinline__ float4 load_shared_floats(uint32_t from) {
  float4 a;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(a.x), "=f"(a.y), "=f"(a.z), "=f"(a.w)
               : "r"(from)
               : "memory");
  return a;
}
__device__ __forceinline__ float load_shared_float(uint32_t from) {
  float a;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(a) : "r"(from) : "memory");
  return a;
}
__device__ __forceinline__ uint2 load_shared_pair(uint32_t from) {
  uint2 a;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(a.x), "=r"(a.y) : "r"(from) : "memory");
  return a;
}
// Two words, in this order with other such loads and not joined with them into wider ones: for code that has no
// registers to spare.
__device__ __forceinline__ uint2 load_shared_pair_here(uint32_t from) {
  uint2 a;
  asm volatile("ld.volatile.shared.v2.b32 {%0, %1}, [%2];" : "=r"(a.x), "=r"(a.y) : "r"(from) : "memory");
  return a;
}

// Four words.
__device__ __forceinline__ uint4 load_shared_four(uint32_t from) {
  uint4 a;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(a.x), "=r"(a.y), "=r"(a.z), "=r"(a.w) : "r"(from));
  return a;
}

__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t from_shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from_shared)
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&r)[4], uint32_t from_shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from_shared)
               : "memory");
}

// d += a * b; see fragments.h for who holds what.
template <class Half>
__device__ __forceinline__ void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ __forceinline__ void multiply_add<__half>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void multiply_add<__nv_bfloat16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                                            uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 2^x within 2 ulp; subnormal results become 0.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// 1/x within 1 ulp for normal x and 1/x.
__device__ __forceinline__ float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Two numbers as two 16-bit codes, the first in the low half; rounds to nearest even, too large ones become the
// largest.
template <class Half>
__device__ __forceinline__ uint32_t pack_pair(float low, float high);
template <>
__device__ __forceinline__ uint32_t pack_pair<__half>(float low, float high) {
  uint32_t r;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
template <>
__device__ __forceinline__ uint32_t pack_pair<__nv_bfloat16>(float low, float high) {
  uint32_t r;
  asm("cvt.rn.satfinite.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// ---- overlapping with the kernels before and after (programmatic dependent launch, from sm_90 on; elsewhere the
// launch itself orders)

// Waits until every earlier kernel of the stream has ended and its results can be read. A kernel started by
// launch_overlapping calls it in every thread that reads or writes device memory, before it does so; constants
// (weights, scales, tensor maps) may be read before.
__device__ __forceinline__ void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next kernel may start once all blocks have said so or ended: its start-up then overlaps with the rest of this
// one.
__device__ __forceinline__ void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace tessera::cuda
