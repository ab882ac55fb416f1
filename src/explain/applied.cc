// SPDX-License-Identifier: Apache-2.0
// Profile C was made after something was applied: each recommendation that C shows is checked on the part of the time
// that it is about, predicted against measured, so that several at once do not blur each other.
#include <algorithm>

#include "explain/numbers.h"
#include "explain/parts.h"

namespace tessera {
namespace {

constexpr double kSeen = 0.25;  // of the predicted gain: less may be noise

double part_of(const Sums& s, Part part) {
  switch (part) {
    case Part::kProducts:
      return s.products;
    case Part::kAttention:
      return s.attention;
    case Part::kRest:
      return s.rest;
    case Part::kOutside:
      break;
  }
  return 0;
}

double higher_than(const Sums& s, const std::string& low) {
  double us = 0;
  for (const PrecisionSum& p : s.precisions) {
    if (is_lower(low, p.precision)) us += p.us;
  }
  return us;
}

std::string attention_of_profile(const Profile& p) {
  for (const KernelTime& k : p.kernels) {
    if (k.kernel_class == KernelClass::kAttention && !k.precision.empty()) return multiplied_in(k.precision);
  }
  return "";
}

// How C shows that it was applied; empty: it does not.
std::string seen_in(const Case& c, const Recommendation& r, const Profile& made, const Sums& sums) {
  if (r.id == "batch") return made.batch > c.b.batch && c.b.batch > 0 ? cat("batch ", made.batch) : "";
  if (r.id == "quantize") {
    const double before = higher_than(c.in_b, c.low), after = higher_than(sums, c.low);
    return after < 0.5 * before ? "GEMMs in a higher precision: " + c.time(before) + " -> " + c.time(after) : "";
  }
  if (r.id == "convolution") {
    const size_t i = static_cast<size_t>(KernelClass::kConvolution);
    const double before = c.in_b.by_class[i], after = sums.by_class[i];
    return before - after >= kSeen * r.gain_ms * 1000 ? "convolutions: " + c.time(before) + " -> " + c.time(after) : "";
  }
  if (r.id == "precision") return sums.in(r.precision) > 0.1 * sums.products ? "GEMMs in " + r.precision : "";
  if (r.id == "attention") {
    const std::string precision = attention_of_profile(made);
    return precision == r.precision ? "attention in " + precision : "";
  }
  if (r.part == Part::kOutside) {
    const std::optional<Outside> b = outside_of(c.b), now = outside_of(made);
    const bool less = b && now && b->outside_ms - now->outside_ms >= kSeen * r.gain_ms;
    return less ? "outside kernels: " + c.time(b->outside_ms * 1000) + " -> " + c.time(now->outside_ms * 1000) : "";
  }
  const double before = part_of(c.in_b, r.part), after = part_of(sums, r.part);
  const std::string part = r.part == Part::kRest ? "work outside GEMMs and attention: " : "GEMMs: ";
  return before - after >= kSeen * r.gain_ms * 1000 ? part + c.time(before) + " -> " + c.time(after) : "";
}

double measured_gain_ms(const Case& c, const Recommendation& r, const Profile& made, const Sums& sums) {
  if (r.part != Part::kOutside) return (part_of(c.in_b, r.part) - part_of(sums, r.part)) / 1000;
  const std::optional<Outside> b = outside_of(c.b), now = outside_of(made);
  if (r.id == "graph") return b && now ? b->outside_ms - now->outside_ms : 0;
  return b && now ? b->latency_ms - now->latency_ms : (c.in_b.kernels - sums.kernels) / 1000;
}

// With a larger batch than B: the share that as many samples take as B has in a batch.
Profile per_batch_of(const Profile& b, Profile made) {
  if (b.batch <= 0 || made.batch <= 0 || b.batch == made.batch) return made;
  const double share = static_cast<double>(b.batch) / static_cast<double>(made.batch);
  for (KernelTime& k : made.kernels) k.us *= share;
  if (made.latency) made.latency->mean_ms *= share, made.latency->median_ms *= share;
  for (std::optional<double>* us :
       {&made.gap_us, &made.overlap_us, &made.early_us, &made.host_to_device_us, &made.device_to_host_us}) {
    if (*us) **us *= share;
  }
  return made;
}

}  // namespace

Applied applied_in(const Case& c, const std::vector<Recommendation>& recommendations, const Profile& profile) {
  Applied applied;
  const Profile made = per_batch_of(c.b, profile);
  const Sums sums = sums_of(made);
  double total = c.in_b.kernels;
  for (const Recommendation& r : recommendations) {
    const std::string seen = seen_in(c, r, made, sums);
    const bool same_part = std::any_of(applied.checks.begin(), applied.checks.end(),
                                       [&](const AppliedCheck& check) { return check.part == r.part; });
    if (seen.empty() || same_part) {
      applied.not_seen.push_back(r.what);
      continue;
    }
    applied.checks.push_back({.id = r.id,
                              .what = r.what,
                              .seen = seen,
                              .part = r.part,
                              .predicted_gain_ms = r.gain_ms,
                              .measured_gain_ms = measured_gain_ms(c, r, made, sums)});
    if (r.part != Part::kOutside) total -= r.gain_ms * 1000;
  }
  if (sums.kernels <= 0 || !c.has_times()) return applied;
  applied.measured = c.in_a.kernels / sums.kernels;
  if (total > 0 && !applied.checks.empty()) applied.predicted = c.in_a.kernels / total;
  return applied;
}

}  // namespace tessera
