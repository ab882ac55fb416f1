// SPDX-License-Identifier: Apache-2.0
// What a run on a GPU costs beside its kernels: host time to enqueue it, and copies of inputs and outputs.
#pragma once

#include <optional>
#include <span>

#include "base/status.h"
#include "plan/plan.h"
#include "runtime/executor.h"

namespace tessera {

struct DeviceTimes {
  double enqueue_us = 0;                                // host time of Executor::enqueue: median
  double host_to_device_us = 0, device_to_host_us = 0;  // all inputs, all outputs, from and to pageable memory: medians
};
// Nothing for host plans: they have neither. `inputs` as for Executor::run; the executor is on this device.
Result<std::optional<DeviceTimes>> time_around(Executor& executor, const Plan& plan,
                                               std::span<const void* const> inputs, int device, int runs);

}  // namespace tessera
