// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/output.h"

namespace tessera {
namespace {

Runner add(OptionList&, const Common& common) {
  return [&common]() -> Status {
    if (common.json) {
      print_json({{"version", TS_VERSION}, {"cuda", TS_CUDA_NOTE}});
    } else {
      fmt::print("tessera {} ({})\n", TS_VERSION, TS_CUDA_NOTE);
    }
    return {};
  };
}

}  // namespace

const Command version_command{"version",
                              "print the version and what this program was built with",
                              "Says the version and whether CUDA kernels are in this program, or only their contracts "
                              "(plans for GPUs can be made then, but not run).",
                              "  tessera version\n"
                              "  tessera version --json\n",
                              "",
                              false,
                              add};

}  // namespace tessera
