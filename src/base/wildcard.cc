// SPDX-License-Identifier: Apache-2.0
#include "base/wildcard.h"

namespace tessera {

bool matches(const char* pattern, const char* text) {
  // The last star takes one character more whenever the rest does not fit: linear in practice, never exponential.
  const char *star = nullptr, *taken = nullptr;
  while (*text != '\0') {
    if (*pattern == '*') {
      star = pattern++, taken = text;
    } else if (*pattern == '?' || *pattern == *text) {
      ++pattern, ++text;
    } else if (star != nullptr) {
      pattern = star + 1, text = ++taken;
    } else {
      return false;
    }
  }
  while (*pattern == '*') ++pattern;
  return *pattern == '\0';
}

}  // namespace tessera
