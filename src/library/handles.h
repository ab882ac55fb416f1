// SPDX-License-Identifier: Apache-2.0
// What is behind the handles of the C ABI. Each handle holds a share of what it needs, so that they may be freed in any
// order.
#pragma once

#include <tessera/tessera.h>

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/fork_locks.h"
#include "base/status.h"
#include "golden/load_check.h"
#include "plan/engine.h"
#include "runtime/state.h"

namespace tessera {

class OpenEngine {
 public:
  explicit OpenEngine(Engine engine);
  const Engine& engine() const { return engine_; }
  const std::vector<const Plan*>& plans() const { return plans_; }  // that can be run
  const char* manifest();
  // The plan reproduces the engine's golden values on this device of this machine; asked once per plan and device.
  // `threads`: as in ExecutorOptions, of the runs that this takes.
  Status admit(const Plan& plan, int device, int threads = 0);

 private:
  bool is_admitted(const Plan& plan, int device);

  const Engine engine_;
  std::vector<const Plan*> plans_;
  Turns checks_;  // of golden values: contexts that are made at the same time wait for one check
  CheckedConstants checked_;
  ShortLock lock_;  // of:
  std::string manifest_;
  std::set<std::pair<const Plan*, int>> admitted_;
};

// A state and the right to use it. The executors have a flag of their own; this one is told apart from other failures.
struct SharedState {
  std::shared_ptr<OpenEngine> engine;
  std::shared_ptr<State> state;  // null: the executor's own
  std::atomic<bool> taken{false};
};

// Who may end a run of a context or session, and whether somebody did. Under its Use, but for `cancelled`.
struct Watch {
  std::atomic<bool> cancelled{false};
  tess_go_on_function asked = nullptr;
  void* user = nullptr;
  bool goes_on() const { return !cancelled && (asked == nullptr || asked(user) != 0); }
};

// The right to use a state for the length of one call.
class Use {
 public:
  explicit Use(SharedState& state) : state_(state), mine_(!state.taken.exchange(true, std::memory_order_acquire)) {}
  ~Use() {
    if (mine_) state_.taken.store(false, std::memory_order_release);
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  // OK, or the error of a call that came while another was going on.
  Status status(const char* what) const;

 private:
  SharedState& state_;
  const bool mine_;
};

// The state that a context or session uses: the caller's, or one of its own.
Result<std::shared_ptr<SharedState>> state_to_use(const std::shared_ptr<OpenEngine>& engine, const tess_state* given);

}  // namespace tessera

struct tess_engine {
  std::shared_ptr<tessera::OpenEngine> open;
};

struct tess_state {
  std::shared_ptr<tessera::SharedState> shared;
};
