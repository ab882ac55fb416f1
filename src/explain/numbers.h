// SPDX-License-Identifier: Apache-2.0
// Numbers as the arithmetic of an explanation prints them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

namespace tessera {

inline std::string fixed(double x, int digits) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, x);
  return text;
}
inline std::string percent(double share) { return fixed(100 * share, 1) + " %"; }  // "26.4 %"
// A ratio with at least two digits that say something: "1.38", "0.0042".
inline std::string ratio_digits(double factor) {
  const bool small = factor > 0 && factor < 0.095;
  return fixed(factor, small ? std::min(1 - static_cast<int>(std::floor(std::log10(factor))), 30) : 2);
}
inline std::string times(double factor) { return ratio_digits(factor) + "x"; }  // "1.38x"
// "4", "1.82": ratios of rates.
inline std::string ratio_text(double ratio) {
  const std::string text = ratio_digits(ratio);
  return text.ends_with(".00") ? text.substr(0, text.size() - 3) : text;
}

}  // namespace tessera
