// SPDX-License-Identifier: Apache-2.0
#include "assemble/choose_types.h"

#include <algorithm>

#include "base/log.h"

namespace tessera {
namespace {

constexpr int64_t kSamples = 64;  // each layer and candidate is a run over them

// Whether the target runs every layer of the graph as asked.
Result<bool> runs_all(const Graph& graph, const LowerOptions& lowering) {
  std::vector<EngineConstant> constants;
  ConstantPool pool(constants);
  const auto plan = lower(graph, lowering, pool);
  const Code code = plan.status().code();
  if (!plan.ok() && code != Code::kRefused && code != Code::kUsage) return plan.status();
  return code != Code::kRefused;  // what --allow leaves is told by who chooses
}

// Candidates in which the target runs all layers that they would be chosen for. The last one is the carrier.
Result<std::vector<std::string>> candidates_that_run(const Graph& graph, const BuildOptions& options,
                                                     LowerOptions lowering, const Ranges& ranges,
                                                     const std::vector<std::string>& candidates) {
  std::vector<std::string> kept;
  std::string first;
  lowering.types.ranges = &ranges;
  lowering.types.attention.clear();
  lowering.plan.target = options.target;
  for (size_t c = 0; c + 1 < candidates.size(); ++c) {
    lowering.types.precision = candidates[c];
    TS_ASSIGN(const bool runs, runs_all(graph, lowering));
    if (runs) {
      kept.push_back(candidates[c]);
    } else if (first.empty()) {
      first = candidates[c];
    }
  }
  kept.push_back(candidates.back());
  if (kept.size() == 1) {
    return refused(cat("--precision auto: ", info(options.target).name,
                       " runs the layers of this model in none of what auto chooses from but ", kept[0],
                       "; ask for it by name"));
  }
  if (!first.empty() && !options.quiet)
    note(cat("auto leaves ", first, " out: ", info(options.target).name, " does not run all layers in it"));
  return kept;
}

}  // namespace

Result<AutoChoice> choose_types(const Graph& graph, const BuildOptions& options, CalibrateOptions how,
                                const LowerOptions& lowering) {
  TS_ASSIGN(const Ranges ranges, calibrate(graph, how));
  how.samples = std::min(how.samples, kSamples);
  TS_ASSIGN(CalibrationSamples data, samples_of(graph, how));
  TS_ASSIGN(const Trials trials, Trials::make(graph, std::move(data.samples)));
  AutoOptions choosing{.types = lowering.types, .quiet = options.quiet};
  choosing.min_cosine = options.min_cosine.value_or(choosing.min_cosine);
  choosing.types.ranges = &ranges;
  choosing.types.sparse = false;
  TS_ASSIGN(choosing.candidates, candidates_that_run(graph, options, lowering, ranges, choosing.candidates));
  return choose_by_cosine(trials, choosing);
}

}  // namespace tessera
