// SPDX-License-Identifier: Apache-2.0
// The promise of a plan in a few words: for the layers that were asked a precision, what is stored and what is
// computed.
#pragma once

#include <string>
#include <vector>

#include "plan/engine.h"

namespace tessera {

struct PromiseGroup {
  std::string asked, stored, computed;
  std::string names;   // of its layers, with their role where it is not that of a block
  int64_t layers = 0;  // of the model: a matmul that joined two of them counts twice
};
// Groups in the order of the plan's first layer of each.
std::vector<PromiseGroup> promise_groups(const Plan& plan);

// How often each op occurs, ops that do not included.
struct OpCount {
  std::string op;
  int64_t count = 0;
};
std::vector<OpCount> count_ops(const Plan& plan);
// "25 norms are folded, each: ..."; empty where none is.
std::string say_folded_norms(const Plan& plan);
// What becomes of the bytes of an image input; empty: it is none.
std::string say_pixels(const Plan& plan, const Port& input);

// Which lengths the engine's arrays may have, a sentence for each size; none where it has one.
std::vector<std::string> say_lengths(const Engine& engine);

// Attentions that were not recognised as such: softmaxes whose result is multiplied with another activation. They and
// the products beside them are ops of their own.
struct SpeltAttentions {
  int64_t softmaxes = 0;
  std::string type;  // that the first one's result is multiplied in: "fp16"
};
SpeltAttentions spelt_attentions(const Plan& plan);

// What a CPU plan's kernels take on this machine: the SIMD set, of those they are compiled for, and the instructions of
// its products.
std::string cpu_instruction_sets(const Plan& plan);

}  // namespace tessera
