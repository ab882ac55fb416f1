// SPDX-License-Identifier: Apache-2.0
// Quantizers on one core, in GB of f32 per second: making the scales and the codes of an array, codes under a given
// scale, and back. The array (1024 x 4096, 16 MiB) is larger than the first two caches.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "types/quantize_array.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 1024, kCols = 4096;

const std::vector<float>& numbers() {
  static const std::vector<float> x = [] {
    std::vector<float> draws(kRows * kCols);
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (float& v : draws) v = normal(random);
    return draws;
  }();
  return x;
}

void count(benchmark::State& state) {
  state.counters["GB/s"] =
      benchmark::Counter(static_cast<double>(kRows * kCols * 4) * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

void add(const char* text) {
  const QuantType type = *parse_quant_type(text);
  const auto made = [type] { return quantize_array(type, numbers().data(), kRows, kCols).value(); };
  benchmark::RegisterBenchmark((std::string("quantize/") + text).c_str(), [=](benchmark::State& state) {
    QuantizedArray q = made();
    for (auto _ : state) {
      make_scale2(type, numbers().data(), kRows, kCols, q.scale2.data());
      quantize_under(type, numbers().data(), kRows, kCols, q.scale2.data(), q.scale.data(), q.codes.data());
      benchmark::ClobberMemory();
    }
    count(state);
  });
  if (type.scaled()) {
    benchmark::RegisterBenchmark((std::string("encode/") + text).c_str(), [=](benchmark::State& state) {
      QuantizedArray q = made();
      for (auto _ : state) {
        encode_scaled(type, numbers().data(), kRows, kCols, q.scale.data(), q.scale2.data(), q.codes.data());
        benchmark::ClobberMemory();
      }
      count(state);
    });
  }
  benchmark::RegisterBenchmark((std::string("dequantize/") + text).c_str(), [=](benchmark::State& state) {
    const QuantizedArray q = made();
    std::vector<float> y(kRows * kCols);
    for (auto _ : state) {
      dequantize_array(type, q.codes.data(), q.scale.data(), q.scale2.data(), kRows, kCols, y.data());
      benchmark::ClobberMemory();
    }
    count(state);
  });
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (const char* text : {"f16", "e4m3", "e2m1", "i8", "e4m3:tensor(f32)", "e4m3:channel(f32)", "e5m2:tensor(f32)",
                           "i8:channel(f32)", "i4:block32(f16)", "e4m3:block32(e8m0)", "e2m1:block16(e4m3):tensor(f32)",
                           "e2m1:block16(e4m3):tensor(f32):as(e4m3)"}) {
    tessera::add(text);
  }
  benchmark::RunSpecifiedBenchmarks();
}
