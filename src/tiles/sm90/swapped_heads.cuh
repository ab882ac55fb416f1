// SPDX-License-Identifier: Apache-2.0
// What the swapped mainloop (swapped.cuh) does with heads: turns queries and keys by their tokens' angles
// (steps/rotary.h), and writes columns into the rows of caches that lie at a number on the device (tiles/kept_rows.h).
// Angles and that number are loaded before the products, so that they are there when the sums are.
#pragma once

#include "archs/planted_fault.h"
#include "steps/rotary.h"
#include "tiles/cuda/elements.cuh"
#include "tiles/kept_rows.h"
#include "tiles/sm90/head_columns.h"

namespace tessera::sm90 {

constexpr int kMostKept = 2;  // keys and values

struct SwappedHeads {
  HeadColumns columns;
  const void* angles;  // null: nothing turns
  Element angle_element;
  int angle_stride, angle_rows;  // elements from row to row; rows, which repeat
  int kept_count;
  struct Kept {
    int first, end;     // columns of y
    KeptRows rows;      // of the cache
    const int32_t* at;  // null: row 0
    int at_stride;      // numbers from one batch item to the next; 0: one for all
    void* data;
    Element element;
    const float* scale;  // null: 1
  } kept[kMostKept];
};

// One thread's eight channels of up to kPieces tokens, 16 apart. Of kernels without heads: nothing.
template <bool kHeads, int kPieces>
struct HeadChannels {
  __device__ __forceinline__ HeadChannels(const SwappedHeads&, int, int, int) {}
};

template <int kPieces>
struct HeadChannels<true, kPieces> {
  static constexpr int kEarly = kPieces < 2 ? kPieces : 2;  // 16 registers each; the angles of others are loaded late
  const SwappedHeads& p;
  const int channel, token;
  bool turns;
  int kept = -1;  // which of them has these channels
  int row = 0;    // where one number holds for all batch items: the first that is replaced
  float unit = 1.0f;
  cuda::Raw8 cosines[kEarly], sines[kEarly];

  // Contract: kernels before this one have ended. token: of the first piece; m: how many there are.
  __device__ __forceinline__ HeadChannels(const SwappedHeads& heads, int own_channel, int first_token, int m)
      : p(heads), channel(own_channel), token(first_token), turns(p.angles != nullptr && p.columns.turns(channel)) {
#pragma unroll
    for (int i = 0; i < kEarly; ++i) load(i, m, cosines[i], sines[i]);
#pragma unroll
    for (int k = 0; k < kMostKept; ++k) {
      if (k < p.kept_count && channel >= p.kept[k].first && channel < p.kept[k].end) kept = k;
    }
    if (kept < 0) return;
    const SwappedHeads::Kept& to = p.kept[kept];
    if (to.at != nullptr && to.at_stride == 0) row = row_at(to, 0);
    if (to.scale != nullptr) unit = 1.0f / *to.scale;
  }

  __device__ __forceinline__ void load(int i, int m, cuda::Raw8& cosine, cuda::Raw8& sine) const {
    const int own = token + i * 16;
    if (!turns || own >= m) return;
    int angles = own % p.angle_rows;
    if (planted(Fault::kAngleOfNeighbour)) angles = angles > 0 ? angles - 1 : p.angle_rows - 1;
    const int64_t at = int64_t{angles} * p.angle_stride + p.columns.pair(channel);
    cosine = cuda::load_raw8(p.angle_element, p.angles, at);
    sine = cuda::load_raw8(p.angle_element, p.angles, at + p.columns.pairs);
  }

  // All lanes of the warp call this: neighbours exchange the numbers of their pairs.
  __device__ __forceinline__ void turn(int i, int m, float (&v)[8]) const {
    if (p.angles == nullptr) return;
    float other[8], c[8], s[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) other[j] = __shfl_xor_sync(0xffffffffu, v[j], p.columns.partner());
    if (!turns) return;
    if (i < kEarly) {
      cuda::decode8(p.angle_element, cosines[i], c);
      cuda::decode8(p.angle_element, sines[i], s);
    } else {
      cuda::Raw8 cosine{}, sine{};
      load(i, m, cosine, sine);
      cuda::decode8(p.angle_element, cosine, c);
      cuda::decode8(p.angle_element, sine, s);
    }
    const bool second = p.columns.is_second(channel);
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = rotated(v[j], other[j], c[j], second ? s[j] : -s[j]);
  }

  static __device__ __forceinline__ int row_at(const SwappedHeads::Kept& to, int item) {
    return planted(Fault::kRowIgnored) ? 0 : static_cast<int>(to.rows.first_row(to.at[item * to.at_stride]));
  }

  // Contract: the token and these channels exist. store(element, data, index, eight numbers).
  template <class Store>
  __device__ __forceinline__ void keep(int own_token, const float (&v)[8], const Store& store) const {
    if (kept < 0) return;
    const SwappedHeads::Kept& to = p.kept[kept];
    const int item = own_token / to.rows.tokens;
    const int first = to.at != nullptr && to.at_stride != 0 ? row_at(to, item) : row;
    float codes[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) codes[j] = v[j] * unit;
    store(to.element, to.data, to.rows.index(item, first + own_token - item * to.rows.tokens, channel - to.first),
          codes);
  }
};

}  // namespace tessera::sm90
