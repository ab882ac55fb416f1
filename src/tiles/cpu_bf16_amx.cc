// SPDX-License-Identifier: Apache-2.0
// Tiles 0 ... 3 collect four tiles of 16 rows, 4 holds w, 5 ... 7 take x in turn: one load of w per four products, so that loads (8 cycles) stay
// behind products (16 cycles).
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#include "tiles/cpu_bf16_kernels.h"

namespace tessera {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr int64_t kTileElements = 16 * 32;

// The sums of `kTiles` tiles of rows over `steps` groups of 32 columns.
template <int kTiles>
void collect(const uint16_t* x, const uint16_t* w, int64_t steps, float* out) {
  const int64_t panel = steps * kTileElements;
  _tile_zero(0);
  if constexpr (kTiles > 1) _tile_zero(1);
  if constexpr (kTiles > 2) _tile_zero(2);
  if constexpr (kTiles > 3) _tile_zero(3);
  for (int64_t s = 0; s < steps; ++s, x += kTileElements, w += kTileElements) {
    _tile_loadd(4, w, 64);
    _tile_loadd(5, x, 64);
    _tile_dpbf16ps(0, 5, 4);
    if constexpr (kTiles > 1) {
      _tile_loadd(6, x + panel, 64);
      _tile_dpbf16ps(1, 6, 4);
    }
    if constexpr (kTiles > 2) {
      _tile_loadd(7, x + 2 * panel, 64);
      _tile_dpbf16ps(2, 7, 4);
    }
    if constexpr (kTiles > 3) {
      _tile_loadd(5, x + 3 * panel, 64);
      _tile_dpbf16ps(3, 5, 4);
    }
  }
  _tile_stored(0, out, 64);
  if constexpr (kTiles > 1) _tile_stored(1, out + 256, 64);
  if constexpr (kTiles > 2) _tile_stored(2, out + 512, 64);
  if constexpr (kTiles > 3) _tile_stored(3, out + 768, 64);
}

}  // namespace

void multiply_bf16_amx(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile, int64_t stride) {
  static const TileConfig kConfig;
  _tile_loadconfig(&kConfig);
  const int64_t steps = (k + 31) / 32;
  const auto* x = static_cast<const uint16_t*>(x_panels);
  const auto* w = static_cast<const uint16_t*>(w_panel);
  alignas(64) float sums[4 * 256];
  for (int64_t r = 0; r < rows; r += 64, x += 4 * steps * kTileElements) {
    const int64_t count = rows - r < 64 ? rows - r : 64;
    switch ((count + 15) / 16) {
      case 1: collect<1>(x, w, steps, sums); break;
      case 2: collect<2>(x, w, steps, sums); break;
      case 3: collect<3>(x, w, steps, sums); break;
      default: collect<4>(x, w, steps, sums); break;
    }
    for (int64_t i = 0; i < count; ++i) {
      float* to = tile + (r + i) * stride;
      const __m512 v = _mm512_load_ps(sums + 16 * i);
      _mm512_storeu_ps(to, first ? v : _mm512_add_ps(_mm512_loadu_ps(to), v));
    }
  }
  _tile_release();
}

}  // namespace tessera
#endif
