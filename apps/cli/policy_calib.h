// SPDX-License-Identifier: Apache-2.0
// Calibration data of a policy's graphs from observations. Graphs read what others leave (image tokens, keys and
// values, x), so the observations run through the policy in fp32 on the CPU, and what each graph reads is kept.
#pragma once

#include <map>
#include <string>

#include "assemble/build_engine.h"
#include "base/status.h"

namespace tessera {

// Files in `folder`, by graph, each called like the file of observations. `options`: of the engine that they are for.
Result<std::map<std::string, std::string>> trace_observations(const BuildOptions& options, const std::string& path,
                                                              const std::string& folder);

}  // namespace tessera
