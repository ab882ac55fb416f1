// SPDX-License-Identifier: Apache-2.0
// What `build` says of the engine that it wrote.
#pragma once

#include <string>

#include "assemble/build_engine.h"

namespace tessera {

struct WrittenEngine {
  const Built& built;
  const BuildOptions& options;
  std::string path;
  int64_t bytes = 0;
  double write_s = 0;
};

void print_build_json(const WrittenEngine& written);
void print_build_report(const WrittenEngine& written);

}  // namespace tessera
