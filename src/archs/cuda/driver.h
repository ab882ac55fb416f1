// SPDX-License-Identifier: Apache-2.0
// Whether the NVIDIA driver of a machine is new enough for the CUDA runtime inside this program. Both say their CUDA
// version as 1000 * major + 10 * minor. A driver runs every runtime of its own major version (minor version
// compatibility), and older ones.
#pragma once

#include <string>

namespace tessera {

// Empty where it is, else what is here and what is needed. `driver` 0: there is none.
std::string why_not_with_driver(int driver, int runtime);

}  // namespace tessera
