// SPDX-License-Identifier: Apache-2.0
// Where notes and warnings (log.h) go instead of stderr: a program that embeds engines has a log of its own.
#pragma once

#include <functional>
#include <string>

#include "base/log.h"

namespace tessera {

using LogSink = std::function<void(LogLevel level, const std::string& line)>;

// Null: stderr again. One line at a time, from whatever thread; the sink may not log itself. `quiet` does not silence
// it, and what TESSERA_LOG asks for is printed beside it.
void set_log_sink(LogSink sink);

}  // namespace tessera
