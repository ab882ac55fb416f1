// SPDX-License-Identifier: Apache-2.0
// Runs the f32 model on samples and records the largest magnitude of every value: the static scales of quantized
// activations come from it.
#pragma once

#include "base/status.h"
#include "ir/graph.h"
#include "ir/ranges.h"
#include "study/samples.h"

namespace tessera {

struct CalibrateOptions {
  std::string path;       // npz; empty: seeded random inputs, which is said in Ranges::how
  int64_t samples = 512;  // at most
  bool quiet = true;
};
// `graph` is canonical and in f32; its batch is the number of samples per run.
Result<Ranges> calibrate(const Graph& graph, const CalibrateOptions& options);

}  // namespace tessera
