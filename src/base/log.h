// SPDX-License-Identifier: Apache-2.0
// Lines for people, on stderr: results go to stdout and never through here. `quiet` silences notes and progress bars,
// not warnings.
#pragma once

#include <string>

namespace tessera {

void set_quiet(bool quiet);
bool quiet();

void note(const std::string& line);  // "tessera: line"
void warn(const std::string& line);  // "tessera: warning: line"

}  // namespace tessera
