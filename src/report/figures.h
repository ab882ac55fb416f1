// SPDX-License-Identifier: Apache-2.0
// Numbers as a report prints them. One that is not finite is "-".
#pragma once

#include <optional>
#include <string>

namespace tessera {

std::string decimals(double value, int digits);
std::string signed_words(double value, int digits);  // "+1.95", "-0.50", "0.00"
std::string rounded(double value, int digits = 3);   // significant digits, never with an exponent: "1.38", "0.0123"
std::string share_words(double share);               // 0.842: "84.2 %"
std::string ratio_words(double ratio);               // 1.38: "1.38x"; 0.0042: "0.0042x"
std::string in_ms(double us);                        // 7600: "7.600", for a column of milliseconds
std::string time_words(double us);                   // "533 us", "7.60 ms"
std::string size_words(double bytes);                // "52.0 MB"
std::string count_words(double value, const std::string& unit);  // 8.1e14, "FLOP/s": "810 TFLOP/s"

// "-" where there is nothing.
template <class Words>
std::string or_dash(const std::optional<double>& value, const Words& words) {
  return value ? words(*value) : "-";
}

}  // namespace tessera
