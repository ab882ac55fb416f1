// SPDX-License-Identifier: Apache-2.0
// Accuracy against speed: 1 - cosine with the model over the time of a run, both better where they are lower.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/document.h"

namespace tessera {

// Below this f32 outputs tell nothing apart, and a log axis needs an end.
inline constexpr double kLeastDistance = 1e-8;

struct PlacedEngine {
  std::string name;
  double ms, cosine;
  bool on_front;
};
// Nothing where there are fewer than two. `time`: what `ms` is.
std::optional<ChartBlock> accuracy_chart(std::vector<PlacedEngine> engines, const std::string& time);

}  // namespace tessera
