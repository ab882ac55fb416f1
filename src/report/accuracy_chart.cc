// SPDX-License-Identifier: Apache-2.0
#include "report/accuracy_chart.h"

#include <algorithm>

#include "base/status.h"
#include "report/figures.h"

namespace tessera {

std::optional<ChartBlock> accuracy_chart(std::vector<PlacedEngine> all, const std::string& time) {
  if (all.size() < 2) return {};
  std::sort(all.begin(), all.end(), [](const PlacedEngine& a, const PlacedEngine& b) { return a.ms < b.ms; });
  const bool any_front = std::any_of(all.begin(), all.end(), [](const PlacedEngine& p) { return p.on_front; });
  ScatterChart chart{.x = {time, false}, .y = {"1 - cosine with the model (lower is better)", true}};
  chart.front = any_front;
  chart.series = any_front ? std::vector<std::string>{"on the Pareto front", "not on it"} : std::vector<std::string>{};
  for (const PlacedEngine& p : all) {
    const double distance = std::max(1 - p.cosine, kLeastDistance);
    const int shape = any_front && !p.on_front ? 4 : 0;
    chart.points.push_back({p.ms, distance, 0.1, shape, p.name,
                            cat(p.name, ": ", decimals(p.ms, 3), " ms, cosine ", decimals(p.cosine, 7))});
  }
  std::string caption = "Accuracy against speed, both better where they are lower.";
  if (any_front) caption += " The Pareto front is of accuracy, latency and size.";
  if (std::any_of(all.begin(), all.end(), [](const PlacedEngine& p) { return 1 - p.cosine < kLeastDistance; }))
    caption += " Distances below 1e-8 are taken for that.";
  return ChartBlock{std::move(caption), std::move(chart)};
}

}  // namespace tessera
