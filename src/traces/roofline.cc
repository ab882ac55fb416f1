// SPDX-License-Identifier: Apache-2.0
#include "traces/roofline.h"

#include <algorithm>

namespace tessera {

const char* name_of(Bound bound) {
  switch (bound) {
    case Bound::kMemory:
      return "memory";
    case Bound::kProducts:
      return "products";
    case Bound::kCaches:
      return "caches";
    case Bound::kNeither:
      break;
  }
  return "neither";
}

double Achieved::share_of_bound() const {
  const double memory = of_memory.value_or(0), products = of_products.value_or(0);
  if (bound == Bound::kProducts) return products;
  return bound == Bound::kNeither ? std::max(memory, products) : memory;
}

std::optional<double> rate_of(const Ceilings& ceilings, std::string_view precision) {
  for (const auto& [name, rate] : ceilings.flops_per_s) {
    if (name == precision && rate > 0) return rate;
  }
  return {};
}

std::optional<double> ridge_of(const Ceilings& ceilings, std::string_view precision) {
  const std::optional<double> rate = rate_of(ceilings, precision);
  if (!rate || ceilings.bytes_per_s <= 0) return {};
  return *rate / ceilings.bytes_per_s;
}

std::string rate_name(const KernelTime& kernel) {
  return kernel.sparsity.empty() ? kernel.precision : kernel.precision + " " + kernel.sparsity;
}

std::optional<double> rate_of(const Ceilings& ceilings, const KernelTime& kernel) {
  const std::optional<double> own = rate_of(ceilings, rate_name(kernel));
  if (own || kernel.sparsity.empty()) return own;
  const std::optional<double> dense = rate_of(ceilings, kernel.precision);
  return dense ? std::optional(kSparseRatio * *dense) : std::nullopt;
}

std::optional<double> ridge_of(const Ceilings& ceilings, const KernelTime& kernel) {
  const std::optional<double> rate = rate_of(ceilings, kernel);
  if (!rate || ceilings.bytes_per_s <= 0) return {};
  return *rate / ceilings.bytes_per_s;
}

Achieved achieved(const KernelTime& kernel, const Ceilings& ceilings) {
  Achieved a;
  if (kernel.us <= 0) return a;
  const double seconds = kernel.us * 1e-6;
  if (kernel.bytes) a.bytes_per_s = *kernel.bytes / seconds;
  if (kernel.flops && *kernel.flops > 0) a.flops_per_s = *kernel.flops / seconds;
  if (a.bytes_per_s && ceilings.bytes_per_s > 0) a.of_memory = *a.bytes_per_s / ceilings.bytes_per_s;
  const bool multiplies = is_product(kernel.kernel_class) || kernel.kernel_class == KernelClass::kAttention;
  const std::optional<double> rate = multiplies ? rate_of(ceilings, kernel) : std::nullopt;
  if (a.flops_per_s && rate) a.of_products = *a.flops_per_s / *rate;
  if (!a.of_memory && !a.of_products) return a;
  const double memory = a.of_memory.value_or(0), products = a.of_products.value_or(0);
  if (memory < kBoundShare && products < kBoundShare) {
    a.bound = Bound::kNeither;
  } else if (memory > kBeyondMemory) {
    a.bound = products >= kBoundShare ? Bound::kProducts : Bound::kCaches;
  } else {
    a.bound = memory >= products ? Bound::kMemory : Bound::kProducts;
  }
  return a;
}

}  // namespace tessera
