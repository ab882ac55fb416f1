// SPDX-License-Identifier: Apache-2.0
#include "sensitivity/rank_layers.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "calibrate/ranges_file.h"
#include "compile/compile.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

Json closeness_json(const Closeness& c) {
  return {{"cosine_mean", c.cosine_mean}, {"cosine_worst", c.cosine_worst}, {"relative_l2", c.relative_l2}};
}

}  // namespace

Result<Ranking> rank_layers(const RankOptions& options) {
  TS_ASSIGN(const bool ranges_given, is_ranges_file(options.calibration.path));
  if (ranges_given)
    return usage_error(cat("--calib ", options.calibration.path,
                           ": holds ranges and no samples to measure on; give an npz or a folder of images"));
  SensitivityOptions how{.types = {}, .quiet = options.calibration.quiet};
  how.types.precision = options.precision;
  how.types.attention = options.attention;
  TS_ASSIGN(const Precision* precision, base_precision(options.precision));
  TS_ASSIGN(const Graph graph, load_model(options.model, options.load.shapes.empty() ? 16 : 1, options.load));
  Ranking ranking;
  if (precision->needs_ranges() || attention_has_codes(options.attention)) {
    TS_ASSIGN(ranking.ranges, calibrate(graph, options.calibration));
    how.types.ranges = &ranking.ranges;
  }
  TS_ASSIGN(CalibrationSamples data, samples_of(graph, options.calibration));
  TS_ASSIGN(const Trials trials, Trials::make(graph, std::move(data.samples)));
  TS_ASSIGN(ranking.costs, measure_sensitivity(trials, how));
  return ranking;
}

std::string ranking_json(const RankOptions& options, const Ranking& ranking) {
  const Sensitivity& s = ranking.costs;
  Json layers = Json::array();
  for (const LayerCost& l : s.layers) {
    Json one = {{"layer", l.layer.name}, {"role", l.layer.role}, {"bytes_saved", std::llround(l.bytes_saved)}};
    if (l.refused.empty()) {
      one["alone"] = closeness_json(l.alone);
      one["all_but_it"] = closeness_json(l.without);
    } else {
      one["refused"] = l.refused;
    }
    layers.push_back(std::move(one));
  }
  const Json all = {{"model", options.model},
                    {"precision", options.precision},
                    {"samples", s.samples},
                    {"calibration", ranking.ranges.how},
                    {"warnings", all_warnings(ranking.ranges)},
                    {"carrier", closeness_json(s.carrier)},
                    {"all", closeness_json(s.all)},
                    {"layers", std::move(layers)}};
  return all.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tessera
