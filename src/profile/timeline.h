// SPDX-License-Identifier: Apache-2.0
// Times of runs, step by step, made into a profile's. A launch's own time begins when those before it have ended: one
// that was launched early waits until then. So own times and gaps add up to the span of a run.
#pragma once

#include <vector>

#include "base/status.h"
#include "runtime/executor.h"
#include "traces/profile.h"

namespace tessera {

struct Interval {
  double begin_us = 0, end_us = 0;
};
// One run: the launches of each step, in the order of the steps.
struct RunTrace {
  std::vector<std::vector<Interval>> steps;
};

// Of all intervals: from the first begin to the last end, time that none covers, and that is in more than one of them:
// once for each beyond the first, so that lengths + gap - overlap = span.
struct SpanTimes {
  double span_us = 0, gap_us = 0, overlap_us = 0;
};
SpanTimes coverage_of(const std::vector<Interval>& all);
SpanTimes coverage_of(const RunTrace& run);

RunTrace trace_of(const StepTimes& times);

// Fills own times of `profile.kernels`, one per step, and gap_us, early_us and span_us: medians over the runs, each of
// its own, so that what else the machine does in some runs is in none of them. overlap_us is 0: own times do not. When
// each launch ran is that of the run whose span is in the middle. A note says where the medians do not add up to the
// span. Contract: at least one run, each with as many steps as the profile has kernels.
void take_times(const std::vector<RunTrace>& runs, Profile& profile);

// What a device did for a CUDA graph, as CUPTI tells it.
struct GraphActivity {
  uint64_t node = 0;  // of the graph; launches of one node have the same
  double begin_us = 0, end_us = 0;
};
// The last `runs` launches of a graph whose steps add so many nodes each, one after the other. The k-th activity of a
// node belongs to the k-th launch, and nodes come in the order in which they begin. The error says what does not fit.
Result<std::vector<RunTrace>> match_activities(std::vector<GraphActivity> activities, const std::vector<int>& launches,
                                               int runs);

}  // namespace tessera
