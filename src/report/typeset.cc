// SPDX-License-Identifier: Apache-2.0
#include "report/typeset.h"

#include <algorithm>
#include <cctype>

#include "report/escape.h"

namespace tessera {

namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

}  // namespace

std::string typeset(std::string_view text) {
  constexpr std::string_view kUnits[] = {"%", "x", "ms", "us", "s", "kB", "MB", "GB", "TB/s", "GB/s", "MB/s"};
  const std::string escaped = html_text(text);
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '/' || c == '_'; };
  std::string out;
  for (size_t i = 0; i < escaped.size(); ++i) {
    const bool after_digit = i > 0 && std::isdigit(static_cast<unsigned char>(escaped[i - 1])) != 0;
    const std::string_view rest = std::string_view(escaped).substr(i + (escaped[i] == ' ' ? 1 : 0));
    const auto ends = [&](std::string_view unit) { return rest.size() == unit.size() || !is_word(rest[unit.size()]); };
    const auto unit = std::find_if(std::begin(kUnits), std::end(kUnits), [&](std::string_view u) {
      // "1.38x" is one word; other units have a blank before them.
      return rest.starts_with(u) && ends(u) && (escaped[i] == ' ' || u == "x");
    });
    if (!after_digit || unit == std::end(kUnits)) {
      out += escaped[i];
      continue;
    }
    out += "\u00A0";
    out += *unit == "x" ? "\u00D7" : std::string(*unit);
    i += unit->size() - (escaped[i] == ' ' ? 0 : 1);
  }
  replace_all(out, " -&gt; ", " \u2192 ");
  // A difference in arithmetic: "5.50 ms - 1.45 ms".
  for (size_t at = out.find(" - "); at != std::string::npos; at = out.find(" - ", at + 1)) {
    if (at + 3 < out.size() && std::isdigit(static_cast<unsigned char>(out[at + 3])) != 0)
      out.replace(at + 1, 1, "\u2212");
  }
  return out;
}

std::string typeset_number(const std::string& text) {
  if (text == "-") return "\u2013";
  return text.starts_with('-') ? "\u2212" + typeset(text.substr(1)) : typeset(text);
}

}  // namespace tessera
