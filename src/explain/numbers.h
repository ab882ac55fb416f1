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
// "4", "1.82": ratios of rates.
inline std::string ratio_text(double ratio) {
  const std::string text = fixed(ratio, 2);
  return text.ends_with(".00") ? text.substr(0, text.size() - 3) : text;
}

}  // namespace tessera
