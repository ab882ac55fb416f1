// SPDX-License-Identifier: Apache-2.0
// What a kernel reaches of what its machine can do: bandwidth and rate against the ceilings, and which one bounds it.
//   flop/byte below the ridge (rate / bandwidth): memory is the ceiling that it would meet first
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "traces/profile.h"

namespace tessera {

// kCaches: its bytes came faster than memory could bring them, so caches served it. kNeither: less than kBoundShare of
// both ceilings: launch, latency, or work that divides badly.
enum class Bound : uint8_t { kMemory, kProducts, kCaches, kNeither };
const char* name_of(Bound bound);  // "memory", "products", "caches", "neither"
inline constexpr double kBoundShare = 0.3;
inline constexpr double kBeyondMemory = 1.05;  // of the bandwidth: less is the noise of two measurements

struct Achieved {
  std::optional<double> bytes_per_s = {}, flops_per_s = {};
  std::optional<double> of_memory = {}, of_products = {};  // shares of the ceilings; above 1 where caches serve it
  std::optional<Bound> bound = {};                         // nothing: neither share is known
  // Of the ceiling that bounds it; of the nearer one where neither does. Contract: there is a bound.
  double share_of_bound() const;
};
// Products (GEMM, convolution, attention) are held against the rate of their precision, other kernels against memory
// alone: what they compute does not run on the units that the ceilings are of.
Achieved achieved(const KernelTime& kernel, const Ceilings& ceilings);

// What chips with sparse tensor cores promise of 2:4 weights against dense ones.
inline constexpr double kSparseRatio = 2;
// "fp8", "fp8 2:4": the name under which ceilings have the rate of its products.
std::string rate_name(const KernelTime& kernel);
// Of a kernel's products. Sparse ones without a rate of their own: kSparseRatio times the dense one.
std::optional<double> rate_of(const Ceilings& ceilings, const KernelTime& kernel);
std::optional<double> ridge_of(const Ceilings& ceilings, const KernelTime& kernel);

// Operations per second of products in this precision; nothing: the ceilings do not have it.
std::optional<double> rate_of(const Ceilings& ceilings, std::string_view precision);
// Flop per byte from which on products, not memory, are the ceiling.
std::optional<double> ridge_of(const Ceilings& ceilings, std::string_view precision);

}  // namespace tessera
