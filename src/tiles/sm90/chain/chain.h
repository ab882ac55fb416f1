// SPDX-License-Identifier: Apache-2.0
// Chains as the host sees them: neighbouring kernels of few rows that run as phases of one persistent kernel
// (chain.cuh). A kernel that can be a phase says so in a record (Kernel::phase), which only this folder reads.
#pragma once

#include <memory>
#include <span>

#include "base/buffer.h"
#include "base/status.h"

namespace tessera::sm90 {

// At most so many SMs work on a chain that is made; for tests, and for a GPU that others use too.
inline constexpr const char* kMostBlocksVariable = "TESSERA_CHAIN_BLOCKS";

class Chain {
 public:
  virtual ~Chain() = default;
  // Asynchronous on the stream; allocates nothing. Two chains on one GPU wait for each other. The same chain may not
  // run twice at a time: both would count in one place.
  virtual Status launch(void* stream) = 0;
  // Blocks that work side by side.
  virtual int blocks() const = 0;

  // On the current device. An error where a phase reads something before the phases that write it have ended, where
  // phases do not go together, or where there is no room.
  static Result<std::unique_ptr<Chain>> make(std::span<const Bytes> phases);
};

}  // namespace tessera::sm90
