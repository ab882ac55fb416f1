// SPDX-License-Identifier: Apache-2.0
#include "report/typeset.h"

#include <algorithm>
#include <cctype>

#include "report/escape.h"

namespace tessera {

std::string typeset(std::string_view text) {
  constexpr std::string_view kUnits[] = {"%", "x", "ms", "us", "s", "kB", "MB", "GB", "TB/s", "GB/s", "MB/s"};
  const std::string escaped = html_text(text);
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '/'; };
  std::string out;
  for (size_t i = 0; i < escaped.size(); ++i) {
    const bool after_digit = i > 0 && std::isdigit(static_cast<unsigned char>(escaped[i - 1])) != 0;
    if (escaped[i] != ' ' || !after_digit) {
      out += escaped[i];
      continue;
    }
    const std::string_view rest = std::string_view(escaped).substr(i + 1);
    const auto unit = std::find_if(std::begin(kUnits), std::end(kUnits), [&](std::string_view u) {
      return rest.starts_with(u) && (rest.size() == u.size() || !is_word(rest[u.size()]));
    });
    if (unit == std::end(kUnits)) {
      out += ' ';
      continue;
    }
    out += "\u00A0";
    out += *unit == "x" ? "\u00D7" : std::string(*unit);
    i += unit->size();
  }
  return out;
}

std::string typeset_number(const std::string& text) {
  if (text == "-") return "\u2013";
  return text.starts_with('-') ? "\u2212" + typeset(text.substr(1)) : typeset(text);
}

}  // namespace tessera
