// SPDX-License-Identifier: Apache-2.0
// A build of which only the engine is looked at.
#pragma once

#include "assemble/build_engine.h"

namespace tessera {

inline Result<Engine> engine_from(const BuildOptions& options) {
  TS_ASSIGN(Built built, build_engine(options));
  return std::move(built.engine);
}

}  // namespace tessera
