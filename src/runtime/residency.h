// SPDX-License-Identifier: Apache-2.0
// What an engine keeps on a device for as long as any of its plans is bound: constants, uploaded once however many
// plans use them, and the state that plans share. On the host the constants stay in the mapped file.
#pragma once

#include <memory>
#include <vector>

#include "archs/arch.h"
#include "archs/cuda/device_memory.h"
#include "plan/engine.h"

namespace tessera {

class Residency {
 public:
  // Contract: `engine` outlives it. Constants that no plan of this kind of device uses are left out (null).
  static Result<std::shared_ptr<Residency>> make(const Engine& engine, DeviceKind kind);
  const std::vector<const uint8_t*>& constants() const { return constants_; }
  const std::vector<uint8_t*>& states() const { return states_; }

 private:
  Status upload(const Engine& engine);

  std::vector<const uint8_t*> constants_;
  std::vector<uint8_t*> states_;
  std::vector<Buffer> host_states_;
  DeviceBuffer device_constants_, device_states_;
};

}  // namespace tessera
