// SPDX-License-Identifier: Apache-2.0
// Blocks of a cluster that share a tile take a slice of K each; slices differ by at most one block of K. Host and
// device, constexpr.
#pragma once

#include "types/small_float.h"

namespace tessera::sm90 {

// The first block of K of slice `rank`.
TS_HOST_DEVICE constexpr int slice_begin(int k_blocks, int split, int rank) { return k_blocks * rank / split; }
constexpr int longest_slice(int k_blocks, int split) { return (k_blocks + split - 1) / split; }

}  // namespace tessera::sm90
