// SPDX-License-Identifier: Apache-2.0
// Tiles 0 ... 3 collect four tiles of 16 rows, 4 holds w, 5 ... 7 take x in turn: one load of w per four products, so
// that loads (8 cycles) stay behind products (16 cycles).
#if defined(__x86_64__)
#include <immintrin.h>

#include "tiles/cpu/matrix_kernels.h"

namespace tessera {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr int64_t kTileBytes = 16 * 64;

enum class Numbers { kBf16, kInt8 };

// Numbers of tiles are part of the instruction: they cannot be variables.
#define TS_TILE_PRODUCT(sum, x)           \
  if constexpr (kind == Numbers::kBf16) { \
    _tile_dpbf16ps(sum, x, 4);            \
  } else {                                \
    _tile_dpbssd(sum, x, 4);              \
  }

// The sums of `kTiles` tiles of rows over `steps` times 64 bytes along k.
template <Numbers kind, int kTiles>
void collect(const uint8_t* x, const uint8_t* w, int64_t steps, void* out) {
  const int64_t panel = steps * kTileBytes;
  auto* to = static_cast<uint8_t*>(out);
  _tile_zero(0);
  if constexpr (kTiles > 1) _tile_zero(1);
  if constexpr (kTiles > 2) _tile_zero(2);
  if constexpr (kTiles > 3) _tile_zero(3);
  for (int64_t s = 0; s < steps; ++s, x += kTileBytes, w += kTileBytes) {
    _tile_loadd(4, w, 64);
    _tile_loadd(5, x, 64);
    TS_TILE_PRODUCT(0, 5)
    if constexpr (kTiles > 1) {
      _tile_loadd(6, x + panel, 64);
      TS_TILE_PRODUCT(1, 6)
    }
    if constexpr (kTiles > 2) {
      _tile_loadd(7, x + 2 * panel, 64);
      TS_TILE_PRODUCT(2, 7)
    }
    if constexpr (kTiles > 3) {
      _tile_loadd(5, x + 3 * panel, 64);
      TS_TILE_PRODUCT(3, 5)
    }
  }
  _tile_stored(0, to, 64);
  if constexpr (kTiles > 1) _tile_stored(1, to + kTileBytes, 64);
  if constexpr (kTiles > 2) _tile_stored(2, to + 2 * kTileBytes, 64);
  if constexpr (kTiles > 3) _tile_stored(3, to + 3 * kTileBytes, 64);
}
#undef TS_TILE_PRODUCT

template <Numbers kind>
void multiply(const void* x_panels, const void* w_panel, int64_t steps, int64_t rows, bool first, float* tile,
              int64_t stride) {
  static const TileConfig kConfig;
  _tile_loadconfig(&kConfig);
  const auto* x = static_cast<const uint8_t*>(x_panels);
  const auto* w = static_cast<const uint8_t*>(w_panel);
  alignas(64) float sums[4 * 256];
  for (int64_t r = 0; r < rows; r += 64, x += 4 * steps * kTileBytes) {
    const int64_t count = rows - r < 64 ? rows - r : 64;
    switch ((count + 15) / 16) {
      case 1:
        collect<kind, 1>(x, w, steps, sums);
        break;
      case 2:
        collect<kind, 2>(x, w, steps, sums);
        break;
      case 3:
        collect<kind, 3>(x, w, steps, sums);
        break;
      default:
        collect<kind, 4>(x, w, steps, sums);
        break;
    }
    for (int64_t i = 0; i < count; ++i) {
      float* to = tile + (r + i) * stride;
      const __m512i v = _mm512_load_si512(sums + 16 * i),
                    before = first ? _mm512_setzero_si512() : _mm512_loadu_si512(to);
      if constexpr (kind == Numbers::kBf16) {
        _mm512_storeu_ps(to, _mm512_add_ps(_mm512_castsi512_ps(before), _mm512_castsi512_ps(v)));
      } else {
        _mm512_storeu_si512(to, _mm512_add_epi32(before, v));
      }
    }
  }
  _tile_release();
}

}  // namespace

void multiply_bf16_amx(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile,
                       int64_t stride) {
  multiply<Numbers::kBf16>(x_panels, w_panel, (k + 31) / 32, rows, first, tile, stride);
}
void multiply_int8_amx(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile,
                       int64_t stride) {
  multiply<Numbers::kInt8>(x_panels, w_panel, (k + 63) / 64, rows, first, tile, stride);
}

}  // namespace tessera
#endif
