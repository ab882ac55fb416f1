// SPDX-License-Identifier: Apache-2.0
// The program of the wide mainloops (gemm.cuh, sparse.cuh) on sums that a thread has finished.
#pragma once

#include <type_traits>

#include "archs/cuda/instructions.cuh"
#include "archs/sm90/instructions.cuh"
#include "tiles/cuda/elements.cuh"
#include "tiles/sm90/activation_fast.h"

namespace tessera::sm90 {

// What is compiled apart, so that no branch stands between the numbers: nothing but quantization; a residual; a smooth
// activation in f32; a smooth activation or relu, chosen while running; a smooth activation in f16 for e4m3 results; a
// gate; any program.
enum class ProgramKind : uint8_t { kPlain, kResidual, kActivation, kActivationOrRelu, kInHalf, kGate, kAny };

// The program on four numbers, neighbours in a row of y, in each of kRows rows, v = sum * factor + bias on entry;
// packed words of y on return. One warp per scheduler runs this, so a thread's own numbers must hide its latencies:
// each step goes over all of them before the next one. add: the residual.
template <class Out, ProgramKind kProgram, int kRows>
__device__ __forceinline__ void finish_fours(uint32_t (&y)[kRows][sizeof(Out)], float (&v)[kRows * 4],
                                             const float4& gains, const uint2 (&add)[kRows],
                                             const SmoothActivation& act, float unit) {
  constexpr bool kByte = sizeof(Out) == 1;
  if constexpr (kProgram == ProgramKind::kInHalf) {
    uint32_t pairs[kRows * 2];
    activate_half_pairs(act, v, __float2half2_rn(unit), pairs);
#pragma unroll
    for (int r = 0; r < kRows; ++r) y[r][0] = pack_e4m3(pairs[2 * r], pairs[2 * r + 1]);
  } else {
    if constexpr (kProgram == ProgramKind::kActivation || kProgram == ProgramKind::kActivationOrRelu ||
                  kProgram == ProgramKind::kAny) {
      if constexpr (kProgram != ProgramKind::kActivation) {  // half of them at a time: registers
        act.template run<kRows * 2>(v);
        act.template run<kRows * 2>(v + kRows * 2);
      } else {
        act.template run_smooth<kRows * 2>(v);
        act.template run_smooth<kRows * 2>(v + kRows * 2);
      }
#pragma unroll
      for (int i = 0; i < kRows * 4; ++i) {
        if (kByte) v[i] *= unit;
        if (kProgram == ProgramKind::kAny)
          v[i] *= i % 4 == 0 ? gains.x : i % 4 == 1 ? gains.y : i % 4 == 2 ? gains.z : gains.w;
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float* row = v + r * 4;
      if constexpr (!kByte && (kProgram == ProgramKind::kResidual || kProgram == ProgramKind::kAny)) {
        const float2 low =
            std::is_same_v<Out, __half> ? cuda::decode_half_pair(add[r].x) : cuda::decode_bf16_pair(add[r].x);
        const float2 high =
            std::is_same_v<Out, __half> ? cuda::decode_half_pair(add[r].y) : cuda::decode_bf16_pair(add[r].y);
        row[0] += low.x, row[1] += low.y, row[2] += high.x, row[3] += high.y;
      }
      if constexpr (!kByte) {
        y[r][0] = cuda::pack_pair<Out>(row[0], row[1]), y[r][1] = cuda::pack_pair<Out>(row[2], row[3]);
      } else {
        y[r][0] = std::is_same_v<Out, int8_t> ? cuda::encode_i8_four(row) : pack_e4m3(row[0], row[1], row[2], row[3]);
      }
    }
  }
}

}  // namespace tessera::sm90
