// SPDX-License-Identifier: Apache-2.0
// Block scales in the order that block-scaled tensor cores read them: tiles of 128 rows x 4 scales, 512 bytes, tiles
// along the scales of a row first. The byte of scale k of row r:
//   ((r / 128) * ceil(scales / 4) + k / 4) * 512 + (r % 32) * 16 + (r % 128 / 32) * 4 + k % 4
// Rows and scales are padded to whole tiles with zero bytes. One scale is one byte (e4m3 or e8m0).
#pragma once

#include <cstdint>
#include <cstring>

#include "types/small_float.h"

namespace tessera {

constexpr int64_t kScaleTileRows = 128, kScaleTileScales = 4, kScaleTileBytes = kScaleTileRows * kScaleTileScales;

// `scales`: scales in a row.
TS_HOST_DEVICE constexpr int64_t tiled_scale_bytes(int64_t rows, int64_t scales) {
  return (rows + kScaleTileRows - 1) / kScaleTileRows * ((scales + kScaleTileScales - 1) / kScaleTileScales) *
         kScaleTileBytes;
}
TS_HOST_DEVICE constexpr int64_t tiled_scale_offset(int64_t row, int64_t k, int64_t scales) {
  const int64_t tile =
      row / kScaleTileRows * ((scales + kScaleTileScales - 1) / kScaleTileScales) + k / kScaleTileScales;
  return tile * kScaleTileBytes + row % 32 * 16 + row % kScaleTileRows / 32 * 4 + k % kScaleTileScales;
}

// [rows, scales] in rows to tiles; all of tiled_scale_bytes is written.
inline void tile_scales(const uint8_t* in, int64_t rows, int64_t scales, uint8_t* out) {
  if (const int64_t bytes = tiled_scale_bytes(rows, scales); bytes > 0) std::memset(out, 0, static_cast<size_t>(bytes));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < scales; ++k) out[tiled_scale_offset(r, k, scales)] = in[r * scales + k];
  }
}

inline void untile_scales(const uint8_t* in, int64_t rows, int64_t scales, uint8_t* out) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < scales; ++k) out[r * scales + k] = in[tiled_scale_offset(r, k, scales)];
  }
}

}  // namespace tessera
