// SPDX-License-Identifier: Apache-2.0
// Compares an engine's plans with the golden run: golden values at load, any inputs when asked, outputs and values
// inside the model, each in a run that starts from the golden value before it (golden_values.h). And each layer with
// what its kernel must give for the operands that it read (layer_judge.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "golden/load_check.h"
#include "inputs/samples.h"
#include "plan/engine.h"
#include "verify/f32_model.h"
#include "verify/golden.h"
#include "verify/quantization.h"

namespace tessera {

// As many samples of a user's file are taken where no number is given: each costs an f64 run or two.
inline constexpr int64_t kSamplesOfFile = 16;

struct VerifyOptions {
  bool layers = true;
  uint64_t seed = 1;
  InputKind kind = InputKind::kNormal;  // of seeded inputs
  std::string inputs;                   // npz with samples; empty: seeded random ones
  // How many; 0: of a file up to kSamplesOfFile, of random ones as many as the golden plan takes at once.
  int64_t samples = 0;
  std::string plan;                           // only this one; empty: all that users run
  std::map<std::string, int64_t> sizes = {};  // only plans of this bucket; empty: of all
  bool quiet = true;                          // no progress
};

// Inputs through each plan and through the golden plan: outputs against the golden plan's, layers each against its own
// reference (layer_judge.h).
Result<std::vector<VerifyReport>> verify_plans(const Engine& engine, const VerifyOptions& options = {});
// The first plan's report.
Result<VerifyReport> verify_engine(const Engine& engine, const VerifyOptions& options = {});
// Quantization error: the golden plan (f64 on the codes) beside the model in f32. With an f32 model, outputs and layers
// on any samples; without one, the outputs that were stored at build beside those of the model as written, and what the
// codes alone show.
struct QuantizationReport {
  std::string what;             // the inputs
  int64_t samples = 0, of = 0;  // as in VerifyReport
  size_t not_the_model = 0;  // so many of the faults, the first, do not depend on inputs: the plan is not the model's
  bool fitting = false;      // scales are made for such inputs: those of the build, or the user's own
  std::vector<OutputQuality> outputs;
  std::vector<LayerQuality> layers;
  std::vector<std::string> faults, notes;  // scales that cannot be meant; those that might be better
};
// `golden`: which golden plan, whose batch the f32 model has; null: the first.
Result<QuantizationReport> measure_quantization(const Engine& engine, const F32Model* f32_model,
                                                const VerifyOptions& options, const Plan* golden = nullptr);
// A sample in other company must give the same: runs put any samples side by side. The model in f32, two samples side
// by side and each alone; for engines without golden values, which check_golden asks the same. `graph` is canonical.
Status check_samples_alone(const Graph& graph, uint64_t seed);

}  // namespace tessera
