// SPDX-License-Identifier: Apache-2.0
// An engine's constants where plans read them. On a GPU they are uploaded once per device, however many executors are
// made: each finds what another of the engine has brought there, for as long as any of them lives. On the host they
// stay in the engine's own memory (the mapped file).
#pragma once

#include <memory>
#include <vector>

#include "archs/arch.h"
#include "archs/cuda/device_memory.h"
#include "plan/engine.h"

namespace tessera {

class Weights {
 public:
  // Those that lie there already, or new ones. Constants that no plan of this kind of device uses are left out (null).
  // May be called from any thread. Contract: `engine` outlives them and keeps its constants.
  static Result<std::shared_ptr<const Weights>> of(const Engine& engine, DeviceKind kind, int device = 0);
  // What they take there. On the host: what its plans read of the engine's own memory, golden plans left out.
  static int64_t bytes_of(const Engine& engine, DeviceKind kind);
  const std::vector<const uint8_t*>& constants() const { return constants_; }  // per engine constant

 private:
  bool hold(const Engine& engine, const std::vector<bool>& used, int device) const;
  Status upload(const Engine& engine, const std::vector<bool>& used, int device);

  std::vector<const uint8_t*> constants_;
  // What was uploaded. It is kept, so that other bytes never have the same address.
  std::vector<Bytes> sources_;
  int device_ = -1;
  DeviceBuffer memory_;
};

}  // namespace tessera
