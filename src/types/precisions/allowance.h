// SPDX-License-Identifier: Apache-2.0
// Layers that may have another precision than the one asked for, by name: --allow LAYER=PRECISION.
#pragma once

#include <string>

#include "base/status.h"
#include "base/wildcard.h"
#include "types/precisions/precision.h"

namespace tessera {

// "blocks.*.mlp.fc2=fp16": layers that the user accepts in another precision.
struct Allowance {
  std::string pattern, precision;
};
Result<Allowance> parse_allowance(const std::string& text);

}  // namespace tessera
