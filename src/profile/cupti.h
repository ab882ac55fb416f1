// SPDX-License-Identifier: Apache-2.0
// CUPTI's activities of a GPU: when each kernel, copy and fill of a CUDA graph began and ended, while the graph runs as
// it always does. The library is opened when it is first asked for, and never linked: programs that do not profile do
// not need it. docs/design/0030 has what it shows and what it costs.
#pragma once

#include <functional>
#include <vector>

#include "base/status.h"
#include "profile/timeline.h"

namespace tessera {

struct CuptiTrace {
  std::vector<GraphActivity> activities;  // of nodes of CUDA graphs, in no order
  int64_t untimed = 0;                    // that CUPTI had no memory left to time
  int64_t dropped = 0;                    // records that it lost
};
// Calls `body` while activities are recorded, and waits for the GPU. One trace at a time in a process. The error says
// why there is none: no such library, another tool holds it.
Result<CuptiTrace> trace_with_cupti(const std::function<Status()>& body);

}  // namespace tessera
