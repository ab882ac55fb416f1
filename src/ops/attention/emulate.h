// SPDX-License-Identifier: Apache-2.0
// Attention on tensor cores, emulated: scores and sums of values in the order of the kernel's instructions, the softmax
// in f32 between them. Not to the last bit: ex2.approx and the reciprocal (archs/sm90/approximate.h), and the order in
// which lanes add up weights. A weight so near a tie that these decide may become either code: the interval covers
// both.
#pragma once

#include "emulate/tensor_core.h"
#include "ops/attention/attention.h"

namespace tessera {

// How a kernel goes over the keys of a row.
struct AttentionOrder {
  const TensorCore* core = nullptr;
  int64_t block = 0;          // keys whose greatest score is found before they are weighed; 0: all
  bool backward = false;      // blocks from the last to the first
  bool fresh = false;         // the product of a block with v begins at zero and is added in f32
  bool fused_offset = false;  // a weight is 2^(s c + fma(-top, c, ..)); else 2^(s c - top), top = s_max c rounded
  int64_t first_product = 0;  // key that the products of a row begin with; they go round
  // Relative error of scores where it is not known which GPU adds them up; its sums with v err by a unit of f32 more.
  double loose = 0;
  int split = 1;   // so many warpgroups take blocks in turn, their results are joined at the end
  int slices = 0;  // instead: so many neighbouring slices of the keys that exist (sm90/chain/few_keys.h), then joined
};

Emulation emulate_attention(const Problem& problem, std::span<const TensorView> in, std::span<const TensorView> out,
                            const AttentionOrder& order);

}  // namespace tessera
