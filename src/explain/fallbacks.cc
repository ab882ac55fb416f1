// SPDX-License-Identifier: Apache-2.0
// Fallbacks: product kernels in a higher precision than was asked for, by the name of the kernel.
#include <algorithm>

#include "explain/parts.h"

namespace tessera {

std::vector<Fallback> fallbacks_of(const Case& c) {
  std::vector<Fallback> all;
  // CPUs have no arithmetic below bf16 but int8: codes are decoded, and that is what the engine promises.
  if (runs_on_cpu(c.b) || c.in_b.kernels <= 0) return all;
  for (const KernelTime& k : c.b.kernels) {
    const std::string precision = multiplied_in(k.precision), own = multiplied_in(k.asked);
    if (own.empty() && !k.asked.empty()) continue;  // "imported": as the model states it
    const std::string& asked = own.empty() ? c.asked.precision : own;
    if (!is_product(k.kernel_class) || k.us <= 0 || !is_lower(asked, precision)) continue;
    auto at = std::find_if(all.begin(), all.end(), [&](const Fallback& f) {
      return f.kernel == k.name && f.precision == precision && f.asked == asked;
    });
    if (at == all.end()) {
      at = all.insert(at, {.kernel = k.name,
                           .layer = k.layer,
                           .kind = k.kernel_class == KernelClass::kGemm ? "GEMM" : "convolution",
                           .asked = asked,
                           .precision = precision});
    }
    at->calls += k.calls;
    at->ms += k.us / 1000;
    at->share += k.us / c.in_b.kernels;
  }
  std::stable_sort(all.begin(), all.end(), [](const Fallback& x, const Fallback& y) { return x.ms > y.ms; });
  return all;
}

}  // namespace tessera
