// SPDX-License-Identifier: Apache-2.0
// Which SIMD instruction sets CPU kernels are compiled for; include before any Highway header. While running, the best
// that the processor reports is taken.
//   aarch64: NEON (SVE vectors have no fixed size, and our kernels keep theirs in structs)
//   x86_64:  SSE2 (the baseline), AVX2 with FMA, AVX-512 (Skylake level)
// A further level would compile every kernel once more without changing its fp32 arithmetic.
#pragma once

#if defined(HWY_DISABLED_TARGETS)
#error "archs/cpu/simd.h must come before Highway's headers"
#endif
#if defined(__aarch64__) && !defined(__ARM_FEATURE_AES)
#define HWY_DISABLED_TARGETS \
  (HWY_ALL_SVE | HWY_NEON_BF16 | HWY_NEON)  // the baseline is NEON without AES, which we do not use
#else
#define HWY_DISABLED_TARGETS \
  (HWY_ALL_SVE | HWY_NEON_BF16 | HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_AVX3_ZEN4 | HWY_AVX3_SPR | HWY_AVX10_2)
#endif
