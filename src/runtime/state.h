// SPDX-License-Identifier: Apache-2.0
// What one session keeps between runs (a KV cache), beside the weights, which all sessions share. An executor makes its
// own unless it is handed one: the prefill and the decode of a session work on one State. Runs on a State come one
// after the other: a second thread is turned away (Turn; Claim for the runs of a schedule), and runs on different
// streams wait for each other (StreamOrder). That orders the runs of an executor as well, which has one State for as
// long as it lives.
#pragma once

#include <atomic>
#include <memory>
#include <string>
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
  // Per state: what it is called, and what plans see in it.
  struct Part {
    std::string name;
    int64_t bytes;
    QuantType type;  // of the largest port that lies there
    Shape shape;     // of none: empty
    bool operator==(const Part&) const = default;
    std::string what() const;
  };
  static std::vector<Part> parts_of(const Engine& engine);

  std::vector<Part> parts_;
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
  explicit Turn(State& state);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  bool mine() const { return mine_; }

 private:
  State& state_;
  const bool within_;  // a claim of this thread's
  const bool mine_;
};

// The right to use a State for several calls, one after the other: a schedule. Turns that this thread takes meanwhile
// are part of it; those of other threads are refused from the first call to the last.
class Claim {
 public:
  explicit Claim(State& state);
  ~Claim();
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  bool mine() const { return turn_.mine(); }

 private:
  const Turn turn_;
  const State* const before_;  // what the thread had claimed
};

}  // namespace tessera
