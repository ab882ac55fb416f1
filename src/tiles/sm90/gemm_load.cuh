// SPDX-License-Identifier: Apache-2.0
// The loading warpgroup of the normal mainloop (gemm.cuh).
#pragma once

#include "archs/cuda/instructions.cuh"
#include "archs/planted_fault.h"
#include "archs/sm90/instructions.cuh"
#include "tiles/sm90/gated_columns.h"
#include "tiles/sm90/gemm.cuh"
#include "types/layout.h"

namespace tessera::sm90 {

// One thread loads x, another w: each has few enough values to run in the registers that the consumers leave.
template <class Shape, class In, class Memory, bool kX>
__device__ void load_operand(const CUtensorMap* map, const GemmParams& p, const Memory& memory) {
  constexpr int kBlockK = 128 / sizeof(In), kBytes = kX ? Memory::kXBytes : Memory::kWBytes;
  const uint32_t first = kX ? memory.x(0) : memory.w(0);
  uint32_t slot = first, full = memory.full(0), parity = 1;
  const KRange k = k_range<Shape>(p);
  for (TileWalk<Shape> at(p); !at.done(p); at.next()) {
    const bool gated = !kX && Shape::kGates && p.gated;
    const int row = kX ? at.m(p) : gated ? at.n(p) / kGatePair : at.n(p);
    for (int kb = k.begin; kb < k.end; ++kb) {
      wait(full + Memory::kStages * 8, parity);
      arrive_expecting(full, kBytes);
      if (gated) {
        load_box(slot, map, kb * kBlockK, 0, 0, row, full);
      } else {
        load_box(slot, map, kb * kBlockK, row, full);
      }
      slot += Memory::kStageBytes, full += 8;
      if (slot == first + Memory::kStages * Memory::kStageBytes) slot = first, full -= Memory::kStages * 8, parity ^= 1;
    }
  }
}

// The same where rows of x are windows: tap after tap, and of each 128 bytes of channels after the others. Channels
// that a group does not have arrive as zeros, of x where the image has no more, of w always.
template <class Shape, class In, class Memory, bool kX>
__device__ void load_windows(const CUtensorMap* map, const GemmParams& p, const Memory& memory) {
  constexpr int kBlockK = 128 / sizeof(In), kBytes = kX ? Memory::kXBytes : Memory::kWBytes;
  const uint32_t first = kX ? memory.x(0) : memory.w(0);
  uint32_t slot = first, full = memory.full(0), parity = 1;
  for (TileWalk<Shape> at(p); !at.done(p); at.next()) {
    const ImageWindows::Corner corner = kX ? p.windows.corner(at.m(p)) : ImageWindows::Corner{at.n(p), 0, 0};
    const int channel = kX ? p.windows.group(at.col(p)) * p.windows.channels : 0;
    int dx = 0, dy = 0;
#pragma unroll 1
    for (int tap = 0; tap < p.windows.taps; ++tap) {
#pragma unroll 1
      for (int c = 0; c < p.windows.channels; c += kBlockK) {
        wait(full + Memory::kStages * 8, parity);
        arrive_expecting(full, kBytes);
        if constexpr (kX) {
          load_windows_box(slot, map, channel + c, corner.w, corner.h, corner.image,
                           planted(Fault::kTapsTurned) ? dy : dx, planted(Fault::kTapsTurned) ? dx : dy, full);
        } else {
          load_box(slot, map, c, tap, corner.w, full);
        }
        slot += Memory::kStageBytes, full += 8;
        if (slot == first + Memory::kStages * Memory::kStageBytes)
          slot = first, full -= Memory::kStages * 8, parity ^= 1;
      }
      if constexpr (kX) {
        dx += p.windows.dw;
        if (dx == p.windows.kw * p.windows.dw) dx = 0, dy += p.windows.dh;
      }
    }
  }
}

// All of w that a block needs (kResident), each block of K with its own barrier: the first products need not wait for
// the last one.
template <class Shape, class In, class Memory>
__device__ void load_resident(const CUtensorMap* map, const GemmParams& p, const Memory& memory) {
  const int row = TileWalk<Shape>(p).n(p);
#pragma unroll 1
  for (int kb = 0; kb < p.k_blocks; ++kb) {
    arrive_expecting(memory.w_full(kb), Memory::kWBytes);
    load_box(memory.w(kb), map, kb * (128 / static_cast<int>(sizeof(In))), row, memory.w_full(kb));
  }
}

// Two warps bring what the program of the tile after this one needs, so that no consumer waits for it (one of them
// where the other brings residuals): where the tile lies, and of each column factor and bias, v = sum * factor + bias,
// in units of y's scale and with the gain in it where no activation stands between, halved where one does
// (activation_fast.h); of a gate the argument is halved, the other factor in units of y's scale. In the order of the
// products' columns, which is not that of y's (types/layout.h, pairs32; gated_columns.h). The columns of kResident stay
// those of both consumers' first tiles.
template <class Shape, class In, class Vector, class Memory>
__device__ void load_tables(const GemmParams& p, const Memory& memory) {
  const int first = threadIdx.x % 64, lanes = p.residual ? 32 : 64;
  const float y_unit = p.y_scale != nullptr ? 1.0f / *p.y_scale : 1.0f,
              x_scale = !Shape::kTokens && p.x_scale != nullptr ? *p.x_scale : 1.0f;
  uint32_t consumer = 0, parity = 1;
  for (TileWalk<Shape> at(p); !at.done(p); at.next()) {
    const int m = at.m(p), n = at.n(p);
    wait(memory.table_empty(consumer), parity);
    const uint32_t table = memory.table(consumer);
    if (first == 0) {
      cuda::store_shared(table + Shape::kCols * 12, uint2{static_cast<uint32_t>(m), static_cast<uint32_t>(n)});
      if constexpr (Shape::kWindows)
        cuda::store_shared(table + Shape::kCols * 12 + 8,
                           __int_as_float(p.windows.group_end(at.col(p)) - (planted(Fault::kGroupEnd) ? 8 : 0)));
    }
    if constexpr (Shape::kTokens) {
#pragma unroll 1
      for (int i = first; i < Shape::kRows; i += lanes) {
        const int row = planted(Fault::kStaleStatistics) ? m + (i ^ 1) : m + i;
        cuda::store_shared(memory.tokens(consumer) + i * 4, row < p.m ? __ldcg(p.x_scale + row) : 0.0f);
      }
    }
#pragma unroll 1
    for (int i = Shape::kResident && at.number >= 2 * p.tiles.blocks ? Shape::kCols : first; i < Shape::kCols;
         i += lanes) {
      const bool gated = Shape::kGates && p.gated;
      const GatedColumn place = gated ? gated_column(n + i) : GatedColumn{0, n + turn_pairs32(i)};
      const bool exists = place.column < p.cols;
      const int col = place.half * p.cols + place.column;
      const float unit = p.act.present && place.half == 0 ? 0.5f : y_unit;
      float factor = x_scale * unit, bias = 0, gain = 1;
      if (exists && sizeof(In) == 1) factor *= p.w_scale[col * p.w_scale_stride];
      if (exists && p.bias != nullptr) bias = static_cast<float>(static_cast<const Vector*>(p.bias)[col]) * unit;
      if (exists && p.gain != nullptr) gain = static_cast<float>(static_cast<const Vector*>(p.gain)[col]);
      cuda::store_shared(table + i * 8, p.act.present ? float2{factor, bias} : float2{factor * gain, bias * gain});
      if (p.act.present) cuda::store_shared(table + Shape::kCols * 8 + i * 4, gain);
    }
    arrive(memory.table_full(consumer));
    consumer ^= 1, parity ^= consumer ^ 1;
  }
}

// One thread brings the residual of each tile, as soon as the one before has been added.
template <class Shape, class Memory>
__device__ void load_residuals(const CUtensorMap* map, const GemmParams& p, const Memory& memory) {
  uint32_t tile = 0;
  // kSplit: of the columns that this block finishes.
  const int first = Shape::kSplit ? static_cast<int>(rank_in_cluster()) : 0, step = Shape::kSplit ? p.split : 1;
  for (TileWalk<Shape> at(p); !at.done(p); at.next(), ++tile) {
    const int m = at.m(p) % p.residual_rows, n = at.n(p);
    const uint32_t full = memory.residual_full(tile & 1);
    wait(memory.residual_empty(), (tile + 1) & 1);
    arrive_expecting(full, (Shape::kCols / 32 - first + step - 1) / step * Memory::kResidualBox);
#pragma unroll 1
    for (int g = first; g < Shape::kCols / 32; g += step)
      load_box(memory.residual() + g * Memory::kResidualBox, map, n + g * 32, m, full);
  }
}

}  // namespace tessera::sm90
