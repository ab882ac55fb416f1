// SPDX-License-Identifier: Apache-2.0
// Convolutions on wgmma, emulated (ops/emulate_wgmma.h): a sum goes over the taps of the kernel, and within each over
// the channels of a group, in instructions of their own.
#pragma once

#include "ops/conv2d/conv2d.h"
#include "ops/emulate_wgmma.h"

namespace tessera {

Emulation emulate_conv2d(const Problem& problem, std::span<const TensorView> in, std::span<const TensorView> out);

}  // namespace tessera
