// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <cstdio>
#include <cstdlib>

namespace tessera {

void check_failed(const char* file, int line, const char* what, const std::string& detail) {
  std::fprintf(stderr, "tessera: internal error at %s:%d: %s is false. %s\n", file, line, what, detail.c_str());
  std::abort();
}

}  // namespace tessera
