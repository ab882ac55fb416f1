// SPDX-License-Identifier: Apache-2.0
// Compares an engine's plan with its golden plan (f64 on the same codes): golden values at load, any inputs when asked,
// and each layer with its own reference. The bound of outputs is derived, not chosen: the golden plan runs a second
// time with noise of the size that each variant's arithmetic implies on every result, and an engine may differ from the
// golden values by a small multiple of that response.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "plan/engine.h"
#include "study/closeness.h"
#include "study/golden.h"
#include "study/layers.h"
#include "study/samples.h"

namespace tessera {

struct OutputReport {
  std::string name;
  double cosine_mean = 1, cosine_worst = 1, relative_l2 = 0, bound = 0;
  bool ok = false;
};
struct VerifyReport {
  std::string plan;
  std::vector<OutputReport> outputs;
  std::vector<LayerReport> layers;  // per step; empty where they were not compared
  std::string layers_note;          // why they were not, in a sentence
  int first_stray = -1;             // the first step that is not ok
  std::string sentence;             // what is wrong, or that nothing is
  std::string machine;
  bool ok = false;
};

struct VerifyOptions {
  bool layers = true;
  uint64_t seed = 1;
  std::string inputs;   // npz with samples; empty: seeded random ones
  int64_t samples = 0;  // how many; 0: as many as the golden plan takes at once
  std::string plan;     // only this one; empty: all that users run
  bool quiet = true;    // no progress
};

// Inputs through each plan and through the golden plan: outputs against the golden plan's, layers each against its own
// reference (layers.h).
Result<std::vector<VerifyReport>> verify_plans(const Engine& engine, const VerifyOptions& options = {});
// The first plan's report.
Result<VerifyReport> verify_engine(const Engine& engine, const VerifyOptions& options = {});
// The golden values stored in the engine, reproduced by one plan on this machine.
Result<VerifyReport> check_golden(const Engine& engine, const Plan& plan);

}  // namespace tessera
