// SPDX-License-Identifier: Apache-2.0
// Recommendations about time that does not grow with the work: outside kernels, gaps between them, weights that are
// read once per run whatever the batch.
#include <algorithm>

#include "explain/numbers.h"
#include "explain/recommend.h"

namespace tessera {
namespace {

constexpr double kRules = 0.2;  // of the time it is about: from here on it is worth a recommendation

// What a run takes in A and B, in the same sense.
struct RunTimes {
  double a_us = 0, b_us = 0;
  bool latency = false;
};
RunTimes run_times(const Case& c) {
  const std::optional<Outside> a = outside_of(c.a), b = outside_of(c.b);
  if (a && b) return {a->latency_ms * 1000, b->latency_ms * 1000, true};
  return {c.in_a.kernels, c.in_b.kernels, false};
}

void predict_run(const Case& c, Recommendation& r, const RunTimes& run, double saved_us) {
  const double after = run.b_us - saved_us;
  r.gain_ms = saved_us / 1000;
  r.predicted = after > 0 ? run.a_us / after : 0;
  r.arithmetic += " = " + c.time(after) + "; " + c.time(run.a_us) + " / " + c.time(after) + " = " + times(r.predicted);
}

// Time to read all weights once: it is the same for every batch size.
double weights_us(const Case& c) {
  if (!c.b.weight_bytes || !c.rates.bytes_per_s()) return 0;
  return std::min(static_cast<double>(*c.b.weight_bytes) / *c.rates.bytes_per_s() * 1e6, c.in_b.products);
}

}  // namespace

std::optional<Recommendation> recommend_batch(const Case& c) {
  const RunTimes run = run_times(c);
  const std::optional<Outside> outside = run.latency ? outside_of(c.b) : std::nullopt;
  // Copies of inputs and outputs grow with the batch. Threads of a CPU that wait for each other are no fixed cost.
  const double idle =
      outside && !runs_on_cpu(c.b) ? std::max(0.0, outside->outside_ms - outside->copies_ms.value_or(0)) * 1000 : 0;
  const double weights = weights_us(c), still = idle + weights;
  if (run.b_us <= 0 || still < kRules * run.b_us) return {};
  Recommendation r{.id = "batch", .what = "a larger batch, twice the present one", .part = Part::kOutside};
  if (c.b.batch > 0) r.what = cat("a larger batch: ", 2 * c.b.batch, " instead of ", c.b.batch);
  r.basis = std::string(run.latency ? "latency" : "kernel time") + " per sample";
  r.why = percent(still / run.b_us) + " of the " + (run.latency ? "latency" : "kernel time") +
          " does not grow with the batch:";
  if (idle > 0) r.why += " " + c.time(idle) + " outside kernels";
  if (weights > 0) r.why += (idle > 0 ? " and " : " ") + c.time(weights) + " to read the weights once";
  r.part_ms = still / 1000, r.part_after_ms = still / 2000;
  r.arithmetic = c.time(run.b_us) + " - " + c.time(still) + " / 2";
  r.confidence = Confidence::kLow;
  r.because = "kernels are taken to grow with the batch; what the time outside them is, is not in the profile";
  predict_run(c, r, run, still / 2);
  return r;
}

std::optional<Recommendation> recommend_graph(const Case& c) {
  const RunTimes run = run_times(c);
  const std::optional<Outside> b = outside_of(c.b);
  // Tessera's GPU engines run as one CUDA graph already.
  if (!run.latency || !b || c.b.source == "tessera") return {};
  const double outside = std::max(0.0, b->outside_ms - b->copies_ms.value_or(0));
  const bool host_bound = b->enqueue_ms && *b->enqueue_ms >= 0.9 * b->latency_ms;
  const double saved = b->gap_ms ? std::min(*b->gap_ms, outside) : host_bound ? outside : 0;
  if (saved < 0.5 * kRules * b->latency_ms) return {};
  Recommendation r{.id = "graph", .what = "launch the kernels as one CUDA graph", .part = Part::kOutside};
  r.basis = "latency";
  r.why = b->gap_ms ? "no kernel runs for " + c.time(saved * 1000) + " of " + c.time(run.b_us)
                    : "launching takes the host " + c.time(*b->enqueue_ms * 1000) + " of " + c.time(run.b_us);
  r.part_ms = saved, r.part_after_ms = 0;
  r.arithmetic = c.time(run.b_us) + " - " + c.time(saved * 1000);
  r.confidence = b->gap_ms ? Confidence::kMedium : Confidence::kLow;
  r.because = "at most: a graph leaves short gaps";
  predict_run(c, r, run, saved * 1000);
  return r;
}

}  // namespace tessera
