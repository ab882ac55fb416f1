// SPDX-License-Identifier: Apache-2.0
// What depends on the time of a denoising step alone is computed when the graph is made, since the times are known:
// t = 1, 1 - 1/n, ..., 1/n in f32, as the sampling loop counts them.
#pragma once

#include <vector>

#include "models/pi05/settings.h"

namespace tessera {

// The times of `steps` steps, and the step between them, which is negative.
struct Times {
  std::vector<float> t;
  float dt;
};
Times times_of(int64_t steps);

// How strongly real-time chunking draws the velocity at t: min((1 - s) / s * ((1 - s)^2 + s^2) / (1 - s)^2, 10) with
// s = 1 - t.
float guidance(double t);

// [sin(2 pi t / period_k), cos(2 pi t / period_k)], k = 0 .. width / 2 - 1; periods from min to max in equal ratios.
std::vector<double> time_embedding(double t, int64_t width, double min_period, double max_period);

// π0.5: for each norm of the expert, in the order of the layers with the last norm at the end, (1 + scale, shift, gate)
// of the time; [(2 layers + 1) * 3 * width].
Result<std::vector<float>> modulations(Checkpoint& checkpoint, const PolicySettings& settings, double t);

}  // namespace tessera
