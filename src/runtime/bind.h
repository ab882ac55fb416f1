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

}  // namespace tessera
