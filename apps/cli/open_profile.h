// SPDX-License-Identifier: Apache-2.0
// Profiles as commands get them: from a file of any tool (traces/reader.h), or of an engine, which is profiled here.
#pragma once

#include <string>

#include "base/status.h"
#include "traces/reader.h"

namespace tessera {

// Those of the file, then those of the program; without a file the program's alone.
Result<Rules> open_rules(const std::string& path);

// `path` is a profile, or an engine, of which `plan` is profiled (empty: the first). The error names the file.
Result<Profile> open_profile(const std::string& path, const Rules& rules, const ReadOptions& options,
                             const std::string& plan = "");

}  // namespace tessera
