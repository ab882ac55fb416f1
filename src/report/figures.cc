// SPDX-License-Identifier: Apache-2.0
#include "report/figures.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace tessera {

std::string decimals(double value, int digits) {
  if (!std::isfinite(value)) return "-";
  char text[64];
  // Beyond 1e15 no decimal is exact, and a hostile file may hold 1e300.
  const int length = std::fabs(value) < 1e15 ? std::snprintf(text, sizeof text, "%.*f", digits, value)
                                             : std::snprintf(text, sizeof text, "%.2e", value);
  std::string out(text, static_cast<size_t>(length));
  if (out[0] == '-' && out.find_first_not_of("-0.") == std::string::npos) out.erase(0, 1);  // nothing has no sign
  return out;
}

std::string signed_words(double value, int digits) {
  std::string out = decimals(value, digits);
  if (value > 0 && out.find_first_not_of("0.") != std::string::npos) out.insert(0, "+");
  return out;
}

std::string rounded(double value, int digits) {
  if (value == 0 || !std::isfinite(value)) return decimals(value, 0);
  const double up = 1 + 0.5 * std::pow(10.0, -digits);  // 0.9996 is rounded to 1.00, which has a digit before the point
  const int before = static_cast<int>(std::floor(std::log10(std::fabs(value) * up))) + 1;
  return decimals(value, std::clamp(digits - before, 0, 9));
}

std::string share_words(double share) { return std::isfinite(share) ? decimals(100 * share, 1) + " %" : "-"; }

std::string ratio_words(double ratio) {
  if (!std::isfinite(ratio)) return "-";
  return (ratio > 0 && ratio < 0.095 ? rounded(ratio, 2) : decimals(ratio, 2)) + "x";
}

std::string in_ms(double us) { return decimals(us / 1e3, us < 1e3 ? 4 : 3); }

std::string time_words(double us) {
  if (!std::isfinite(us)) return "-";
  return us < 1e3 ? rounded(us) + " us" : us < 1e6 ? rounded(us / 1e3) + " ms" : rounded(us / 1e6) + " s";
}

std::string size_words(double bytes) {
  if (!std::isfinite(bytes)) return "-";
  return bytes < 1e6   ? decimals(bytes / 1e3, 1) + " kB"
         : bytes < 1e9 ? decimals(bytes / 1e6, 1) + " MB"
                       : decimals(bytes / 1e9, 2) + " GB";
}

std::string count_words(double value, const std::string& unit) {
  if (!std::isfinite(value)) return "-";
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  while (std::fabs(value) >= 999.5 && prefix + 1 < std::size(kPrefixes)) value /= 1e3, ++prefix;
  return rounded(value) + " " + kPrefixes[prefix] + unit;
}

}  // namespace tessera
