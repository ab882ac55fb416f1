// SPDX-License-Identifier: Apache-2.0
#include "tiles/cpu/panels.h"

#include <algorithm>

#include "base/buffer.h"
#include "tiles/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tiles/cpu/panels.cc"
#include "archs/cpu/simd.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tiles/cpu/register_tile.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// fp32 products and sums: one number of k in each lane.
struct Fp32Lanes {
  using D = hn::CappedTag<float, 16>;
  static HWY_INLINE hn::Vec<D> multiply_add(hn::Vec<D> w, hn::Vec<D> x, hn::Vec<D> sum) {
    return hn::MulAdd(w, x, sum);
  }
};
constexpr int kRows = tile_rows<Fp32Lanes>();

void multiply_panel_simd(const float* x, const float* w, int64_t rows, int64_t k, bool first, float* tile,
                         int64_t stride) {
  multiply_tiles<Fp32Lanes>(x, w, rows, k, first, tile, stride);
}

int64_t panel_rows_simd() { return kRows; }

void pack_x_simd(Element element, const void* x, int64_t row_stride, int64_t first, int64_t rows, int64_t k,
                 float* scratch, float* panels) {
  const float* from[kRows];
  for (int64_t r = 0; r < rows; r += kRows, panels += kRows * k) {
    for (int64_t i = 0; i < kRows; ++i) {
      from[i] = scratch + i * k;
      const int64_t begin = (r + i) * row_stride + first;
      if (r + i >= rows) {
        std::fill_n(scratch + i * k, k, 0.0f);
      } else if (element == Element::f32) {
        from[i] = static_cast<const float*>(x) + begin;
      } else {
        decode_row(element, x, begin, k, scratch + i * k);
      }
    }
    interleave<kRows>(from, k, panels);
  }
}

void pack_x_transposed_simd(Element element, const void* v, int64_t row_stride, int64_t first, int64_t rows, int64_t k,
                            float* scratch, float* panels) {
  for (int64_t i = 0; i < k; ++i) {
    const float* from = static_cast<const float*>(v) + first + i * row_stride;
    if (element != Element::f32) {
      decode_row(element, v, first + i * row_stride, rows, scratch);
      from = scratch;
    }
    float* to = panels + i * kRows;
    int64_t r = 0;
    for (; r + kRows <= rows; r += kRows, to += kRows * k) std::copy_n(from + r, kRows, to);
    if (r < rows) std::fill(std::copy(from + r, from + rows, to), to + kRows, 0.0f);
  }
}

void pack_w_simd(Element element, const void* w, const int64_t* offsets, int64_t rows, int64_t k, float* scratch,
                 float* panel) {
  const float* from[kPanelCols];
  for (int64_t c = 0; c < kPanelCols; ++c) {
    from[c] = scratch + c * k;
    if (c >= rows) {
      std::fill_n(scratch + c * k, k, 0.0f);
    } else if (element == Element::f32) {
      from[c] = static_cast<const float*>(w) + offsets[c];
    } else {
      decode_row(element, w, offsets[c], k, scratch + c * k);
    }
  }
  interleave<kPanelCols>(from, k, panel);
}

void groups_to_columns_simd(const float* in, int64_t groups, float* out) {
  const Fp32Lanes::D d;
  for (int64_t g = 0; g < groups; ++g, in += 4 * kPanelCols, out += 4 * kPanelCols) {
    for (int64_t c = 0; c < kPanelCols; c += hn::MaxLanes(d)) {
      hn::Vec<Fp32Lanes::D> v0, v1, v2, v3;
      hn::LoadInterleaved4(d, in + 4 * c, v0, v1, v2, v3);
      hn::StoreU(v0, d, out + c);
      hn::StoreU(v1, d, out + kPanelCols + c);
      hn::StoreU(v2, d, out + 2 * kPanelCols + c);
      hn::StoreU(v3, d, out + 3 * kPanelCols + c);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {

HWY_EXPORT(panel_rows_simd);
HWY_EXPORT(pack_x_simd);
HWY_EXPORT(pack_x_transposed_simd);
HWY_EXPORT(pack_w_simd);
HWY_EXPORT(multiply_panel_simd);
HWY_EXPORT(groups_to_columns_simd);

int64_t panel_rows() { return HWY_DYNAMIC_DISPATCH(panel_rows_simd)(); }
int64_t x_panels_floats(int64_t rows, int64_t k) { return round_up(rows, panel_rows()) * k + 2; }
void pack_x(Element element, const void* x, int64_t row_stride, int64_t first, int64_t rows, int64_t k, float* scratch,
            float* panels) {
  HWY_DYNAMIC_DISPATCH(pack_x_simd)(element, x, row_stride, first, rows, k, scratch, panels);
}
void pack_x_transposed(Element element, const void* v, int64_t row_stride, int64_t first, int64_t rows, int64_t k,
                       float* scratch, float* panels) {
  HWY_DYNAMIC_DISPATCH(pack_x_transposed_simd)(element, v, row_stride, first, rows, k, scratch, panels);
}
void pack_w(Element element, const void* w, const int64_t* offsets, int64_t rows, int64_t k, float* scratch,
            float* panel) {
  HWY_DYNAMIC_DISPATCH(pack_w_simd)(element, w, offsets, rows, k, scratch, panel);
}
void multiply_panel(const float* x_panels, const float* w_panel, int64_t rows, int64_t k, bool first, float* tile,
                    int64_t stride) {
  HWY_DYNAMIC_DISPATCH(multiply_panel_simd)(x_panels, w_panel, rows, k, first, tile, stride);
}

void groups_to_columns(const float* in, int64_t groups, float* out) {
  HWY_DYNAMIC_DISPATCH(groups_to_columns_simd)(in, groups, out);
}

namespace {

void pack_x_fp32(Element element, const void* x, int64_t row_stride, int64_t first, int64_t rows, int64_t k,
                 float* scratch, void* panels) {
  pack_x(element, x, row_stride, first, rows, k, scratch, static_cast<float*>(panels));
}
void pack_x_transposed_fp32(Element element, const void* v, int64_t row_stride, int64_t first, int64_t rows, int64_t k,
                            float* scratch, void* panels) {
  pack_x_transposed(element, v, row_stride, first, rows, k, scratch, static_cast<float*>(panels));
}
void pack_w_fp32(Element element, const void* w, const int64_t* offsets, int64_t rows, int64_t k, float* scratch,
                 void* panel) {
  pack_w(element, w, offsets, rows, k, scratch, static_cast<float*>(panel));
}
const void* take_w_fp32(Element element, const void* w, int64_t first, int64_t k, void* panel) {
  if (element == Element::f32) return static_cast<const float*>(w) + first;
  decode_row(element, w, first, kPanelCols * k, static_cast<float*>(panel));
  return panel;
}
const void* round_w_fp32(const float* s, int64_t, void*) { return s; }
void multiply_fp32(const void* x_panels, const void* w_panel, int64_t rows, int64_t k, bool first, float* tile,
                   int64_t stride) {
  multiply_panel(static_cast<const float*>(x_panels), static_cast<const float*>(w_panel), rows, k, first, tile, stride);
}

}  // namespace

const PanelProduct& fp32_product() {
  static const PanelProduct kProduct{.instruction = "FMA",
                                     .layout = Layout::kPanels16,
                                     .rows = panel_rows(),
                                     .depth = 1,
                                     .bytes = sizeof(float),
                                     .block_k = 384,
                                     .pack_x = pack_x_fp32,
                                     .pack_x_transposed = pack_x_transposed_fp32,
                                     .pack_w = pack_w_fp32,
                                     .take_w = take_w_fp32,
                                     .round_w = round_w_fp32,
                                     .multiply = multiply_fp32};
  return kProduct;
}

}  // namespace tessera
#endif
