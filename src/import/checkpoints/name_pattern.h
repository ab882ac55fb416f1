// SPDX-License-Identifier: Apache-2.0
// Patterns by which configuration files pick modules: names in which `*` matches anything (ModelOpt), and regular
// expressions (compressed-tensors, "re:...") of the kind that such files use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera {

// The pattern is the module's name or that of a module that holds it; `*` matches any characters, dots too.
bool names_module(const std::string& pattern, const std::string& module);

// A regular expression: letters, `.`, `[abc]`, `[a-z]`, `\d`, `\w`, escapes, `*` `+` `?` after one of them, `^`, `$`,
// and `(a|b)` without anything repeated around it. It must match from the name's first character on, not to its end.
// Time is bounded by the product of both lengths.
class NameExpression {
 public:
  static Result<NameExpression> parse(const std::string& text);
  bool matches(std::string_view name) const;

 private:
  struct Atom {
    std::string set;  // characters that match
    bool any = false, repeats = false, optional = false, end = false;
  };
  std::vector<std::vector<Atom>> choices_;
};

}  // namespace tessera
