// SPDX-License-Identifier: Apache-2.0
// Scales of a weight that lose less than those that map its largest magnitude to the element's largest number: for each
// group under one scale, the scale with the least sum of importance[col] * (number - w)^2 among those that the scale's
// element can hold from 1/2 to 3/2 of amax / max. Below 1 the largest numbers are clipped for the sake of the others;
// 3/2 maps e2m1's amax to 4 instead of 6. Never worse than amax / max, which is one of them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "weights/weight_grid.h"

namespace tessera {

// The grid whose scales come from the largest magnitudes. Fails where the type has no such quantizer.
Result<WeightGrid> amax_grid(const QuantType& type, const float* w, int64_t rows, int64_t cols);

// The grid with the best scales. importance [cols]: the diagonal of the layer's X^T X; empty: all the same.
Result<WeightGrid> clip_weights(const QuantType& type, const float* w, int64_t rows, int64_t cols,
                                const std::vector<float>& importance);

}  // namespace tessera
