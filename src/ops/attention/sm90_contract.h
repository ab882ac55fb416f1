// SPDX-License-Identifier: Apache-2.0
// What the attention kernels on Hopper's wgmma (sm90_short, sm90_stream, sm90_stream_fp8) share before anything runs:
// what they ask of a problem whatever its type, and the arithmetic of 16-bit operands.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>

#include "archs/sm90/chip.h"
#include "base/buffer.h"
#include "ops/attention/attention.h"
#include "ops/attention/emulate.h"
#include "tiles/cuda/device_axes.h"
#include "tiles/cuda/device_types.h"

namespace tessera {

// TMA steps over whole units of 16 bytes, forwards; `unit`: in elements. An axis of one element is never
// stepped over.
inline bool strides_fit_copy(const Shape& shape, const Shape& strides, int64_t unit) {
  for (size_t i = 0; i + 1 < shape.size(); ++i) {
    if (shape[i] > 1 && (strides[i] <= 0 || strides[i] % unit != 0)) return false;
  }
  return strides.back() == 1;
}
// The stride of an axis for a tensor map: that of one element is never used, but must look like a stride.
inline int64_t copy_stride(int64_t size, int64_t stride) { return size > 1 ? stride : 16; }

inline Verdict accepts_for_wgmma(const Problem& problem, const AttentionProblem& a, int64_t max_head) {
  TS_REQUIRE(a.k == a.q && a.v == a.q, "q, k and v must be of one type; they are ", to_string(a.q), ", ",
             to_string(a.k), ", ", to_string(a.v));
  TS_REQUIRE(a.then->within(kCodesOnly), kCodesOnly.says_in_order());
  TS_REQUIRE(a.head_size % 8 == 0 && a.value_size % 8 == 0, "head sizes must be multiples of 8, they are ", a.head_size,
             " and ", a.value_size, ": pad the heads of q, k and v with zeros");
  TS_REQUIRE(std::max(a.head_size, a.value_size) <= max_head, "a head has at most ", max_head, " columns, not ",
             std::max(a.head_size, a.value_size));
  TS_REQUIRE(a.keys > 0, "there must be a key");
  const int64_t unit = 128 / info(a.q.element).bits;
  for (size_t i = 0; i < 3; ++i) {
    const Shape& strides = i == 0 ? a.q_strides : i == 1 ? a.k_strides : a.v_strides;
    TS_REQUIRE(strides_fit_copy(problem.in[i].shape, strides, unit),
               "rows of q, k and v must be contiguous and start at multiples of 16 bytes; strides of ",
               i == 0   ? "q"
               : i == 1 ? "k"
                        : "v",
               " are ", to_string(strides), " of ", to_string(a.q), ": pad the heads to a multiple of ", unit,
               " elements");
  }
  TS_REQUIRE(std::isfinite(a.scale) && a.scale > 0, "scale must be positive: the row maximum is taken before scaling");
  TS_REQUIRE(a.queries < (1 << 24) && a.keys < (1 << 30) &&
                 a.batch * a.heads * divide_up(std::max<int64_t>(a.queries, 1), 64) <= kMaxDeviceElements / 2,
             "too many queries or keys for 31-bit indices");
  return {};
}

// What sm90_stream and sm90_stream_fp8 ask beyond that.
inline Verdict accepts_stream(const Problem& problem, const AttentionProblem& a) {
  TS_REQUIRE(is_device_number(a.y) && a.y.element != Element::f32,
             "writes f16, bf16, or e4m3 with one static f32 scale, not ", to_string(a.y));
  TS_REQUIRE(!a.has_bias || is_device_float(problem.in[3].type), "bias must be f32, f16 or bf16, not ",
             to_string(problem.in[3].type));
  return accepts_for_wgmma(problem, a, 256);
}

// Query heads that share keys and whose rows can lie in one tile: 64 rows must be whole queries of them.
inline constexpr int64_t kStreamRows = 64;
inline int64_t packed_heads(const AttentionProblem& a) {
  const int64_t sharing = a.heads / a.kv_heads;
  return sharing <= kStreamRows && std::has_single_bit(static_cast<uint64_t>(sharing)) ? sharing : 1;
}
inline int64_t stream_tiles(const AttentionProblem& a, int64_t rows) {
  return a.batch * a.heads / packed_heads(a) * divide_up(a.queries * packed_heads(a), rows);
}
// Heads of more than 128 columns: two warpgroups share the same 64 rows and take blocks of keys in turn, in one thread
// block ("split_keys") or in each of a cluster's ("split_keys 4"); or they have rows of their own. It decides which
// codes weights become, so it is part of the plan; the first is better where tiles are few.
inline constexpr const char *kSplitKeys = "split_keys", *kOwnRows = "own_rows";
inline constexpr int kMostSlices = 8;  // blocks of a cluster that every GPU of this arch grants
inline std::string split_name(int slices) { return slices == 1 ? kSplitKeys : cat(kSplitKeys, " ", slices); }
inline int64_t stream_block(const AttentionProblem& a) {
  return std::max(a.head_size, a.value_size) > 128 && !a.q.scaled() ? 64 : 128;
}
inline std::vector<std::string> stream_configs(const Problem& problem) {
  const AttentionProblem a = AttentionProblem::of(problem);
  if (std::max(a.head_size, a.value_size) <= 128) return {};
  const int64_t tiles = stream_tiles(a, kStreamRows), blocks = divide_up(a.keys, stream_block(a));
  // Best guess: as many slices as leave no SM without a block and no slice without keys.
  int best = 1;
  while (best < kMostSlices && tiles * best * 2 <= sm90::kSms && blocks > 2 * best) best *= 2;
  std::vector<std::string> names = {split_name(best)};
  for (int slices = 1; slices <= kMostSlices && 2 * slices < std::max<int64_t>(2 * blocks, 3); slices *= 2) {
    if (slices != best) names.push_back(split_name(slices));
  }
  names.insert(tiles <= sm90::kSms ? names.end() : names.begin(), kOwnRows);
  return names;
}
// Thread blocks that share a tile's rows; 0: warpgroups have rows of their own.
inline int stream_slices(const Problem& problem) {
  const std::vector<std::string> known = stream_configs(problem);
  if (known.empty()) return 0;
  const std::string& name = problem.config.empty() ? known[0] : problem.config;
  for (int slices = 1; slices <= kMostSlices; slices *= 2) {
    if (name == split_name(slices)) return slices;
  }
  return 0;
}

// The order of sm90_stream and sm90_stream_fp8 (tiles/sm90/stream_attend.cuh).
inline Emulation emulate_stream(const Problem& problem, std::span<const TensorView> in,
                                std::span<const TensorView> out) {
  const AttentionProblem a = AttentionProblem::of(problem);
  const bool codes = a.q.scaled();
  return emulate_attention(problem, in, out,
                           {.core = codes ? &kWgmmaE4m3 : &kWgmmaHalf,
                            .block = stream_block(a),
                            .backward = true,
                            .fresh = codes,
                            .split = std::max(1, 2 * stream_slices(problem))});
}

inline Arithmetic half_wgmma_arithmetic(const Problem& p) {
  const bool f16 = p.in[0].type.element == Element::f16;
  return {.computed = f16 ? Element::f16 : Element::bf16,
          .instruction = f16 ? "wgmma fp16 (HGMMA), f32 sums" : "wgmma bf16 (HGMMA), f32 sums",
          .accumulator_bits = 22,
          .operand_error = f16 ? 0x1p-11 : 0x1p-8};  // weights are rounded before they are multiplied with v
}

}  // namespace tessera
