// SPDX-License-Identifier: Apache-2.0
// Calibration data: how large each value became on sample inputs. Made by study/calibrate, read by passes/quantize; plain data, no code.
#pragma once

#include <map>
#include <string>

namespace tessera {

struct Ranges {
  std::map<std::string, float> amax;  // by value name
  std::string how;                    // in words: "amax over 512 samples of calib.npz"
};

}  // namespace tessera
