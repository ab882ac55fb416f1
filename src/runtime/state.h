// SPDX-License-Identifier: Apache-2.0
// What one session keeps between runs (a KV cache), beside the weights, which all sessions share. An executor makes its
// own unless it is handed one: the prefill and the decode of a session work on one State. Runs on a State come one
// after the other: a second thread is turned away (Turn), and runs on different streams wait for each other
// (StreamOrder). That orders the runs of an executor as well, which has one State for as long as it lives.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "archs/arch.h"
#include "archs/cuda/device_memory.h"
#include "plan/engine.h"
#include "runtime/stream_order.h"

namespace tessera {

class State {
 public:
  static Result<std::shared_ptr<State>> make(const Engine& engine, DeviceKind kind, int device = 0);  // all zeros
  // Whether plans of the engine can use it there; if not, why.
  Status check(const Engine& engine, DeviceKind kind, int device) const;
  const std::vector<uint8_t*>& blocks() const { return blocks_; }  // per state of the engine
  // All zeros again: a new session. It is a call like a run: refused while one is going on.
  Status clear();
  StreamOrder& order() { return order_; }  // CUDA. Contract: the caller has the Turn

 private:
  friend class Turn;
  Status fill_with_zeros();

  DeviceKind kind_ = DeviceKind::kHost;
  int device_ = 0;
  std::vector<int64_t> bytes_;  // per state
  std::vector<uint8_t*> blocks_;
  std::vector<Buffer> host_;
  DeviceBuffer memory_;
  int64_t memory_bytes_ = 0;
  StreamOrder order_;
  std::atomic<bool> taken_{false};
};

// The right to use a State for the length of one call.
class Turn {
 public:
  explicit Turn(State& state) : state_(state), mine_(!state.taken_.exchange(true, std::memory_order_acquire)) {}
  ~Turn() {
    if (mine_) state_.taken_.store(false, std::memory_order_release);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  bool mine() const { return mine_; }

 private:
  State& state_;
  const bool mine_;
};

}  // namespace tessera
