// SPDX-License-Identifier: Apache-2.0
// What samples show to be wrong with themselves as calibration data: scales that are taken from them fit them, and
// nothing else. One sentence each.
#pragma once

#include <string>
#include <vector>

#include "inputs/samples.h"

namespace tessera {

std::vector<std::string> sample_faults(const Plan& plan, const Samples& samples);

}  // namespace tessera
