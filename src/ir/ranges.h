// SPDX-License-Identifier: Apache-2.0
// Calibration data: how large each value became on sample inputs. Made by study/calibrate, read by passes/quantize; plain data, no code.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "types/element.h"

namespace tessera {

struct Ranges {
  std::map<std::string, float> amax;  // by value name
  std::string how;                    // in words: "amax over 512 samples of calib.npz"

  // The magnitude that codes of this element should reach; nothing where the value was not seen.
  std::optional<float> clip(const std::string& value, Element) const {
    const auto it = amax.find(value);
    return it == amax.end() ? std::nullopt : std::optional(it->second);
  }
};

}  // namespace tessera
