// SPDX-License-Identifier: Apache-2.0
// The program's help, as a manual page would have it and at most 100 columns wide.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace tessera {

std::string main_help(std::span<const Command* const> commands);
std::string command_help(const Command& command, const OptionList& options);

// The first word of the line that no command or option is called, in a sentence with the nearest one; empty where there
// is none. `words` is the line without the program's name.
std::string unknown_word(std::span<const std::string> words, std::span<const NamedOptions> commands);

}  // namespace tessera
