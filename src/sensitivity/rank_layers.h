// SPDX-License-Identifier: Apache-2.0
// All of `tessera sensitivity` but its table: a model's layers, ranked on samples.
#pragma once

#include <string>

#include "base/status.h"
#include "calibrate/calibrate.h"
#include "compile/model_source.h"
#include "sensitivity/sensitivity.h"

namespace tessera {

inline constexpr int64_t kRankSamples = 64;  // a trial per layer and more runs over them

struct RankOptions {
  std::string model;                 // an ONNX file
  std::string precision, attention;  // as in `build`
  LoadOptions load;
  CalibrateOptions calibration;  // samples, also for what is measured; not a file of ranges
};
struct Ranking {
  Sensitivity costs;
  Ranges ranges;  // where the precision has static scales
};
Result<Ranking> rank_layers(const RankOptions& options);
// `sensitivity --json`.
std::string ranking_json(const RankOptions& options, const Ranking& ranking);

}  // namespace tessera
