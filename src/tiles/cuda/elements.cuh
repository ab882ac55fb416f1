// SPDX-License-Identifier: Apache-2.0
// Numbers in device memory, one or eight at a time, their element chosen while running: the branch is the same for a
// whole grid, so it costs an instruction or two per eight numbers, and one kernel serves every type. Eight at a time:
// the address of the first must be a multiple of 16 bytes (e4m3: 8). Rounding is to nearest even and saturates, as
// types/ has it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "archs/cuda/instructions.cuh"
#include "tiles/cuda/device_types.h"

namespace tessera::cuda {

// Eight numbers as they lie in memory: f32 in lo and hi, 16-bit ones in lo, 8-bit ones in lo.x and lo.y. Loading and
// decoding are apart so that a thread can have several loads under way before the first use.
struct Raw8 {
  uint4 lo, hi;
};

__device__ __forceinline__ Raw8 load_raw8(Element e, const void* data, int64_t index) {
  Raw8 r{};
  if (e == Element::f32) {
    const uint4* p = reinterpret_cast<const uint4*>(static_cast<const float*>(data) + index);
    r.lo = p[0];
    r.hi = p[1];
  } else if (e == Element::e4m3) {
    const uint2 codes = *reinterpret_cast<const uint2*>(static_cast<const uint8_t*>(data) + index);
    r.lo.x = codes.x;
    r.lo.y = codes.y;
  } else {
    r.lo = *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(data) + index);
  }
  return r;
}

__device__ __forceinline__ float2 decode_half_pair(uint32_t pair) {
  return __half22float2(*reinterpret_cast<const __half2*>(&pair));
}
__device__ __forceinline__ float2 decode_bf16_pair(uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}
__device__ __forceinline__ float2 decode_e4m3_pair(uint32_t pair) {
  return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair), __NV_E4M3)));
}
__device__ __forceinline__ uint32_t encode_e4m3_pair(float low, float high) {
  return __nv_cvt_float2_to_fp8x2(float2{low, high}, __NV_SATFINITE, __NV_E4M3);
}

// To nearest even, saturating at -127 and 127.
__device__ __forceinline__ uint16_t encode_i8_pair(float low, float high) {
  const int a = max(-127, min(127, __float2int_rn(low))), b = max(-127, min(127, __float2int_rn(high)));
  return static_cast<uint16_t>((a & 0xff) | (b & 0xff) << 8);
}

// Four neighbours at once.
__device__ __forceinline__ uint32_t encode_i8_four(const float* v) {
  return static_cast<uint32_t>(encode_i8_pair(v[0], v[1])) | static_cast<uint32_t>(encode_i8_pair(v[2], v[3])) << 16;
}

__device__ __forceinline__ void decode8(Element e, const Raw8& r, float (&v)[8]) {
  const uint32_t lo[4] = {r.lo.x, r.lo.y, r.lo.z, r.lo.w}, hi[4] = {r.hi.x, r.hi.y, r.hi.z, r.hi.w};
  if (e == Element::f32) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[i] = __uint_as_float(lo[i]);
      v[4 + i] = __uint_as_float(hi[i]);
    }
  } else if (e == Element::e4m3) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 f = decode_e4m3_pair(lo[i / 2] >> (16 * (i % 2)) & 0xffff);
      v[2 * i] = f.x;
      v[2 * i + 1] = f.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 f = e == Element::f16 ? decode_half_pair(lo[i]) : decode_bf16_pair(lo[i]);
      v[2 * i] = f.x;
      v[2 * i + 1] = f.y;
    }
  }
}

__device__ __forceinline__ void load8(Element e, const void* data, int64_t index, float (&v)[8]) {
  decode8(e, load_raw8(e, data, index), v);
}

__device__ __forceinline__ void store8(Element e, void* data, int64_t index, const float (&v)[8]) {
  if (e == Element::f32) {
    float4* p = reinterpret_cast<float4*>(static_cast<float*>(data) + index);
    p[0] = {v[0], v[1], v[2], v[3]};
    p[1] = {v[4], v[5], v[6], v[7]};
  } else if (e == Element::e4m3) {
    *reinterpret_cast<uint2*>(static_cast<uint8_t*>(data) + index) = {
        encode_e4m3_pair(v[0], v[1]) | encode_e4m3_pair(v[2], v[3]) << 16,
        encode_e4m3_pair(v[4], v[5]) | encode_e4m3_pair(v[6], v[7]) << 16};
  } else if (e == Element::f16) {
    *reinterpret_cast<uint4*>(static_cast<uint16_t*>(data) + index) = {
        pack_pair<__half>(v[0], v[1]), pack_pair<__half>(v[2], v[3]), pack_pair<__half>(v[4], v[5]),
        pack_pair<__half>(v[6], v[7])};
  } else {
    *reinterpret_cast<uint4*>(static_cast<uint16_t*>(data) + index) = {
        pack_pair<__nv_bfloat16>(v[0], v[1]), pack_pair<__nv_bfloat16>(v[2], v[3]),
        pack_pair<__nv_bfloat16>(v[4], v[5]), pack_pair<__nv_bfloat16>(v[6], v[7])};
  }
}

// One number of f32, f16, bf16 or e4m3.
__device__ __forceinline__ float load_one(Element e, const void* data, int64_t index) {
  if (e == Element::f32) return static_cast<const float*>(data)[index];
  if (e == Element::e4m3) return decode_e4m3_pair(static_cast<const uint8_t*>(data)[index]).x;
  const uint32_t code = static_cast<const uint16_t*>(data)[index];
  return e == Element::f16 ? decode_half_pair(code).x : decode_bf16_pair(code).x;
}
__device__ __forceinline__ void store_one(Element e, void* data, int64_t index, float v) {
  if (e == Element::f32) {
    static_cast<float*>(data)[index] = v;
  } else if (e == Element::e4m3) {
    static_cast<uint8_t*>(data)[index] = static_cast<uint8_t>(encode_e4m3_pair(v, 0.0f));
  } else {
    static_cast<uint16_t*>(data)[index] =
        static_cast<uint16_t>(e == Element::f16 ? pack_pair<__half>(v, 0.0f) : pack_pair<__nv_bfloat16>(v, 0.0f));
  }
}

// N = 8 or 1 numbers: kernels are written once for both.
template <int N>
__device__ __forceinline__ void load_numbers(Element e, const void* data, int64_t index, float (&v)[N]) {
  if constexpr (N == 8) {
    load8(e, data, index, v);
  } else {
    static_assert(N == 1);
    v[0] = load_one(e, data, index);
  }
}
template <int N>
__device__ __forceinline__ void store_numbers(Element e, void* data, int64_t index, const float (&v)[N]) {
  if constexpr (N == 8) {
    store8(e, data, index, v);
  } else {
    static_assert(N == 1);
    store_one(e, data, index, v[0]);
  }
}

// One number of any type, exact but for integers beyond 2^53. Integers round to nearest even and saturate; NaN becomes
// 0.
__device__ __forceinline__ double load_any(Element e, const void* data, int64_t index) {
  if (e == Element::f64) return static_cast<const double*>(data)[index];
  if (e == Element::i64) return static_cast<double>(static_cast<const int64_t*>(data)[index]);
  if (e == Element::i32) return static_cast<const int32_t*>(data)[index];
  if (e == Element::u8) return static_cast<const uint8_t*>(data)[index];
  return load_one(e, data, index);
}
__device__ __forceinline__ void store_any(Element e, void* data, int64_t index, double v) {
  if (e == Element::f64) {
    static_cast<double*>(data)[index] = v;
  } else if (e == Element::i64) {
    static_cast<int64_t*>(data)[index] = __double2ll_rn(v == v ? v : 0.0);
  } else if (e == Element::i32) {
    static_cast<int32_t*>(data)[index] = __double2int_rn(v == v ? v : 0.0);
  } else if (e == Element::u8) {
    const double clipped = v > 0.0 ? (v < 255.0 ? v : 255.0) : 0.0;  // false for NaN too
    static_cast<uint8_t*>(data)[index] = static_cast<uint8_t>(__double2int_rn(clipped));
  } else {
    store_one(e, data, index, static_cast<float>(v));
  }
}

// What numbers are multiplied by after loading and before storing.
__device__ __forceinline__ float scale_of(const float* scale) { return scale == nullptr ? 1.0f : *scale; }
__device__ __forceinline__ float scale_of(const DeviceTensor& t) { return scale_of(t.scale); }
__device__ __forceinline__ float inverse_scale_of(const DeviceTensor& t) {
  return t.scale == nullptr ? 1.0f : 1.0f / *t.scale;
}

}  // namespace tessera::cuda
