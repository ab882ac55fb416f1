// SPDX-License-Identifier: Apache-2.0
// Matrix instructions that this processor, and the system under it, let us use. Asked once per process.
//   aarch64: BFMMLA (2x4 times 4x2 in bf16), SMMLA (2x8 times 8x2 in int8)
//   x86_64:  VDPBF16PS of AVX-512 BF16, VPDPBUSD of AVX-512 VNNI (fours of u8 times i8); the tiles of AMX (the kernel
//            must be asked for their state first)
#pragma once

namespace tessera {

struct CpuFeatures {
  bool neon_bf16 = false;
  bool neon_i8mm = false;
  bool avx512_bf16 = false;
  bool avx512_vnni = false;
  bool amx_bf16 = false;
  bool amx_int8 = false;
};
const CpuFeatures& cpu_features();

}  // namespace tessera
