// SPDX-License-Identifier: Apache-2.0
// What the executors share: turning a plan's tensors into views over real memory, and its steps into bound kernels.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "plan/engine.h"

namespace tessera {

// Where a plan's storage lies on the machine that runs it.
struct Memory {
  uint8_t* arena = nullptr;
  std::span<const uint8_t* const> constants;  // per engine constant
  std::span<uint8_t* const> states;           // per engine state
  std::span<const void* const> inputs;        // per port; host plans
  std::span<void* const> outputs;
  // CUDA plans: device array of pointers, one per port; views get a slot instead of data.
  void* const* input_slots = nullptr;
  void* const* output_slots = nullptr;
};

struct BoundStep {
  const PlanStep* step = nullptr;
  Problem problem;  // owned: views point at its operands
  std::unique_ptr<Kernel> kernel;
  std::vector<TensorView> in, out;
};

// Finds and binds the variant of every step.
Result<std::vector<BoundStep>> bind_steps(const Plan& plan);
// Fills the views of every step for this memory.
void place_views(const Plan& plan, const Memory& memory, std::vector<BoundStep>& steps);
int64_t port_bytes(const Plan& plan, const Port& port);
// As many buffers as ports, and none missing but those of states.
Status check_buffers(const Plan& plan, std::span<const void* const> inputs, std::span<void* const> outputs);

// Numbers of one input that say how much of a cache is valid: operand `at` of write or `lengths` of attention has them
// (docs/design/0028), directly or by way of copies. A kernel cannot report an error, so it clamps them, and new rows
// are then written over the last ones. Where they are in host memory they are checked first: 0 <= number <= longest.
struct CacheLength {
  size_t input = 0;  // of the plan's list
  int64_t offset_bytes = 0, count = 0, stride = 1;
  Element element = Element::i32;
  int64_t longest = 0;
};

// Contract: check_engine found nothing, or every step was bound.
std::vector<CacheLength> cache_lengths(const Plan& plan);
// The largest number that input may have; -1: it is no length of a cache.
int64_t longest_cache(const std::vector<CacheLength>& lengths, size_t input);
// `inputs`: host memory, as check_buffers accepts it.
Status check_cache_lengths(const Plan& plan, const std::vector<CacheLength>& lengths,
                           std::span<const void* const> inputs);

}  // namespace tessera
