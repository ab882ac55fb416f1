// SPDX-License-Identifier: Apache-2.0
// What each layer's low precision costs, measured at the outputs on samples against the fp32 model: each layer
// quantized alone (the others in the carrier), and every layer but that one. Both run as CPU plans, which compute with
// the codes of every precision. Where the two rankings differ, errors of layers add up or cancel.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "inputs/samples.h"
#include "ir/graph.h"
#include "precision/quantize.h"
#include "verify/verify.h"

namespace tessera {

// Runs a canonical f32 graph in precisions of one's choice over samples, and compares outputs with the fp32 model's.
// Several floating-point outputs: the one that is farthest off counts.
class Trials {
 public:
  // `graph` must outlive the trials; its batch is the number of samples per run. Types that it states stay in fp32's
  // run.
  static Result<Trials> make(const Graph& graph, Samples samples);
  Result<Closeness> measure(const QuantizeOptions& types) const { return measure(*graph_, types); }
  // Another graph of the same model: with other weights.
  Result<Closeness> measure(const Graph& graph, const QuantizeOptions& types) const;
  int64_t samples() const { return samples_.count; }
  const Graph& graph() const { return *graph_; }

 private:
  using Outputs64 = std::vector<std::vector<double>>;
  Trials() = default;
  Result<Outputs64> run(const Graph& graph, const QuantizeOptions& types) const;

  const Graph* graph_ = nullptr;
  Samples samples_;
  Outputs64 want_;
};

// A linear layer of the blocks as trials name it.
struct TrialLayer {
  std::string name, role;
  int64_t weights = 0;  // numbers of all linear layers of that name
};
std::vector<TrialLayer> layers_of_blocks(Graph graph);
// Bytes that so many weights take in a precision, scales of blocks included.
double weight_bytes(const Precision& precision, int64_t weights);

struct LayerCost {
  TrialLayer layer;
  Closeness alone, without;
  std::string refused;     // why there are no numbers
  double bytes_saved = 0;  // against the carrier
};
struct Sensitivity {
  Closeness carrier, all;         // no layer quantized; every one
  std::vector<LayerCost> layers;  // the costliest alone first
  int64_t samples = 0;
};
struct SensitivityOptions {
  QuantizeOptions types;  // `precision` and `ranges` of the trials, `attention` where it is to be ranked too
  bool quiet = true;
};
Result<Sensitivity> measure_sensitivity(const Trials& trials, const SensitivityOptions& options);

}  // namespace tessera
