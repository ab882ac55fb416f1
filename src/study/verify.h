// SPDX-License-Identifier: Apache-2.0
// Compares an engine's plan with its golden plan (f64 on the same codes): golden values at load, and any seeded inputs layer by layer.
// The bound is derived, not chosen: the golden plan runs a second time with noise of the size that each variant's arithmetic implies on every result, and
// an engine may differ from the golden values by a small multiple of that response.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "plan/engine.h"
#include "study/samples.h"

namespace tessera {

struct Closeness {
  double cosine_mean = 1, cosine_worst = 1;  // per sample
  double relative_l2 = 0;                    // over all samples
  bool finite = true;
};
// `got` and `want` hold `samples` rows each.
Closeness compare(const std::vector<double>& got, const std::vector<double>& want, int64_t samples);

struct OutputReport {
  std::string name;
  double cosine_mean = 1, cosine_worst = 1, relative_l2 = 0, bound = 0;
  bool ok = false;
};
struct LayerReport {
  std::string layer, op;
  double relative_l2 = 0, cosine = 1, bound = 0;
};
struct VerifyReport {
  std::vector<OutputReport> outputs;
  std::vector<LayerReport> layers;  // host plans only, with VerifyOptions::layers
  std::string sentence;             // what is wrong, or that nothing is
  std::string machine;
  bool ok = false;
};

struct VerifyOptions {
  bool layers = false;
  uint64_t seed = 1;
  size_t plan = 0;  // which of the engine's plans
};

// Fresh seeded inputs through the plan and through the golden plan.
Result<VerifyReport> verify_engine(const Engine& engine, const VerifyOptions& options = {});
// The golden values stored in the engine, reproduced by one plan on this machine.
Result<VerifyReport> check_golden(const Engine& engine, const Plan& plan);
// Golden inputs, outputs and bounds for an engine whose plans are made (the last one is the golden plan).
Result<Golden> make_golden(const Engine& engine, uint64_t seed);

}  // namespace tessera
