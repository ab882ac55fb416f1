// SPDX-License-Identifier: Apache-2.0
#include "tiles/cpu/panels.h"

#include <algorithm>
#include <type_traits>

#include "base/buffer.h"
#include "tiles/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tiles/cpu/panels.cc"
#include "archs/cpu/simd.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
constexpr int kLanes = hn::MaxLanes(D());
constexpr int kVectors = 16 / kLanes;  // per row of a tile
// NEON: 6 x 4 accumulators + 4 of w + 2 of x = 30 of 32 registers. AVX2: 6 x 2 + 2 + 1 of 16. AVX-512: 12 x 1
// accumulators hide the latency of 4 on 2 ports.
constexpr int kRows = kLanes == 16 ? 12 : 6;

// Registers are named members, never array elements: compilers keep only the former out of memory.
template <int kCount>
struct Vectors {
  V head;
  Vectors<kCount - 1> rest;
  static HWY_INLINE Vectors zero() { return {hn::Zero(D()), Vectors<kCount - 1>::zero()}; }
  static HWY_INLINE Vectors load(const float* p) { return {hn::LoadU(D(), p), Vectors<kCount - 1>::load(p + kLanes)}; }
  HWY_INLINE void multiply_add(const Vectors& w, V x) {
    head = hn::MulAdd(w.head, x, head);
    rest.multiply_add(w.rest, x);
  }
  HWY_INLINE void store(float* p) const {
    hn::StoreU(head, D(), p);
    rest.store(p + kLanes);
  }
  HWY_INLINE void add_to(float* p) const {
    hn::StoreU(hn::Add(hn::LoadU(D(), p), head), D(), p);
    rest.add_to(p + kLanes);
  }
};
template <>
struct Vectors<0> {
  static HWY_INLINE Vectors zero() { return {}; }
  static HWY_INLINE Vectors load(const float*) { return {}; }
  HWY_INLINE void multiply_add(const Vectors&, V) {}
  HWY_INLINE void store(float*) const {}
  HWY_INLINE void add_to(float*) const {}
};
using Row = Vectors<kVectors>;

// Column k of an x panel, one number per row, each broadcast to a whole vector when asked for.
struct FromMemory {
  const float* p;
  explicit HWY_INLINE FromMemory(const float* column) : p(column) {}
  template <int kRow>
  HWY_INLINE V get() const {
    return hn::Set(D(), p[kRow]);
  }
};
// NEON multiplies by a lane of a register for free: six rows lie in two vectors, the second of which reaches into the
// next column.
struct FromLanes {
  V v0, v1;
  explicit HWY_INLINE FromLanes(const float* p) : v0(hn::LoadU(D(), p)), v1(hn::LoadU(D(), p + 4)) {}
  template <int kRow>
  HWY_INLINE V get() const {
    return hn::BroadcastLane<kRow % 4>(kRow < 4 ? v0 : v1);
  }
};

template <int kCount>
struct Tile {
  Row head;
  Tile<kCount - 1> rest;
  static HWY_INLINE Tile zero() { return {Row::zero(), Tile<kCount - 1>::zero()}; }
  template <int kRow, class X>
  HWY_INLINE void multiply_add(const Row& w, const X& x) {
    head.multiply_add(w, x.template get<kRow>());
    rest.template multiply_add<kRow + 1>(w, x);
  }
  HWY_INLINE void finish(bool first, float* tile, int64_t stride) const {
    if (first) {
      head.store(tile);
    } else {
      head.add_to(tile);
    }
    rest.finish(first, tile + stride, stride);
  }
};
template <>
struct Tile<0> {
  static HWY_INLINE Tile zero() { return {}; }
  template <int kRow, class X>
  HWY_INLINE void multiply_add(const Row&, const X&) {}
  HWY_INLINE void finish(bool, float*, int64_t) const {}
};

template <int kCount>
HWY_NOINLINE void multiply_rows(const float* x, const float* w, int64_t k, bool first, float* out, int64_t stride) {
  using X = std::conditional_t<kCount == kRows && kLanes == 4, FromLanes, FromMemory>;
  Tile<kCount> tile = Tile<kCount>::zero();
#pragma GCC unroll 4  // 74 -> 78 of 83 GFLOP/s on Neoverse V1: fewer taken branches
  for (int64_t i = 0; i < k; ++i, x += kRows, w += kPanelCols) tile.template multiply_add<0>(Row::load(w), X(x));
  tile.finish(first, out, stride);
}

// The last panel, with fewer rows.
template <int kCount>
HWY_INLINE void multiply_last(int64_t rows, const float* x, const float* w, int64_t k, bool first, float* out,
                              int64_t stride) {
  if constexpr (kCount > 0) {
    if (rows == kCount) return multiply_rows<kCount>(x, w, k, first, out, stride);
    multiply_last<kCount - 1>(rows, x, w, k, first, out, stride);
  }
}

void multiply_panel_simd(const float* x, const float* w, int64_t rows, int64_t k, bool first, float* tile,
                         int64_t stride) {
  for (; rows >= kRows; rows -= kRows, x += kRows * k, tile += kRows * stride)
    multiply_rows<kRows>(x, w, k, first, tile, stride);
  multiply_last<kRows - 1>(rows, x, w, k, first, tile, stride);
}

int64_t panel_rows_simd() { return kRows; }

// out[i * kCount + r] = rows[r][i]
template <int kCount>
HWY_INLINE void interleave(const float* const* rows, int64_t n, float* HWY_RESTRICT out) {
  for (int64_t i = 0; i < n; ++i, out += kCount) {
    for (int r = 0; r < kCount; ++r) out[r] = rows[r][i];
  }
}

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
