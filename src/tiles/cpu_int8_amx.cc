// SPDX-License-Identifier: Apache-2.0
// Tiles as in tiles/cpu_bf16_amx.cc.
#if defined(__x86_64__)
#include <immintrin.h>

#include "tiles/cpu_int8_kernels.h"

namespace tessera {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr int64_t kTileBytes = 16 * 64;

template <int kTiles>
void collect(const int8_t* x, const int8_t* w, int64_t steps, int32_t* out) {
  const int64_t panel = steps * kTileBytes;
  _tile_zero(0);
  if constexpr (kTiles > 1) _tile_zero(1);
  if constexpr (kTiles > 2) _tile_zero(2);
  if constexpr (kTiles > 3) _tile_zero(3);
  for (int64_t s = 0; s < steps; ++s, x += kTileBytes, w += kTileBytes) {
    _tile_loadd(4, w, 64);
    _tile_loadd(5, x, 64);
    _tile_dpbssd(0, 5, 4);
    if constexpr (kTiles > 1) {
      _tile_loadd(6, x + panel, 64);
      _tile_dpbssd(1, 6, 4);
    }
    if constexpr (kTiles > 2) {
      _tile_loadd(7, x + 2 * panel, 64);
      _tile_dpbssd(2, 7, 4);
    }
    if constexpr (kTiles > 3) {
      _tile_loadd(5, x + 3 * panel, 64);
      _tile_dpbssd(3, 5, 4);
    }
  }
  _tile_stored(0, out, 64);
  if constexpr (kTiles > 1) _tile_stored(1, out + 256, 64);
  if constexpr (kTiles > 2) _tile_stored(2, out + 512, 64);
  if constexpr (kTiles > 3) _tile_stored(3, out + 768, 64);
}

}  // namespace

void multiply_int8_amx(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile, int64_t stride) {
  static const TileConfig kConfig;
  _tile_loadconfig(&kConfig);
  const int64_t steps = (k + 63) / 64;
  const auto* x = static_cast<const int8_t*>(x_panels);
  const auto* w = static_cast<const int8_t*>(w_panel);
  alignas(64) int32_t sums[4 * 256];
  for (int64_t r = 0; r < rows; r += 64, x += 4 * steps * kTileBytes) {
    const int64_t count = rows - r < 64 ? rows - r : 64;
    switch ((count + 15) / 16) {
      case 1: collect<1>(x, w, steps, sums); break;
      case 2: collect<2>(x, w, steps, sums); break;
      case 3: collect<3>(x, w, steps, sums); break;
      default: collect<4>(x, w, steps, sums); break;
    }
    for (int64_t i = 0; i < count; ++i) {
      auto* to = reinterpret_cast<int32_t*>(tile + (r + i) * stride);
      const __m512i v = _mm512_load_si512(sums + 16 * i);
      _mm512_storeu_si512(to, first ? v : _mm512_add_epi32(_mm512_loadu_si512(to), v));
    }
  }
  _tile_release();
}

}  // namespace tessera
#endif
