// SPDX-License-Identifier: Apache-2.0
// Asynchronous matrix products of a warpgroup: d[64, kN] (+)= a[64, k] * b[kN, k], k 32 bytes long (16 numbers of 16
// bits, 32 of 8). b lies in shared memory, K-major (swizzle.h); a too (`shared`), or in registers (`registers`: the
// thread's part of a is laid out as two results of eight columns, packed in pairs, are). Sums are f32 (e4m3: about 13
// bits of them, fp8.h), of int8 int32. 16-bit operands may have b with its rows along k (`registers_by_rows`):
// attention's v.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

#include "archs/sm90/register_lists.cuh"

namespace tessera::sm90 {

template <class Operand>
using SumOf = std::conditional_t<std::is_same_v<Operand, int8_t>, int32_t, float>;

// kN: a multiple of 16 up to 256.
template <class Operand, int kN>
struct Products;

// types: of the instruction; flags: what follows the predicate, for b along k and for b along rows; next ...: numbers
// of the operands after the results.
#define TS_PRODUCTS(Operand, k, types, c, flags, n, regs, r0, r1, r2, r3, r4, r5)                                   \
  static __device__ __forceinline__ void shared(SumOf<Operand>(&d)[regs], uint64_t a, uint64_t b, int accumulate) { \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #r2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n k types      \
                 " {" TS_NAMES_##regs "}, %" #r0 ", %" #r1 ", p" flags ";\n}"                                       \
                 : TS_BINDS_##regs(c, d)                                                                            \
                 : "l"(a), "l"(b), "r"(accumulate));                                                                \
  }
#define TS_PRODUCTS_REGISTERS(name, Operand, k, types, c, flags, n, regs, r0, r1, r2, r3, r4, r5)              \
  static __device__ __forceinline__ void name(SumOf<Operand>(&d)[regs], const uint32_t(&a)[4], uint64_t b,     \
                                              int accumulate) {                                                \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #r5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n k types \
                 " {" TS_NAMES_##regs "}, {%" #r0 ", %" #r1 ", %" #r2 ", %" #r3 "}, %" #r4 ", p" flags ";\n}"  \
                 : TS_BINDS_##regs(c, d)                                                                       \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));                       \
  }
#define TS_PRODUCTS_HALF(Operand, types, ...)                                                        \
  template <>                                                                                        \
  struct Products<Operand, TS_FIRST(__VA_ARGS__)> {                                                  \
    TS_PRODUCTS_(Operand, "k16", types, "+f", ", 1, 1, 0, 0", __VA_ARGS__)                           \
    TS_PRODUCTS_REGISTERS_(registers, Operand, "k16", types, "+f", ", 1, 1, 0", __VA_ARGS__)         \
    TS_PRODUCTS_REGISTERS_(registers_by_rows, Operand, "k16", types, "+f", ", 1, 1, 1", __VA_ARGS__) \
  };
#define TS_PRODUCTS_BYTE(Operand, types, c, flags, ...)                             \
  template <>                                                                       \
  struct Products<Operand, TS_FIRST(__VA_ARGS__)> {                                 \
    TS_PRODUCTS_(Operand, "k32", types, c, flags, __VA_ARGS__)                      \
    TS_PRODUCTS_REGISTERS_(registers, Operand, "k32", types, c, flags, __VA_ARGS__) \
  };
// One more expansion, so that the shape's numbers arrive as arguments of their own.
#define TS_FIRST(n, ...) n
#define TS_PRODUCTS_(...) TS_PRODUCTS(__VA_ARGS__)
#define TS_PRODUCTS_REGISTERS_(...) TS_PRODUCTS_REGISTERS(__VA_ARGS__)

#define TS_PRODUCTS_SHAPE(...)                                                   \
  TS_PRODUCTS_HALF(__half, ".f32.f16.f16", __VA_ARGS__)                          \
  TS_PRODUCTS_HALF(__nv_bfloat16, ".f32.bf16.bf16", __VA_ARGS__)                 \
  TS_PRODUCTS_BYTE(__nv_fp8_e4m3, ".f32.e4m3.e4m3", "+f", ", 1, 1", __VA_ARGS__) \
  TS_PRODUCTS_BYTE(int8_t, ".s32.s8.s8", "+r", "", __VA_ARGS__)
TS_PRODUCTS_SHAPE(16, 8, 8, 9, 10, 11, 12, 13)
TS_PRODUCTS_SHAPE(32, 16, 16, 17, 18, 19, 20, 21)
TS_PRODUCTS_SHAPE(48, 24, 24, 25, 26, 27, 28, 29)
TS_PRODUCTS_SHAPE(64, 32, 32, 33, 34, 35, 36, 37)
TS_PRODUCTS_SHAPE(80, 40, 40, 41, 42, 43, 44, 45)
TS_PRODUCTS_SHAPE(96, 48, 48, 49, 50, 51, 52, 53)
TS_PRODUCTS_SHAPE(112, 56, 56, 57, 58, 59, 60, 61)
TS_PRODUCTS_SHAPE(128, 64, 64, 65, 66, 67, 68, 69)
TS_PRODUCTS_SHAPE(144, 72, 72, 73, 74, 75, 76, 77)
TS_PRODUCTS_SHAPE(160, 80, 80, 81, 82, 83, 84, 85)
TS_PRODUCTS_SHAPE(176, 88, 88, 89, 90, 91, 92, 93)
TS_PRODUCTS_SHAPE(192, 96, 96, 97, 98, 99, 100, 101)
TS_PRODUCTS_SHAPE(208, 104, 104, 105, 106, 107, 108, 109)
TS_PRODUCTS_SHAPE(224, 112, 112, 113, 114, 115, 116, 117)
TS_PRODUCTS_SHAPE(240, 120, 120, 121, 122, 123, 124, 125)
TS_PRODUCTS_SHAPE(256, 128, 128, 129, 130, 131, 132, 133)

#undef TS_PRODUCTS_SHAPE
#undef TS_PRODUCTS_REGISTERS_
#undef TS_PRODUCTS_
#undef TS_FIRST
#undef TS_PRODUCTS_BYTE
#undef TS_PRODUCTS_HALF
#undef TS_PRODUCTS_REGISTERS
#undef TS_PRODUCTS

}  // namespace tessera::sm90
