// SPDX-License-Identifier: Apache-2.0
#include "archs/cpu/features.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#endif

namespace tessera {
namespace {

#if defined(__aarch64__)
CpuFeatures find() {
  // Bits of AT_HWCAP2 as Linux defines them; older headers lack the names.
  constexpr unsigned long kI8mm = 1ul << 13, kBf16 = 1ul << 14;
  const unsigned long bits = getauxval(AT_HWCAP2);
  return {.neon_bf16 = (bits & kBf16) != 0, .neon_i8mm = (bits & kI8mm) != 0};
}
#elif defined(__x86_64__)
uint64_t enabled_states() {  // XCR0: register state that the system saves
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

// The tiles' registers are large: Linux gives them only to processes that ask (arch_prctl, ARCH_REQ_XCOMP_PERM,
// XTILEDATA).
bool may_use_tiles() { return syscall(SYS_arch_prctl, 0x1023, 18) == 0; }

CpuFeatures find() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & 1u << 27) == 0) return {};  // OSXSAVE
  const uint64_t states = enabled_states();
  constexpr uint64_t kAvx512 = 0xe6, kTiles = 0x60000;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return {};
  const bool avx512 = (states & kAvx512) == kAvx512 && (b & 1u << 16) && (b & 1u << 30) && (b & 1u << 31);  // F, BW, VL
  const bool amx = (states & kTiles) == kTiles && (d & 1u << 24);                                           // AMX-TILE
  const bool vnni = avx512 && (c & 1u << 11);
  const bool bf16_tiles = (d & 1u << 22) != 0, int8_tiles = (d & 1u << 25) != 0;
  if (!__get_cpuid_count(7, 1, &a, &b, &c, &d)) a = 0;
  CpuFeatures f;
  f.avx512_bf16 = avx512 && (a & 1u << 5);
  f.avx512_vnni = vnni;
  const bool tiles = avx512 && amx && may_use_tiles();
  f.amx_bf16 = tiles && bf16_tiles && f.avx512_bf16;
  // Both kinds rearrange w with instructions compiled for AVX-512 BF16.
  f.amx_int8 = tiles && int8_tiles && f.avx512_bf16;
  return f;
}
#else
CpuFeatures find() { return {}; }
#endif

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures kFound = find();
  return kFound;
}

}  // namespace tessera
