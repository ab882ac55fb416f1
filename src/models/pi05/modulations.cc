// SPDX-License-Identifier: Apache-2.0
#include "models/pi05/modulations.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/parallel.h"

namespace tessera {
namespace {

// y = w x + b, in f64 over the stored f32 numbers.
Result<std::vector<double>> dense(Checkpoint& checkpoint, const std::string& module, int64_t outputs,
                                  const std::vector<double>& x) {
  const int64_t inputs = static_cast<int64_t>(x.size());
  TS_ASSIGN(const Bytes w, checkpoint.tensors().take_f32(module + ".weight", {{outputs, inputs}}));
  TS_ASSIGN(const Bytes b, checkpoint.tensors().take_f32(module + ".bias", {{outputs}}));
  const float* weight = reinterpret_cast<const float*>(w.data());
  const float* bias = reinterpret_cast<const float*>(b.data());
  std::vector<double> y(static_cast<size_t>(outputs));
  parallel_for(outputs, 64, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      double sum = bias[o];
      for (int64_t i = 0; i < inputs; ++i)
        sum += static_cast<double>(weight[o * inputs + i]) * x[static_cast<size_t>(i)];
      y[static_cast<size_t>(o)] = sum;
    }
  });
  return y;
}

void silu(std::vector<double>& x) {
  for (double& v : x) v = v / (1 + std::exp(-v));
}

}  // namespace

Times times_of(int64_t steps) {
  Times times{.t = {}, .dt = -1.0f / static_cast<float>(steps)};
  for (float t = 1; t >= -times.dt / 2; t += times.dt) times.t.push_back(t);
  return times;
}

float guidance(double t) {
  constexpr double kMost = 10;
  const double s = 1 - t;
  if (!(s > 0)) return static_cast<float>(kMost);
  return static_cast<float>(std::min(kMost, t / s * (t * t + s * s) / (t * t)));
}

std::vector<double> time_embedding(double t, int64_t width, double min_period, double max_period) {
  const int64_t half = width / 2;
  std::vector<double> e(static_cast<size_t>(2 * half));
  for (int64_t k = 0; k < half; ++k) {
    const double share = half == 1 ? 0 : static_cast<double>(k) / static_cast<double>(half - 1);
    const double angle = 2 * std::numbers::pi * t / (min_period * std::pow(max_period / min_period, share));
    e[static_cast<size_t>(k)] = std::sin(angle);
    e[static_cast<size_t>(half + k)] = std::cos(angle);
  }
  return e;
}

Result<std::vector<float>> modulations(Checkpoint& checkpoint, const PolicySettings& s, double t) {
  const int64_t width = s.expert.width;
  std::vector<double> x = time_embedding(t, width, s.min_period, s.max_period);
  for (const char* layer : {"time_mlp_in", "time_mlp_out"}) {
    TS_ASSIGN(x, dense(checkpoint, s.prefix + layer, width, x));
    silu(x);
  }
  std::vector<float> all;
  const auto add = [&](const std::string& norm) -> Status {
    TS_ASSIGN(std::vector<double> y, dense(checkpoint, norm + ".dense", 3 * width, x));
    for (int64_t i = 0; i < width; ++i) y[static_cast<size_t>(i)] += 1;
    all.insert(all.end(), y.begin(), y.end());
    return {};
  };
  for (int64_t i = 0; i < s.layers; ++i) {
    const std::string layer = cat(s.gemma_expert(), "layers.", i);
    TS_TRY(add(layer + ".input_layernorm"));
    TS_TRY(add(layer + ".post_attention_layernorm"));
  }
  TS_TRY(add(s.gemma_expert() + "norm"));
  return all;
}

}  // namespace tessera
