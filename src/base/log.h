// SPDX-License-Identifier: Apache-2.0
// Lines for people, on stderr: results go to stdout and never through here. `quiet` silences notes, warnings and
// progress bars; results and errors remain.
//   TESSERA_LOG=warning        which lines: none, error, warning or note (the program's own choice)
//   TESSERA_LOG=note,json      each line a JSON object: time, level, text
// Libraries print nothing but what TESSERA_LOG asks for.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace tessera {

enum class LogLevel : uint8_t { kError = 0, kWarning = 1, kNote = 2 };

void set_quiet(bool quiet);
bool quiet();
// This process is somebody else's program: quiet, but for TESSERA_LOG.
void be_library();

// What is being done, while the object lives: names the place where memory ran out. Costs nothing but two pointers.
class Activity {
 public:
  Activity(const char* what, const std::string& name);
  ~Activity();
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

 private:
  const char* const what_;
  const std::string& name_;
  const int exceptions_;
};
// What the last exception interrupted, innermost first: "layer a, plan batch8"; empty where nothing was said.
std::string interrupted();

void note(const std::string& line);  // "tessera: line"
void warn(const std::string& line);  // "tessera: warning: line"
// An error that ends a command, or a call of a library. False: it was not printed here, as lines of that form are not
// asked for: `only_json` leaves those for people to the caller, who breaks them.
bool log_error(const Status& status, bool only_json = false);

// A terminal that understands the control characters: TERM=dumb (an editor's shell) does not.
bool on_terminal();
inline constexpr const char* kEraseLine = "\r\033[K";

// What TESSERA_LOG says.
struct LogChoice {
  int most = -1;       // the last level that is printed; -1: none
  bool given = false;  // any of it
  bool json = false;
  std::string wrong;  // a word of it that means nothing
};
LogChoice read_log_choice(const std::string& text);
// A line of JSON, without its end. Bytes that are no UTF-8 become U+FFFD.
std::string json_line(const std::string& time, LogLevel level, const std::string& text, int code = 0);

}  // namespace tessera
