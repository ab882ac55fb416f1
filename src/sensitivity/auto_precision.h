// SPDX-License-Identifier: Apache-2.0
// A precision per layer from measured sensitivity: every layer begins in the cheapest candidate; the move that wins
// back most error (measured with the layer alone) comes first, until the whole model's measured mean cosine to fp32
// reaches what is asked. How many moves that takes is found by bisection, since more moves are taken to be no worse;
// the answer is measured, not estimated.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "sensitivity/sensitivity.h"
#include "types/precisions/precision.h"

namespace tessera {

struct AutoOptions {
  double min_cosine = 0.999;
  std::vector<std::string> candidates = {"nvfp4", "fp8", "fp16"};  // cheapest first; the last is the carrier
  // `ranges`, `attention`, and `allow`: layers that it names are as it says, none of them is chosen here.
  QuantizeOptions types;
  bool quiet = true;
};
struct AutoLayer {
  TrialLayer layer;
  std::string precision;
  double cost = 0;         // 1 - mean cosine with this layer alone in it
  double bytes_saved = 0;  // against the last candidate
};
struct AutoChoice {
  std::string base;                        // what QuantizeOptions::precision is to be
  std::vector<Allowance> allow;            // and its allowances: layers that differ from it
  std::vector<AutoLayer> layers;           // every layer that was chosen for, in the order of the model
  Closeness reached, cheapest;             // of the choice; of every layer in the first candidate
  double bytes = 0, bytes_of_carrier = 0;  // of the layers' weights
  std::string sentence;
};
// Refused where even the last candidate does not reach the cosine, or nothing is left to choose.
Result<AutoChoice> choose_by_cosine(const Trials& trials, const AutoOptions& options);

}  // namespace tessera
