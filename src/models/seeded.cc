// SPDX-License-Identifier: Apache-2.0
#include "models/seeded.h"

#include "base/parallel.h"
#include "base/random.h"

namespace tessera {
namespace {

uint64_t hash_name(std::string_view name) {  // FNV-1a
  uint64_t h = 0xcbf29ce484222325;
  for (char c : name) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return h;
}

// Four uniform whole numbers in [0, 65535]: their sum has mean 2 * 65535 and variance 4 * (65536^2 - 1) / 12.
constexpr int kMean = 2 * 65535;
constexpr float kInverseDeviation = 1.0f / 37837.227f;

}  // namespace

void fill_seeded(uint64_t seed, std::string_view stream, int64_t first, float mean, float deviation,
                 std::span<float> out) {
  const uint64_t start = mix64(seed ^ hash_name(stream)) + static_cast<uint64_t>(first) * kMixStep;
  parallel_for(static_cast<int64_t>(out.size()), int64_t{1} << 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t r = mix64(start + static_cast<uint64_t>(i) * kMixStep);
      const int sum = static_cast<int>(r & 0xffff) + static_cast<int>(r >> 16 & 0xffff) +
                      static_cast<int>(r >> 32 & 0xffff) + static_cast<int>(r >> 48);
      out[static_cast<size_t>(i)] = mean + static_cast<float>(sum - kMean) * (kInverseDeviation * deviation);
    }
  });
}

std::vector<float> seeded_normals(uint64_t seed, std::string_view stream, int64_t count, float mean, float deviation) {
  std::vector<float> out(static_cast<size_t>(count));
  fill_seeded(seed, stream, 0, mean, deviation, out);
  return out;
}

}  // namespace tessera
