// SPDX-License-Identifier: Apache-2.0
// An engine from options to its file, for every command that builds one.
#pragma once

#include <string>

#include "assemble/build_engine.h"
#include "base/status.h"

namespace tessera {

// A model that build can take: no engine, and no folder but with a family.
Status check_model(const std::string& model, const std::string& family);
// Only an engine is overwritten: whatever else has that name, calibration data or weights beside a model, is not ours.
Status check_output(const std::string& path, const std::string& model);

struct BuiltFile {
  Built built;
  int64_t bytes = 0;
  double write_s = 0;
};
Result<BuiltFile> build_file(const BuildOptions& options, const std::string& path);

}  // namespace tessera
