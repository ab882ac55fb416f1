// SPDX-License-Identifier: Apache-2.0
// Hopper's own instructions, one function each: barriers in shared memory that count arrivals and bytes, the copy
// engine (TMA), asynchronous matrix products of a warpgroup (wgmma), registers moved between warpgroups.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

namespace tessera::sm90 {

// ---- barriers in shared memory (addresses are 32-bit shared addresses)

__device__ __forceinline__ void init_barrier(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes fresh barriers visible to TMA.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// One arrival, and `bytes` more to come from TMA.
__device__ __forceinline__ void arrive_expecting(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Waits until the phase with this parity is over.
__device__ __forceinline__ void wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\nbra "
      "AGAIN;\nDONE:\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// ---- named barriers between warps of a block

__device__ __forceinline__ void sync_threads(int id, int count) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(count) : "memory");
}
__device__ __forceinline__ void signal_threads(int id, int count) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(count) : "memory");
}

// ---- TMA: boxes of a tensor of 2 to 5 axes, x the contiguous one

__device__ __forceinline__ void prefetch(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ __forceinline__ void load_box(uint32_t to_shared, const CUtensorMap* map, int x, int y, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          to_shared),
      "l"(map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void load_box(uint32_t to_shared, const CUtensorMap* map, int x, int y, int z,
                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
          "r"(to_shared),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void load_box(uint32_t to_shared, const CUtensorMap* map, int x, int y, int z, int w,
                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(to_shared),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void load_box(uint32_t to_shared, const CUtensorMap* map, int x, int y, int z, int w, int u,
                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5, %6}], "
      "[%7];" ::"r"(to_shared),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(u), "r"(barrier)
      : "memory");
}
// Channels from c on of as many windows as the map says, the first one with its corner at pixel (w, h) of an image,
// each at the tap (dx, dy) pixels from its corner (cuda::make_windows_map).
__device__ __forceinline__ void load_windows_box(uint32_t to_shared, const CUtensorMap* map, int c, int w, int h,
                                                 int image, int dx, int dy, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, "
      "%5}], "
      "[%6], {%7, %8};" ::"r"(to_shared),
      "l"(map), "r"(c), "r"(w), "r"(h), "r"(image), "r"(barrier), "h"(static_cast<uint16_t>(dx)),
      "h"(static_cast<uint16_t>(dy))
      : "memory");
}
__device__ __forceinline__ void store_box(const CUtensorMap* map, int x, int y, int z, int w, uint32_t from_shared) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(map), "r"(x),
               "r"(y), "r"(z), "r"(w), "r"(from_shared)
               : "memory");
}
__device__ __forceinline__ void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until all but kPending of this thread's groups of stores have read their shared memory.
template <int kPending = 0>
__device__ __forceinline__ void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
// Orders this thread's ordinary writes to shared memory before later reads by TMA.
__device__ __forceinline__ void fence_for_tma() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Brings the line that holds an address of global memory into the L2 cache.
__device__ __forceinline__ void prefetch_to_l2(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

// ---- clusters: blocks that can reach each other's shared memory

__device__ __forceinline__ uint32_t rank_in_cluster() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The two halves of a barrier that orders no memory accesses (sync_cluster orders all, which takes hundreds of cycles).
__device__ __forceinline__ void arrive_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void wait_cluster() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// The address that `shared` has in the block of this rank.
__device__ __forceinline__ uint32_t address_in(uint32_t shared, uint32_t rank) {
  uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
  return address;
}
// Four numbers of a block's shared memory, which a sync_cluster has made visible.
__device__ __forceinline__ float4 load_in_cluster(uint32_t cluster_address) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(cluster_address)
               : "memory");
  return v;
}
// Four numbers into a block's shared memory; the next sync_cluster of both makes them visible there.
__device__ __forceinline__ void store_in_cluster(uint32_t cluster_address, const float4& v) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(cluster_address), "f"(v.x), "f"(v.y), "f"(v.z),
               "f"(v.w)
               : "memory");
}
// Copies bytes (a multiple of 16, like the addresses) to another block's shared memory; its barrier hears of them. This
// block must not end before they are there.
__device__ __forceinline__ void send_to_block(uint32_t to_cluster_address, uint32_t from_shared, uint32_t bytes,
                                              uint32_t barrier_cluster_address) {
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   to_cluster_address),
               "r"(from_shared), "r"(bytes), "r"(barrier_cluster_address)
               : "memory");
}
// Says that products have read a stage; orders no ordinary memory accesses of other blocks (.release.cluster would, and
// takes hundreds of cycles).
__device__ __forceinline__ void arrive_remote(uint32_t cluster_address) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(cluster_address) : "memory");
}
// The same after ordinary accesses, and the wait of the block that hears of it.
__device__ __forceinline__ void arrive_after_reads(uint32_t cluster_address) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(cluster_address) : "memory");
}
__device__ __forceinline__ void wait_for_reads(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n@p bra "
      "DONE;\nbra AGAIN;\nDONE:\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// A box that every block of `mask` receives, at the same place, and hears of at the same barrier.
__device__ __forceinline__ void load_box_for(uint16_t mask, uint32_t to_shared, const CUtensorMap* map, int x, int y,
                                             uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, "
      "%3}], [%4], %5;" ::"r"(to_shared),
      "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(mask)
      : "memory");
}

// ---- four 8x8 tiles of 16-bit numbers, or of pairs of bytes: lane t of tile i points at row t % 8 of tile t / 8 and
// gives of every tile row t / 4, columns 2 (t % 4) and + 1

__device__ __forceinline__ void store_matrices(uint32_t to_shared, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to_shared), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// ---- numbers

// Four numbers as e4m3 codes, the first in the lowest byte; rounds to nearest even and saturates.
__device__ __forceinline__ uint32_t pack_e4m3(float a, float b, float c, float d) {
  uint32_t r;
  asm("{\n.reg .b16 low, high;\ncvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\ncvt.rn.satfinite.e4m3x2.f32 high, %4, "
      "%3;\nmov.b32 %0, {low, high};\n}"
      : "=r"(r)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return r;
}

// The same of two pairs of f16.
__device__ __forceinline__ uint32_t pack_e4m3(uint32_t low, uint32_t high) {
  uint32_t r;
  asm("{\n.reg .b16 a, b;\ncvt.rn.satfinite.e4m3x2.f16x2 a, %1;\ncvt.rn.satfinite.e4m3x2.f16x2 b, %2;\nmov.b32 %0, {a, "
      "b};\n}"
      : "=r"(r)
      : "r"(low), "r"(high));
  return r;
}

// ---- registers

template <int kCount>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

// ---- order around matrix products (products.cuh)

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving reads of results, or new contents of an operand, over a wait.
template <int kCount>
__device__ __forceinline__ void pin(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int kCount>
__device__ __forceinline__ void pin(int32_t (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(d[i])::"memory");
}
template <int kCount>
__device__ __forceinline__ void pin(uint32_t (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(d[i])::"memory");
}

}  // namespace tessera::sm90
