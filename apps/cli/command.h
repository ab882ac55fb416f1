// SPDX-License-Identifier: Apache-2.0
// A command of the program: one file each, listed in commands.inc. It adds its options to a subcommand and gives back
// what to run once the line is parsed.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "cli/options.h"

namespace tessera {

// What every command has; filled before its runner is called.
struct Common {
  bool json = false;
  bool quiet = false;
  int threads = 0;  // commands that compute
};

// A failed verification that the command has already reported in full has an empty message.
using Runner = std::function<Status()>;

struct Command {
  const char* name;
  const char* summary;   // one line of the main help
  const char* about;     // what it does, in a few sentences; help.cc breaks the lines
  const char* examples;  // whole lines, two blanks in front
  const char* more;      // further sections of its help (files, environment), whole lines; may be empty
  bool computes;         // has --threads
  Runner (*add)(OptionList& options, const Common& common);
};

#define TS_COMMAND(name) extern const Command name##_command;
#include "cli/commands.inc"
#undef TS_COMMAND

inline Status verification_failed() { return {Code::kVerifyFailed, ""}; }

}  // namespace tessera
