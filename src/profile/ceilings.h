// SPDX-License-Identifier: Apache-2.0
// What this machine can do, measured: memory bandwidth over arrays larger than its caches, and products by precision
// with our own best kernels at a large shape. It takes seconds, so the result is kept in the user's cache folder
// ($XDG_CACHE_HOME/tessera, else ~/.cache/tessera), for one machine, number of threads and version of the program.
#pragma once

#include <string>
#include <vector>

#include "archs/arch.h"
#include "base/status.h"
#include "traces/profile.h"

namespace tessera {

// `machine` as Executor::machine() says it. On a GPU: the calling thread's. Host: threads() of the calling thread.
Result<Ceilings> measure_ceilings(Arch arch, const std::string& machine);

// The kept ones where they are readable and of this machine and program, unless `again`; else measured and kept. A file
// that cannot be written is a sentence in `notes` and no error.
Result<Ceilings> machine_ceilings(Arch arch, const std::string& machine, bool again, std::vector<std::string>& notes);

// The file that they are kept in; empty: there is no cache folder (neither XDG_CACHE_HOME nor HOME is set).
std::string ceilings_file(const std::string& machine);
std::string ceilings_text(const Ceilings& ceilings);
// Nothing: another program's, another machine's, or no such text.
std::optional<Ceilings> read_ceilings_text(std::string_view text, const std::string& machine);

}  // namespace tessera
