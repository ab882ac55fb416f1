// SPDX-License-Identifier: Apache-2.0
#include "report/escape.h"

#include <algorithm>
#include <cctype>
#include <cstdint>

namespace tessera {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

// Bytes of the UTF-8 character that begins the text; 0 where none does. Overlong forms, surrogates and what lies beyond
// U+10FFFF are none.
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const auto follows = [&](size_t i) { return i < text.size() && (byte(i) & 0xC0) == 0x80; };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if (!follows(1) || !follows(2)) return 0;
    if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F)) return 0;
    return 3;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (!follows(1) || !follows(2) || !follows(3)) return 0;
    if ((first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F)) return 0;
    return 4;
  }
  return 0;
}

// C0 and C1 controls, and characters that turn the direction of the text around them.
bool is_control(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(character[i]); };
  if (character.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7F;
  if (character.size() == 2) return byte(0) == 0xC2 && byte(1) < 0xA0;
  if (character.size() != 3 || byte(0) != 0xE2) return false;
  return (byte(1) == 0x80 && ((byte(2) >= 0x8B && byte(2) <= 0x8F) || (byte(2) >= 0xA8 && byte(2) <= 0xAE))) ||
         (byte(1) == 0x81 && byte(2) >= 0xA0 && byte(2) <= 0xAF);
}

size_t count_characters(std::string_view clean) {
  return static_cast<size_t>(std::count_if(clean.begin(), clean.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// Where character `n` of valid UTF-8 begins.
size_t place_of(std::string_view clean, size_t n) {
  size_t at = 0;
  for (; at < clean.size(); ++at) {
    if ((clean[at] & 0xC0) != 0x80 && n-- == 0) return at;
  }
  return at;
}

}  // namespace

std::string clean_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    const std::string_view character = text.substr(0, std::max<size_t>(bytes, 1));
    if (bytes == 0) {
      out += kReplacement;
    } else if (text[0] == '\n' || text[0] == '\t' || text[0] == '\r') {
      out += ' ';
    } else if (is_control(character)) {
      out += '?';
    } else {
      out += character;
    }
    text.remove_prefix(character.size());
  }
  return out;
}

std::string cut_middle(std::string_view text, size_t most) {
  const std::string clean = clean_text(text);
  const size_t count = count_characters(clean);
  if (count <= most) return clean;
  const size_t tail = most / 2, head = most - tail - 1;
  return clean.substr(0, place_of(clean, head)) + "\xE2\x80\xA6" + clean.substr(place_of(clean, count - tail));
}

std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : clean_text(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string markdown_text(std::string_view text) {
  const std::string clean = clean_text(text);
  const auto is_word = [&](size_t i) { return i < clean.size() && std::isalnum(static_cast<unsigned char>(clean[i])); };
  std::string out;
  for (size_t i = 0; i < clean.size(); ++i) {
    const char c = clean[i];
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '_') {
      out += i > 0 && is_word(i - 1) && is_word(i + 1) ? "_" : "\\_";  // inside a word it is only itself
    } else if (std::string_view("\\`*[]|~").find(c) != std::string_view::npos) {
      (out += '\\') += c;
    } else {
      out += c;
    }
  }
  return out;
}

std::string markdown_line(std::string_view text) {
  std::string out = markdown_text(text);
  // What would begin a heading, a quote, a list or a rule.
  const size_t digits = out.find_first_not_of("0123456789");
  if (digits == std::string::npos) return out;
  const bool ends = digits + 1 >= out.size() || out[digits + 1] == ' ' || out[digits + 1] == out[digits];
  const std::string_view marks = digits > 0 ? ".)" : "#>-+=";
  if (marks.find(out[digits]) != std::string_view::npos && (ends || out[digits] == '>')) out.insert(digits, "\\");
  return out;
}

std::string markdown_code(std::string_view text, bool in_table) {
  const std::string clean = clean_text(text);
  if (clean.empty()) return "";
  // Readers of tables disagree on a stroke after a backslash inside a code span: such text is escaped instead.
  if (in_table && clean.find("\\|") != std::string::npos) return markdown_text(clean);
  size_t longest = 0, run = 0;
  std::string inside;
  for (const char c : clean) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
    if (c == '|' && in_table) inside += '\\';
    inside += c;
  }
  const std::string fence(longest + 1, '`');
  const bool pad = clean.front() == '`' || clean.back() == '`';
  return fence + (pad ? " " : "") + inside + (pad ? " " : "") + fence;
}

}  // namespace tessera
