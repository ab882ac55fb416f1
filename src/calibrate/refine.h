// SPDX-License-Identifier: Apache-2.0
// Refines the weights of a model with calibration data: runs it piece by piece (moments.h), and changes each layer as
// soon as its input is known (precision/refine.h). In sequence: a layer's input comes from the layers before it as they
// were changed, so that it makes up for them as far as it can; or all inputs come from the original model.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "inputs/samples.h"
#include "precision/refine.h"

namespace tessera {

struct RefineOptions {
  Refinements what;
  WeightTypeOf type_of;   // see precision/refine.h
  int64_t samples = 128;  // at most
  bool quiet = true;
};

struct Refined {
  std::vector<std::string> notes;    // a sentence per layer, and what was left out
  std::vector<std::string> layers;   // nodes that were changed, or marked (precision/refine.h)
  std::vector<std::string> changed;  // those among them whose weights are no longer the model's
  std::vector<std::string> divided;  // those among them whose results are divided (precision/migrate.h)
};

// `graph` is canonical and in f32; its batch is the number of samples per run. `samples` may be null where the options
// need no moments. Ranges of activations are to be calibrated on the graph afterwards.
Result<Refined> refine_model(Graph& graph, const Samples* samples, const RefineOptions& options);

// The same changes in a graph of the same model with another batch.
Status carry_over(const Graph& from, const Refined& refined, Graph& to);

}  // namespace tessera
