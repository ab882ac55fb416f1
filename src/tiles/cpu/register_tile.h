// SPDX-License-Identifier: Apache-2.0
// The loop of products for processors without matrix instructions, compiled once per SIMD target: a tile of tile_rows()
// by 16 sums stays in registers while k runs; each step multiplies a column of w by numbers of x that are broadcast.
//   x panel: tile_rows() numbers for each step of k       w panel: 16 numbers for each step of k
// Lanes says what a number is: `D`, up to 16 lanes of 32 bits, and multiply_add(w, x, sum).
#if defined(TESSERA_TILES_CPU_REGISTER_TILE_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_TILES_CPU_REGISTER_TILE_H
#undef TESSERA_TILES_CPU_REGISTER_TILE_H
#else
#define TESSERA_TILES_CPU_REGISTER_TILE_H
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "tiles/cpu/product.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <class Lanes>
using LaneOf = hn::TFromD<typename Lanes::D>;
template <class Lanes>
using VectorOf = hn::Vec<typename Lanes::D>;
template <class Lanes>
constexpr int lanes_of() {
  return hn::MaxLanes(typename Lanes::D());
}

// NEON: 6 x 4 accumulators + 4 of w + 2 of x = 30 of 32 registers. AVX2: 6 x 2 + 2 + 1 of 16. AVX-512: 12 x 1
// accumulators hide the latency of 4 on 2 ports.
template <class Lanes>
constexpr int tile_rows() {
  return lanes_of<Lanes>() == 16 ? 12 : 6;
}

// Registers are named members, never array elements: compilers keep only the former out of memory.
template <class Lanes, int kCount>
struct Vectors {
  using D = typename Lanes::D;
  using T = LaneOf<Lanes>;
  VectorOf<Lanes> head;
  Vectors<Lanes, kCount - 1> rest;
  static HWY_INLINE Vectors zero() { return {hn::Zero(D()), Vectors<Lanes, kCount - 1>::zero()}; }
  static HWY_INLINE Vectors load(const T* p) {
    return {hn::LoadU(D(), p), Vectors<Lanes, kCount - 1>::load(p + lanes_of<Lanes>())};
  }
  HWY_INLINE void multiply_add(const Vectors& w, VectorOf<Lanes> x) {
    head = Lanes::multiply_add(w.head, x, head);
    rest.multiply_add(w.rest, x);
  }
  HWY_INLINE void store(T* p) const {
    hn::StoreU(head, D(), p);
    rest.store(p + lanes_of<Lanes>());
  }
  HWY_INLINE void add_to(T* p) const {
    hn::StoreU(hn::Add(hn::LoadU(D(), p), head), D(), p);
    rest.add_to(p + lanes_of<Lanes>());
  }
};
template <class Lanes>
struct Vectors<Lanes, 0> {
  using T = LaneOf<Lanes>;
  static HWY_INLINE Vectors zero() { return {}; }
  static HWY_INLINE Vectors load(const T*) { return {}; }
  HWY_INLINE void multiply_add(const Vectors&, VectorOf<Lanes>) {}
  HWY_INLINE void store(T*) const {}
  HWY_INLINE void add_to(T*) const {}
};
template <class Lanes>
using Row = Vectors<Lanes, kPanelCols / lanes_of<Lanes>()>;

// A step of an x panel, one number per row, each broadcast to a whole vector when asked for.
template <class Lanes>
struct FromMemory {
  const LaneOf<Lanes>* p;
  explicit HWY_INLINE FromMemory(const LaneOf<Lanes>* step) : p(step) {}
  template <int kRow>
  HWY_INLINE VectorOf<Lanes> get() const {
    return hn::Set(typename Lanes::D(), p[kRow]);
  }
};
// NEON multiplies by a lane of a register for free: six rows lie in two vectors, the second of which reaches into the
// next step.
template <class Lanes>
struct FromLanes {
  VectorOf<Lanes> v0, v1;
  explicit HWY_INLINE FromLanes(const LaneOf<Lanes>* p)
      : v0(hn::LoadU(typename Lanes::D(), p)), v1(hn::LoadU(typename Lanes::D(), p + 4)) {}
  template <int kRow>
  HWY_INLINE VectorOf<Lanes> get() const {
    return hn::BroadcastLane<kRow % 4>(kRow < 4 ? v0 : v1);
  }
};

template <class Lanes, int kCount>
struct Tile {
  Row<Lanes> head;
  Tile<Lanes, kCount - 1> rest;
  static HWY_INLINE Tile zero() { return {Row<Lanes>::zero(), Tile<Lanes, kCount - 1>::zero()}; }
  template <int kRow, class X>
  HWY_INLINE void multiply_add(const Row<Lanes>& w, const X& x) {
    head.multiply_add(w, x.template get<kRow>());
    rest.template multiply_add<kRow + 1>(w, x);
  }
  HWY_INLINE void finish(bool first, LaneOf<Lanes>* tile, int64_t stride) const {
    if (first) {
      head.store(tile);
    } else {
      head.add_to(tile);
    }
    rest.finish(first, tile + stride, stride);
  }
};
template <class Lanes>
struct Tile<Lanes, 0> {
  static HWY_INLINE Tile zero() { return {}; }
  template <int kRow, class X>
  HWY_INLINE void multiply_add(const Row<Lanes>&, const X&) {}
  HWY_INLINE void finish(bool, LaneOf<Lanes>*, int64_t) const {}
};

template <class Lanes, int kCount>
HWY_NOINLINE void multiply_rows(const LaneOf<Lanes>* x, const LaneOf<Lanes>* w, int64_t k, bool first,
                                LaneOf<Lanes>* out, int64_t stride) {
  constexpr int kRows = tile_rows<Lanes>();
  using X = std::conditional_t<kCount == kRows && lanes_of<Lanes>() == 4, FromLanes<Lanes>, FromMemory<Lanes>>;
  Tile<Lanes, kCount> tile = Tile<Lanes, kCount>::zero();
#pragma GCC unroll 4  // 74 -> 78 of 83 GFLOP/s on Neoverse V1 in fp32: fewer taken branches
  for (int64_t i = 0; i < k; ++i, x += kRows, w += kPanelCols) tile.template multiply_add<0>(Row<Lanes>::load(w), X(x));
  tile.finish(first, out, stride);
}

// The last panel, with fewer rows.
template <class Lanes, int kCount>
HWY_INLINE void multiply_last(int64_t rows, const LaneOf<Lanes>* x, const LaneOf<Lanes>* w, int64_t k, bool first,
                              LaneOf<Lanes>* out, int64_t stride) {
  if constexpr (kCount > 0) {
    if (rows == kCount) return multiply_rows<Lanes, kCount>(x, w, k, first, out, stride);
    multiply_last<Lanes, kCount - 1>(rows, x, w, k, first, out, stride);
  }
}

// out[r][c] = (first ? 0 : out[r][c]) + the sum over `k` steps, for any number of rows. Contract: x panels follow one
// another and end with 2 numbers that may be read.
template <class Lanes>
void multiply_tiles(const LaneOf<Lanes>* x, const LaneOf<Lanes>* w, int64_t rows, int64_t k, bool first,
                    LaneOf<Lanes>* out, int64_t stride) {
  constexpr int kRows = tile_rows<Lanes>();
  for (; rows >= kRows; rows -= kRows, x += kRows * k, out += kRows * stride)
    multiply_rows<Lanes, kRows>(x, w, k, first, out, stride);
  multiply_last<Lanes, kRows - 1>(rows, x, w, k, first, out, stride);
}

// Columns [i, i + lanes of D) of four rows, turned: four numbers of a column lie together, columns kCount apart.
template <int kCount, class D, class T>
HWY_INLINE void turn_four(D d, const T* const* rows, int64_t i, T* HWY_RESTRICT out) {
  const hn::FixedTag<T, 4> d4;
  const auto r0 = hn::LoadU(d, rows[0] + i), r1 = hn::LoadU(d, rows[1] + i), r2 = hn::LoadU(d, rows[2] + i),
             r3 = hn::LoadU(d, rows[3] + i);
  const auto even01 = hn::InterleaveLower(d, r0, r2), odd01 = hn::InterleaveLower(d, r1, r3),
             even23 = hn::InterleaveUpper(d, r0, r2), odd23 = hn::InterleaveUpper(d, r1, r3);
  const auto c0 = hn::InterleaveLower(d, even01, odd01), c1 = hn::InterleaveUpper(d, even01, odd01),
             c2 = hn::InterleaveLower(d, even23, odd23), c3 = hn::InterleaveUpper(d, even23, odd23);
  // A block of 128 bits holds one column in each of them.
  const auto store = [&](auto block, int64_t column) HWY_ATTR {
    constexpr int kBlock = decltype(block)::value;
    hn::StoreU(hn::ExtractBlock<kBlock>(c0), d4, out + column * kCount);
    hn::StoreU(hn::ExtractBlock<kBlock>(c1), d4, out + (column + 1) * kCount);
    hn::StoreU(hn::ExtractBlock<kBlock>(c2), d4, out + (column + 2) * kCount);
    hn::StoreU(hn::ExtractBlock<kBlock>(c3), d4, out + (column + 3) * kCount);
  };
  store(std::integral_constant<int, 0>(), i);
  if constexpr (hn::MaxLanes(d) >= 8) store(std::integral_constant<int, 1>(), i + 4);
  if constexpr (hn::MaxLanes(d) >= 16) {
    store(std::integral_constant<int, 2>(), i + 8);
    store(std::integral_constant<int, 3>(), i + 12);
  }
}

// out[i * kCount + r] = rows[r][i], numbers of 32 bits
template <int kCount, class T>
HWY_INLINE void interleave(const T* const* rows, int64_t n, T* HWY_RESTRICT out) {
  const hn::CappedTag<T, 16> d;
  constexpr int kFours = kCount / 4 * 4, kStep = hn::MaxLanes(d);
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    for (int r = 0; r < kFours; r += 4) turn_four<kCount>(d, rows + r, i, out + r);
    for (int64_t j = i; kFours < kCount && j < i + kStep; ++j) {
      for (int r = kFours; r < kCount; ++r) out[j * kCount + r] = rows[r][j];
    }
  }
  for (; i < n; ++i) {
    for (int r = 0; r < kCount; ++r) out[i * kCount + r] = rows[r][i];
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();
#endif
