// SPDX-License-Identifier: Apache-2.0
// What linear layers read on sample inputs, in second moments: made by calibrate/moments, read by the passes that
// change weights so that results change least. Plain data, no code.
//   xtx[i, j] = sum over rows of x[row, i] * x[row, j]       |E x|^2 over all rows = tr(E xtx E^T) for a change E of w
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

// Of one value that linear layers read.
struct InputMoments {
  int64_t rows = 0, cols = 0;
  std::vector<float> xtx;             // [cols, cols], symmetric
  std::vector<float> amax, mean_abs;  // [cols]: largest and mean |x|
};

}  // namespace tessera
