// SPDX-License-Identifier: Apache-2.0
#include "profile/timeline.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace tessera {
namespace {

std::vector<Interval> all_of(const RunTrace& run) {
  std::vector<Interval> all;
  for (const std::vector<Interval>& step : run.steps) all.insert(all.end(), step.begin(), step.end());
  return all;
}

// Own times of a run's steps.
std::vector<double> own_times(const RunTrace& run) {
  std::vector<std::pair<Interval, size_t>> launches;
  for (size_t k = 0; k < run.steps.size(); ++k) {
    for (const Interval& i : run.steps[k]) launches.push_back({i, k});
  }
  std::stable_sort(launches.begin(), launches.end(),
                   [](const auto& a, const auto& b) { return a.first.begin_us < b.first.begin_us; });
  std::vector<double> own(run.steps.size());
  double ended = launches.empty() ? 0 : launches[0].first.begin_us;
  for (const auto& [at, step] : launches) {
    own[step] += std::max(0.0, at.end_us - std::max(at.begin_us, ended));
    ended = std::max(ended, at.end_us);
  }
  return own;
}

}  // namespace

SpanTimes coverage_of(const RunTrace& run) { return coverage_of(all_of(run)); }

SpanTimes coverage_of(const std::vector<Interval>& all) {
  SpanTimes c;
  if (all.empty()) return c;
  // Begins and ends in order; between two of them the number of intervals is constant.
  std::vector<std::pair<double, int>> turns;
  for (const Interval& i : all) turns.insert(turns.end(), {{i.begin_us, 1}, {i.end_us, -1}});
  std::sort(turns.begin(), turns.end());
  int open = 0;
  for (size_t i = 0; i + 1 < turns.size(); ++i) {
    open += turns[i].second;
    const double length = turns[i + 1].first - turns[i].first;
    if (open == 0) c.gap_us += length;
    if (open > 1) c.overlap_us += (open - 1) * length;
  }
  c.span_us = turns.back().first - turns.front().first;
  return c;
}

RunTrace trace_of(const StepTimes& times) {
  RunTrace run;
  for (size_t i = 0; i < times.begin_us.size(); ++i) run.steps.push_back({{times.begin_us[i], times.end_us[i]}});
  return run;
}

void take_times(const std::vector<RunTrace>& runs, Profile& profile) {
  std::vector<SpanTimes> coverage;
  std::vector<std::vector<double>> own;
  for (const RunTrace& r : runs) {
    coverage.push_back(coverage_of(r));
    own.push_back(own_times(r));
  }
  const auto median = [&](const auto& of) {
    std::vector<double> v;
    for (size_t r = 0; r < runs.size(); ++r) v.push_back(of(r));
    return median_of(std::move(v));
  };
  profile.gap_us = median([&](size_t r) { return coverage[r].gap_us; });
  profile.overlap_us = 0;
  profile.early_us = median([&](size_t r) { return coverage[r].overlap_us; });
  profile.span_us = median([&](size_t r) { return coverage[r].span_us; });
  size_t middle = 0;
  for (size_t r = 0; r < runs.size(); ++r) {
    const auto away = [&](size_t i) { return std::abs(coverage[i].span_us - *profile.span_us); };
    if (away(r) < away(middle)) middle = r;
  }
  for (size_t k = 0; k < profile.kernels.size(); ++k) {
    KernelTime& kernel = profile.kernels[k];
    kernel.us = median([&](size_t r) { return own[r][k]; });
    kernel.calls = static_cast<int64_t>(runs[middle].steps[k].size());
    for (const Interval& i : runs[middle].steps[k]) {
      kernel.begin_us.push_back(i.begin_us);
      kernel.end_us.push_back(i.end_us);
    }
  }
  constexpr double kApart = 0.05;
  const double sum = profile.kernel_us() + *profile.gap_us;
  if (std::abs(sum - *profile.span_us) <= kApart * *profile.span_us) return;
  profile.notes.push_back(cat("runs differ from each other: steps, each the median of its own times, add up to ",
                              std::llround(sum), " us, and the median run takes ", std::llround(*profile.span_us),
                              " us from its first step to its last; something else may use this machine"));
}

Result<std::vector<RunTrace>> match_activities(std::vector<GraphActivity> activities, const std::vector<int>& launches,
                                               int runs) {
  std::stable_sort(activities.begin(), activities.end(),
                   [](const GraphActivity& a, const GraphActivity& b) { return a.begin_us < b.begin_us; });
  std::map<uint64_t, std::vector<Interval>> by_node;
  for (const GraphActivity& a : activities) by_node[a.node].push_back({a.begin_us, a.end_us});
  const size_t wanted = static_cast<size_t>(std::accumulate(launches.begin(), launches.end(), 0));
  if (by_node.size() != wanted)
    return machine_error(cat("CUPTI told of ", by_node.size(), " nodes of a CUDA graph that has ", wanted));
  for (const auto& [node, times] : by_node) {
    const bool whole = times.size() >= static_cast<size_t>(runs) && times.size() == by_node.begin()->second.size();
    if (!whole)
      return machine_error(cat("CUPTI told of ", times.size(), " launches of a node of the CUDA graph, and of ",
                               by_node.begin()->second.size(), " of another: some were lost"));
  }
  // One order for all runs: where two nodes begin almost together it could differ from run to run.
  std::vector<std::vector<Interval>> nodes;
  for (auto& [node, times] : by_node) nodes.emplace_back(times.end() - runs, times.end());
  std::vector<double> starts;
  for (size_t r = 0; r < static_cast<size_t>(runs); ++r) {
    double start = nodes.empty() ? 0 : nodes[0][r].begin_us;
    for (const std::vector<Interval>& n : nodes) start = std::min(start, n[r].begin_us);
    starts.push_back(start);
  }
  std::vector<std::pair<double, size_t>> order;
  for (size_t n = 0; n < nodes.size(); ++n) {
    std::vector<double> begins;
    for (size_t r = 0; r < starts.size(); ++r) begins.push_back(nodes[n][r].begin_us - starts[r]);
    order.push_back({median_of(std::move(begins)), n});
  }
  std::sort(order.begin(), order.end());
  std::vector<RunTrace> traces(starts.size());
  for (size_t r = 0; r < starts.size(); ++r) {
    size_t next = 0;
    for (const int count : launches) {
      std::vector<Interval>& step = traces[r].steps.emplace_back();
      for (int i = 0; i < count; ++i, ++next) {
        const Interval& at = nodes[order[next].second][r];
        step.push_back({at.begin_us - starts[r], at.end_us - starts[r]});
      }
    }
  }
  return traces;
}

}  // namespace tessera
