// SPDX-License-Identifier: Apache-2.0
// A command of the program: one file each, listed in commands.inc. It adds its options to a subcommand and gives back
// what to run once the line is parsed.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "base/status.h"

namespace tessera {

// What every command has; filled before its runner is called.
struct Common {
  bool json = false;
  bool quiet = false;  // commands that compute
  int threads = 0;
};

// A failed verification that the command has already reported in full has an empty message.
using Runner = std::function<Status()>;

struct Command {
  const char* name;
  const char* summary;   // one line of the main help
  const char* examples;  // below the command's own help
  bool computes;         // has --threads and --quiet
  Runner (*add)(CLI::App& app, const Common& common);
};

#define TS_COMMAND(name) extern const Command name##_command;
#include "cli/commands.inc"
#undef TS_COMMAND

inline Status verification_failed() { return {Code::kVerifyFailed, ""}; }

}  // namespace tessera
