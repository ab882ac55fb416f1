// SPDX-License-Identifier: Apache-2.0
// Fallbacks: product kernels in a higher precision than was asked for, by the name of the kernel.
#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>

#include "explain/numbers.h"
#include "explain/parts.h"

namespace tessera {
namespace {

std::vector<Fallback> fallbacks_of(const Case& c) {
  std::vector<Fallback> all;
  std::map<std::tuple<std::string_view, std::string, std::string>, size_t> places;  // kernel, precision, asked
  for (const KernelTime& k : c.b.kernels) {
    const std::string precision = multiplied_in(k.precision), own = multiplied_in(k.asked);
    if (own.empty() && !k.asked.empty()) continue;  // "imported": as the model states it
    const std::string& asked = own.empty() ? c.asked.precision : own;
    if (!is_product(k.kernel_class) || k.us <= 0 || !is_lower(asked, precision)) continue;
    const auto [at, fresh] = places.emplace(std::tuple(std::string_view(k.name), precision, asked), all.size());
    if (fresh) {
      all.push_back({.kernel = k.name,
                     .layer = k.layer,
                     .kind = k.kernel_class == KernelClass::kGemm ? "GEMM" : "convolution",
                     .asked = asked,
                     .precision = precision});
    }
    Fallback& f = all[at->second];
    f.calls += k.calls;
    f.ms += k.us / 1000;
    f.share += k.us / c.in_b.kernels;
  }
  std::stable_sort(all.begin(), all.end(), [](const Fallback& x, const Fallback& y) { return x.ms > y.ms; });
  return all;
}

// Products without a precision, of those that are held against one.
double unknown_share(const Case& c) {
  double us = 0;
  for (const KernelTime& k : c.b.kernels) {
    const bool as_stated = !k.asked.empty() && multiplied_in(k.asked).empty();
    if (is_product(k.kernel_class) && multiplied_in(k.precision).empty() && !as_stated) us += k.us;
  }
  return us / c.in_b.products;
}

}  // namespace

void find_fallbacks(const Case& c, Explanation& e) {
  // CPUs have no arithmetic below bf16 but int8: codes are decoded, and that is what the engine promises.
  if (runs_on_cpu(c.b)) {
    e.fallbacks_not_sought =
        "a CPU stores codes and multiplies in bf16, int8 or fp32: asked precisions are not held against it";
    return;
  }
  if (c.in_b.products <= 0) return;
  e.fallbacks = fallbacks_of(c);
  e.fallbacks_unknown_share = unknown_share(c);
}

std::string fallback_words(const Explanation& e) {
  if (!e.fallbacks_not_sought.empty()) return e.fallbacks_not_sought;
  if (!e.fallbacks_unknown_share) return "there is no GEMM";
  const double unknown = *e.fallbacks_unknown_share;
  // What was only taken for asked is no promise that was kept.
  const std::string than = e.asked_how.starts_with("not told") ? e.asked : "it was asked to";
  if (unknown <= 0) return e.fallbacks.empty() ? "no GEMM runs in a higher precision than " + than : "";
  const std::string words = "the precision of " + percent(unknown) + " of GEMM time is not known";
  if (!e.fallbacks.empty()) return words + ", so there may be more";
  return words + (unknown < 1 ? "; no other GEMM runs in a higher precision than " + than : "");
}

}  // namespace tessera
