// SPDX-License-Identifier: Apache-2.0
// Widths of text in characters of UTF-8, each of which is taken to be one column.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

namespace tessera {

inline bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

inline size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return !continues_character(c); }));
}

// Where the `count`-th character begins.
inline size_t byte_of_character(const std::string& text, size_t count) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    if (!continues_character(text[at]) && count-- == 0) break;
  }
  return at;
}

// Text of other people's, no wider than `width`: cut at the front, since names of layers differ at their end
// ("..layers.0.self_attn.q_proj").
inline std::string shorten(const std::string& text, size_t width) {
  const size_t have = width_of(text);
  if (have <= width || width < 3) return text;
  return ".." + text.substr(byte_of_character(text, have - (width - 2)));
}

}  // namespace tessera
