// SPDX-License-Identifier: Apache-2.0
// Case: two profiles under comparison with the sums that every part of the explanation is made from. One profile alone
// is compared with itself. All times here are in microseconds.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "explain/explain.h"
#include "explain/rates.h"

namespace tessera {

inline constexpr const char* kUnknownPrecision = "unknown";
inline constexpr size_t kClassCount = static_cast<size_t>(KernelClass::kUnknown) + 1;

// Products of one precision. flops, bytes: only where every kernel of it has them.
struct PrecisionSum {
  std::string precision;  // multiplied_in(), or kUnknownPrecision
  double us = 0;
  std::optional<double> flops = 0, bytes = 0;
  double memory_us = 0;  // part of `us` in kernels that memory bounds, by the profile's ceilings: bytes count there
  double sparse_us = 0;  // part of `us` in kernels of 2:4 weights that memory does not bound
};

struct Sums {
  double kernels = 0, products = 0, attention = 0, rest = 0;
  double conversions = 0;  // part of the rest
  std::array<double, kClassCount> by_class{};
  std::vector<PrecisionSum> precisions;  // of the products, highest first, unknown last
  // The products that coverage is about: GEMMs, or convolutions where there are no others. Convolutions run at other
  // rates than GEMMs, so that neither time stands for the other's flops.
  double covered = 0;
  std::vector<PrecisionSum> covered_precisions;
  double in(std::string_view precision) const;
  std::string main_precision() const;    // that has most time; empty: not known
  std::string lowest_precision() const;  // that has at least 10 % of the products' time; empty: not known
};
Sums sums_of(const Profile& profile);

// The precision that B was asked to have.
struct AskedOfB {
  std::string precision;  // empty: B has no products of a known precision
  std::string how;        // "--asked", "the profile", "lowest precision of at least 10 % of the products' time"
};

struct Case {
  Case(const Profile& a, const Profile& b, const ExplainOptions& options, bool compared);
  const Profile &a, &b;
  bool compared;
  Sums in_a, in_b;
  AskedOfB asked;
  // Lowest precision that products of B have for at least 10 % of their time, or were asked to have where the chip is
  // not known to lack it; empty: not known.
  std::string low;
  Rates rates;
  Coverage a_coverage, b_coverage;
  bool same_work = true;    // false: batch sizes are told and differ, so that times of A say nothing about B's work
  std::string other_model;  // why A and B are no runs of one model (parts.h); empty: they are. Then no same_work either
  // B runs, or was asked to run, in a lower precision than any of A's.
  bool lowered() const { return compared && is_lower(low, in_a.lowest_precision()); }
  // A time, in the unit that suits the larger profile: "6.36 ms", "47.5 us".
  std::string time(double us) const;
  bool has_times() const { return in_a.kernels > 0 && in_b.kernels > 0; }
  // "GEMMs", or "GEMMs and convolutions" where there are any.
  std::string products_word() const;
  std::string products_and_attention() const;
  // Of those that coverage is about.
  std::string covered_word() const;
};

// Products at the rate that the chip has for `to`: each precision's time divided by its ratio, at least 1; where memory
// bounds them, by the ratio of bytes. None where the ratio of more than 5 % of the time is not known, or all are 1.
struct AtChipRate {
  double us = 0;
  double memory_share = 0;  // of the products' time: what memory bounds
  std::string arithmetic;   // "6.36 ms / 4"; "0.60 ms / 2 (bytes)"
  double ratio = 1;         // of the precision with most time
  bool nominal = false;
};
std::optional<AtChipRate> at_chip_rate(const Case& c, const std::vector<PrecisionSum>& products, std::string_view to);

}  // namespace tessera
