// SPDX-License-Identifier: Apache-2.0
// Numbers as the arithmetic of an explanation prints them.
#pragma once

#include <cstdio>
#include <string>

namespace tessera {

inline std::string fixed(double x, int digits) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, x);
  return text;
}
inline std::string percent(double share) { return fixed(100 * share, 1) + " %"; }  // "26.4 %"
inline std::string times(double factor) { return fixed(factor, 2) + "x"; }         // "1.38x"
// "4", "1.9": ratios of rates, whose further digits say nothing.
inline std::string ratio_text(double ratio) {
  const std::string text = fixed(ratio, 1);
  return text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
}

}  // namespace tessera
