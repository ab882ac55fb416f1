// SPDX-License-Identifier: Apache-2.0
// Lines for people, on stderr: results go to stdout and never through here. `quiet` silences notes, warnings and
// progress bars; results and errors remain.
#pragma once

#include <string>

namespace tessera {

void set_quiet(bool quiet);
bool quiet();

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

}  // namespace tessera
