// SPDX-License-Identifier: Apache-2.0
// The timeline of a profile as Chrome's trace events, which Perfetto and chrome://tracing show: one event per launch,
// named after its layer, inside one event for the run.
#pragma once

#include <string>

#include "traces/profile.h"

namespace tessera {

// The key that says whose timeline it is: without kernels' names, it is no profile to be read again.
inline constexpr const char* kTimelineMark = "tesseraTimeline";

// Launches that overlap stand on tracks of their own: viewers drop an event that begins inside another and ends after
// it. The error: the profile has no timeline (predicted, or of a source that does not tell when kernels ran).
Result<std::string> chrome_trace(const Profile& profile);

}  // namespace tessera
