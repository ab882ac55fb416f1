// SPDX-License-Identifier: Apache-2.0
// Times one variant on one problem, alone: operands with random numbers (zeros would run faster: the chip's clock
// follows its power), as many sets of them as exceed the L2 twice, one CUDA graph of at least 20 calls that take the
// sets in turn; the median over replays of that graph. Tuning and the benches of ops measure with it. Host variants:
// one set, call after call; ceilings (profile/) are measured so.
#pragma once

#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "op/variant.h"

namespace tessera {

// One operand or result in host memory, in plain rows.
struct OperandBytes {
  Bytes data, scale, scale2;
};
struct ProblemBytes {
  std::vector<OperandBytes> in, out;  // absent operands are empty; of results only scales that are static
};
// About normal numbers of variance 1, seeded; scales positive and different from each other; unscaled integers (ids,
// masks) zero. A result's static scale lets numbers of magnitude `result_amax` reach its element's largest. A weight of
// a 2:4 problem is 2:4 sparse.
ProblemBytes random_bytes(const Problem& problem, uint64_t seed, double result_amax = 4);

struct KernelTimes {
  double us = 0, fastest_us = 0;  // of one call: median and least over the replays
  int calls = 0, replays = 0;     // calls in the graph
  int sets = 0;                   // of operands that the calls take in turn
  double bytes = 0;               // of one set, each operand and result once
};
struct TimingOptions {
  int calls = 20;  // at least
  int replays = 9;
  double warm_ms = 5;  // of replays before the first that counts
};

// Bytes that one run of the problem must move: every operand and result once.
double operand_bytes(const Problem& problem);

// Contract: the variant runs here and accepts the problem; problem.config is one of its configs (empty: the first).
// `results`, on a GPU: codes of each result after one run on set 0, where wanted.
Result<KernelTimes> time_kernel(const Variant& variant, const Problem& problem, const ProblemBytes& bytes,
                                const TimingOptions& options = {}, std::vector<Buffer>* results = nullptr);

}  // namespace tessera
