// SPDX-License-Identifier: Apache-2.0
#include "archs/cuda/driver.h"

#include "base/status.h"

namespace tessera {
namespace {

// The oldest driver for Linux of each major version, as CUDA's release notes have it. docs/install.md has the table.
struct Least {
  int cuda;
  const char* driver;
};
constexpr Least kLeast[] = {{12, "525.60.13"}, {13, "580.65.06"}};

std::string version(int v) { return cat(v / 1000, ".", v % 1000 / 10); }

}  // namespace

std::string why_not_with_driver(int driver, int runtime) {
  if (driver / 1000 >= runtime / 1000) return "";
  std::string needed = cat("a driver for CUDA ", runtime / 1000);
  for (const Least& l : kLeast) {
    if (l.cuda == runtime / 1000) needed += cat(" (", l.driver, " or newer)");
  }
  if (driver == 0) return cat("no NVIDIA driver was found; this program needs ", needed);
  return cat("the NVIDIA driver here is for CUDA ", version(driver), ", and this program was built with CUDA ",
             version(runtime), ": it needs ", needed);
}

}  // namespace tessera
