// SPDX-License-Identifier: Apache-2.0
// What a kernel of any tool does, by its name. Rules are lines of a text file (assets/kernel_names.rules, built in;
// users add their own before it): a wildcard pattern, a class, a precision. "-" says that the line does not tell it:
// class and precision each come from the first line that fits and tells them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "traces/profile.h"

namespace tessera {

struct KernelRule {
  std::string pattern;  // of base/wildcard.h; upper and lower case are the same
  std::optional<KernelClass> kernel_class = {};
  std::string precision = {};  // empty: not told
};
using Rules = std::vector<KernelRule>;

// The error names the line. `where` is the file's name in it.
Result<Rules> parse_rules(std::string_view text, std::string_view where);
// Those of the program, after `first`.
Rules with_built_in(Rules first);

struct Classified {
  KernelClass kernel_class = KernelClass::kUnknown;  // where no rule knows the name
  std::string precision = {};
};
Classified classify(std::string_view name, const Rules& rules);

}  // namespace tessera
