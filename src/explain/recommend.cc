// SPDX-License-Identifier: Apache-2.0
// Recommendations that change kernel time, and their order. Each is predicted alone, from B as it is:
//   speedup = kernel time of A / (kernel time of B - what it saves)
#include "explain/recommend.h"

#include <algorithm>
#include <set>

#include "explain/numbers.h"

namespace tessera {
namespace {

constexpr double kLeastGain = 0.01;  // of the time it is about: less than runs differ by

constexpr Recommender kRecommenders[] = {recommend_fusing,    recommend_quantizing, recommend_convolutions,
                                         recommend_attention, recommend_precision,  recommend_sparsity,
                                         recommend_tuning,    recommend_batch,      recommend_graph};

}  // namespace

void predict_kernel_time(const Case& c, Recommendation& r, double part_us, double after_us) {
  const double total = c.in_b.kernels - part_us + after_us;
  r.basis = "kernel time";
  r.part_ms = part_us / 1000, r.part_after_ms = after_us / 1000;
  r.gain_ms = (part_us - after_us) / 1000;
  r.predicted = total > 0 ? c.in_a.kernels / total : 0;
  r.arithmetic +=
      " = " + c.time(total) + "; " + c.time(c.in_a.kernels) + " / " + c.time(total) + " = " + times(r.predicted);
}

std::vector<Recommendation> recommend(const Case& c) {
  std::vector<Recommendation> all;
  if (!c.has_times() || !c.same_work) return all;
  for (const Recommender make : kRecommenders) {
    std::optional<Recommendation> r = make(c);
    if (!r || r->predicted <= 0 || r->gain_ms * 1000 < kLeastGain * c.in_b.kernels) continue;
    r->flag = flag_of(c, *r);
    all.push_back(std::move(*r));
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& x, const auto& y) { return x.gain_ms > y.gain_ms; });
  return all;
}

std::vector<Combination> combine(const Case& c, const std::vector<Recommendation>& recommendations) {
  std::vector<Combination> all;
  Combination so_far;
  std::set<Part> parts;
  std::string arithmetic = c.time(c.in_b.kernels);
  double total = c.in_b.kernels;
  for (size_t i = 0; i < recommendations.size(); ++i) {
    const Recommendation& r = recommendations[i];
    if (r.basis != "kernel time" || !parts.insert(r.part).second) continue;
    total -= r.gain_ms * 1000;
    arithmetic += " - " + c.time(r.gain_ms * 1000);
    so_far.of.push_back(i);
    if (so_far.of.size() < 2 || total <= 0) continue;
    so_far.predicted = c.in_a.kernels / total;
    so_far.arithmetic = arithmetic + " = " + c.time(total);
    all.push_back(so_far);
  }
  return all;
}

}  // namespace tessera
