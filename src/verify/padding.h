// SPDX-License-Identifier: Apache-2.0
// What an attention mask hides must not matter. Where a model has an input that acts as one (precision/masks.h), each
// plan runs twice on golden inputs with padding: the last quarter of the tokens of one sample is hidden, the first
// quarter of the next one's; the second time other numbers stand at the hidden tokens of the other inputs. Rows of
// outputs in which the model as written gives the same bits both times must stay the same in the plan.
// Bound: a relative L2 of 2^-22 over those rows in the golden plan, whose arithmetic is f64; in a plan that users run
// the golden bound of the output, its own noise.
// Which way round a mask is (1 or 0 hides; 0 and the lowest float, where it is added) is found by asking the model as
// written.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "ir/graph.h"
#include "plan/engine.h"
#include "verify/golden.h"

namespace tessera {

struct PaddingReport {
  std::string mask;     // the input that hides tokens; empty: none does, or nothing else depends on the tokens
  double farthest = 0;  // how far the rows of an output were apart, relative L2
};

// kVerifyFailed, with a sentence that names the input and the output, where what is hidden shows. `run_plans`: the
// target is here, so all plans that are held against the golden one run too. Contract: the engine holds its golden
// values, `model` is the one that they were made of, with this golden plan's batch.
Result<PaddingReport> check_padding(const Engine& engine, const Plan& golden, const ModelGraphs& model, uint64_t seed,
                                    bool run_plans);

}  // namespace tessera
