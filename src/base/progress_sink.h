// SPDX-License-Identifier: Apache-2.0
// Who watches long work of this process, and may end it: a program that embeds builds. One watcher at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"

namespace tessera {

// Called with what a bar of progress (progress.h) would show, shown or not: one call at a time, from any thread. False:
// the work shall stop.
using ProgressSink = std::function<bool(const std::string& what, int64_t done, int64_t total)>;
// Null: nobody watches. Forgets that work was to stop.
void set_progress_sink(ProgressSink sink);

// Beside the codes of the program, which nobody cancels but by a signal.
inline constexpr Code kCancelled = static_cast<Code>(7);
// The error of work that shall stop; asked between its steps.
Status check_cancelled();

}  // namespace tessera
