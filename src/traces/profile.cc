// SPDX-License-Identifier: Apache-2.0
#include "traces/profile.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tessera {

namespace {

constexpr const char* kClassNames[] = {"gemm",       "convolution", "attention", "norm",  "softmax", "elementwise",
                                       "conversion", "reduction",   "copy",      "other", "unknown"};

}  // namespace

const char* name_of(KernelClass c) { return kClassNames[static_cast<size_t>(c)]; }

std::optional<KernelClass> class_of_name(std::string_view name) {
  for (size_t i = 0; i < std::size(kClassNames); ++i) {
    if (name == kClassNames[i]) return static_cast<KernelClass>(i);
  }
  return {};
}

bool is_product(KernelClass c) { return c == KernelClass::kGemm || c == KernelClass::kConvolution; }

double percentile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const size_t low = static_cast<size_t>(at), high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - static_cast<double>(low));
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return percentile(values, 0.5);
}

Latency latency_of(std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  return {.mean_ms = std::accumulate(ms.begin(), ms.end(), 0.0) / static_cast<double>(ms.size()),
          .median_ms = percentile(ms, 0.5),
          .p90_ms = percentile(ms, 0.9),
          .p95_ms = percentile(ms, 0.95),
          .p99_ms = percentile(ms, 0.99),
          .least_ms = ms.front(),
          .most_ms = ms.back(),
          .runs = static_cast<int64_t>(ms.size())};
}

double Profile::kernel_us() const {
  return std::accumulate(kernels.begin(), kernels.end(), 0.0, [](double s, const KernelTime& k) { return s + k.us; });
}

std::optional<double> Profile::per_second() const {
  if (batch <= 0 || !latency || latency->median_ms <= 0) return {};
  return static_cast<double>(batch) / latency->median_ms * 1e3;
}

}  // namespace tessera
