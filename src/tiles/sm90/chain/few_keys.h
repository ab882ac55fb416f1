// SPDX-License-Identifier: Apache-2.0
// How attention of few queries (few_attend.cuh) divides the keys of a head over eight blocks: neighbouring
// slices of one length, a multiple of the keys of one product. Host and device, constexpr: tested on the CPU.
#pragma once

#include "types/small_float.h"

namespace tessera::sm90 {

constexpr int kFewSlices = 8;    // blocks of a head
constexpr int kFewProduct = 16;  // keys that one product of weights and values takes
constexpr int kFewGroup = 64;    // keys that are loaded together
constexpr int kFewGroups = 2;    // of a slice at most: scores stay in registers
constexpr int kMostFewKeys = kFewSlices * kFewGroups * kFewGroup;
constexpr int kFewRows = 16;  // queries of a tile
constexpr int kMostFewQueries = 64;

TS_HOST_DEVICE constexpr int few_slice_keys(int keys) {
  return ((keys + kFewSlices - 1) / kFewSlices + kFewProduct - 1) / kFewProduct * kFewProduct;
}

// Keys [begin, end) of a slice; none where the slices before have them all.
struct FewSlice {
  int begin, end;
  TS_HOST_DEVICE constexpr int groups() const { return (end - begin + kFewGroup - 1) / kFewGroup; }
};
TS_HOST_DEVICE constexpr FewSlice few_slice(int keys, int slice) {
  const int each = few_slice_keys(keys), begin = slice * each < keys ? slice * each : keys;
  return {begin, begin + each < keys ? begin + each : keys};
}

}  // namespace tessera::sm90
