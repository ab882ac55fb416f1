// SPDX-License-Identifier: Apache-2.0
// What commands print: tables of at most 100 columns, one JSON object, sizes and times for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/shorten.h"

namespace tessera {

using Json = nlohmann::ordered_json;

void print_json(const Json& object);

// Text from other people's files, safe for a terminal: control characters become '?'.
std::string printable(std::string_view text);

// Text of at most 100 columns: the first line is indented by `first`, the others by `rest`. Lines of the text itself
// stay lines, with their own blanks in front; a word is never broken.
std::string wrap(const std::string& text, size_t first, size_t rest);

// "  name         value ...": a line of a record, its value broken where it must be; words that are too long for a line
// are shortened.
void print_record(const std::string& name, const std::string& value);

class Table {
 public:
  // A title that begins with '>' heads a column of numbers, set to the right.
  explicit Table(std::vector<std::string> titles);
  void add(std::vector<std::string> row);
  // Columns are as wide as they need to be; where that is more than 100 in all, the widest ones of text are cut so that
  // two that differ never look the same: only where no cut does that a table is wider.
  std::string text() const;

 private:
  std::vector<std::string> titles_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

std::string megabytes(int64_t bytes);  // "86.4 MB"; kilobytes where it is less than one
std::string plural(int64_t n, const std::string& one, const std::string& many = "");  // "1 layer", "3 layers"

}  // namespace tessera
