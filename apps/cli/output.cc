// SPDX-License-Identifier: Apache-2.0
#include "cli/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <set>

#include "base/status.h"

namespace tessera {
namespace {

constexpr size_t kColumns = 100, kGap = 2;
constexpr size_t kNarrowest = 10, kLeast = 4;  // columns of text: where they are readable, and where they are a hint
constexpr size_t kRecordColumn = 15;

// Text of `width` columns with its middle left out: a third of what stays is its begin.
std::string without_middle(const std::string& text, size_t width) {
  const size_t have = width_of(text), front = (width - 2) / 3;
  if (have <= width || width < 5) return shorten(text, width);
  return text.substr(0, byte_of_character(text, front)) + ".." +
         text.substr(byte_of_character(text, have - (width - 2 - front)));
}

std::string without_end(const std::string& text, size_t width) {
  if (width_of(text) <= width || width < 3) return text;
  return text.substr(0, byte_of_character(text, width - 2)) + "..";
}

using Cut = std::string (*)(const std::string&, size_t width);

bool keeps_apart(const std::set<std::string>& cells, size_t width, Cut cut) {
  std::set<std::string> shown;
  for (const std::string& cell : cells) {
    if (!shown.insert(cut(cell, width)).second) return false;
  }
  return true;
}

// How the cells of a column are cut: names at the front, since layers differ at their end, and phrases in the middle;
// otherwise where two that differ would look the same. Where every way makes two look the same the column gets wider.
Cut pick_cut(const std::set<std::string>& cells, size_t& width) {
  size_t widest = 0;
  for (const std::string& cell : cells) widest = std::max(widest, width_of(cell));
  const bool phrases =
      std::any_of(cells.begin(), cells.end(), [](const std::string& cell) { return cell.find(' ') != cell.npos; });
  const Cut usual = phrases ? &without_middle : &shorten;
  for (; width < widest; ++width) {
    for (const Cut cut : {usual, Cut(&shorten), Cut(&without_middle), Cut(&without_end)}) {
      if (keeps_apart(cells, width, cut)) return cut;
    }
  }
  return usual;
}

}  // namespace

void print_json(const Json& object) { fmt::print("{}\n", object.dump(2, ' ', false, Json::error_handler_t::replace)); }

std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if ((static_cast<unsigned char>(c) < 32 && c != '\n') || c == 127) c = '?';
  }
  return out;
}

std::string wrap(const std::string& text, size_t first, size_t rest) {
  std::string out;
  size_t begin = 0;
  for (bool more = true; more;) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    more = end < text.size();
    begin = end + 1;
    const size_t blanks = std::min(line.find_first_not_of(' '), line.size());
    const size_t indent = blanks + (out.empty() ? first : rest);
    std::string current(indent, ' ');
    size_t used = indent;
    bool fresh = true;
    for (size_t at = blanks; at < line.size();) {
      const size_t space = std::min(line.find(' ', at), line.size());
      const std::string word = line.substr(at, space - at);
      at = space + 1;
      if (!fresh && used + 1 + width_of(word) > kColumns) {
        out += current + "\n";
        current.assign(rest + blanks, ' ');
        used = rest + blanks;
        fresh = true;
      }
      current += (fresh ? "" : " ") + word;
      used += (fresh ? 0 : 1) + width_of(word);
      fresh = false;
    }
    out += current + (more ? "\n" : "");
  }
  return out;
}

void print_record(const std::string& name, const std::string& value) {
  std::string line, text = printable(value);
  for (size_t at = 0; at <= text.size();) {
    const size_t space = std::min(text.find(' ', at), text.size());
    line += (at == 0 ? "" : " ") + shorten(text.substr(at, space - at), kColumns - kRecordColumn);
    at = space + 1;
  }
  fmt::print("  {:<13}{}\n", name, wrap(line, kRecordColumn, kRecordColumn).substr(kRecordColumn));
}

Table::Table(std::vector<std::string> titles) : titles_(std::move(titles)) {
  for (std::string& t : titles_) {
    right_.push_back(t.starts_with('>'));
    if (right_.back()) t.erase(0, 1);
  }
}

void Table::add(std::vector<std::string> row) {
  TS_CHECK(row.size() == titles_.size(), "a row of ", row.size());
  for (std::string& cell : row) {
    cell = printable(cell);
    std::replace(cell.begin(), cell.end(), '\n', ' ');
  }
  rows_.push_back(std::move(row));
}

std::string Table::text() const {
  std::vector<size_t> widths;
  for (const std::string& t : titles_) widths.push_back(width_of(t));
  for (const auto& row : rows_) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width_of(row[c]));
  }
  const auto total = [&] { return std::accumulate(widths.begin(), widths.end(), kGap * (widths.size() - 1)); };
  for (const size_t least : {kNarrowest, kLeast}) {
    while (total() > kColumns) {
      size_t widest = widths.size();
      for (size_t c = 0; c < widths.size(); ++c) {
        if (!right_[c] && widths[c] > least && (widest == widths.size() || widths[c] > widths[widest])) widest = c;
      }
      if (widest == widths.size()) break;
      --widths[widest];
    }
  }
  std::vector<Cut> cuts;
  for (size_t c = 0; c < widths.size(); ++c) {
    std::set<std::string> cells;
    for (const auto& row : rows_) cells.insert(row[c]);
    cuts.push_back(pick_cut(cells, widths[c]));
  }
  std::string out;
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (size_t c = 0; c < cells.size(); ++c) {
      const std::string cell = cuts[c](cells[c], widths[c]);
      const std::string blanks(widths[c] - width_of(cell), ' ');
      text += (c ? std::string(kGap, ' ') : "") + (right_[c] ? blanks + cell : cell + blanks);
    }
    out += text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  };
  line(titles_);
  std::vector<std::string> rule;
  for (size_t w : widths) rule.emplace_back(w, '-');
  line(rule);
  for (const auto& row : rows_) line(row);
  return out;
}

std::string megabytes(int64_t bytes) {
  const double b = static_cast<double>(bytes);
  return bytes < 1'000'000 ? fmt::format("{:.1f} kB", b / 1e3) : fmt::format("{:.1f} MB", b / 1e6);
}

std::string plural(int64_t n, const std::string& one, const std::string& many) {
  return fmt::format("{} {}", n, n == 1 ? one : many.empty() ? one + "s" : many);
}

}  // namespace tessera
