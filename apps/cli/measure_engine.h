// SPDX-License-Identifier: Apache-2.0
// An engine as reports and comparisons need it: profiled on this machine, held against its golden values and its model,
// with the promise of each layer.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "plan/engine.h"
#include "profile/profile_engine.h"
#include "report/report.h"

namespace tessera {

struct MeasureOptions {
  int runs = 20;
  bool verify = true;
  bool ceilings = true;  // measured once on a machine, which takes a while
};

// Words of an engine's making: "fp8", "fp8, fp8 attention", "fp8, 2:4".
struct EngineWords {
  std::string precision, attention, sparsity;
  std::string all() const;
};
EngineWords words_of(const Engine& engine, const PlansOfAnswer& plans);

// One entry for a plan or a schedule, named by its precision. The error names the file.
Result<ReportEntry> measure_engine(const std::string& path, const Engine& engine, const PlansOfAnswer& plans,
                                   const MeasureOptions& options);

// How the entry's engine is built again, as far as it knows: the model's file is the reader's.
std::string build_command_of(const std::string& path, const Engine& engine);

}  // namespace tessera
