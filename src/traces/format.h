// SPDX-License-Identifier: Apache-2.0
// Formats of profiles: a line in readers.inc, and for that line `looks_like_<name>` and `read_<name>` in one file. A
// format is told from how its file begins; read_profile (reader.h) picks the first that fits.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "traces/reader.h"

namespace tessera {

// How a file begins, unpacked. JSON: its outermost keys, or those of the first objects of its list, as far as the
// first bytes show them.
struct Opening {
  std::string head;
  bool is_object = false, is_list = false;
  std::vector<std::string> keys = {};
  std::string format = {};  // the value of "format"

  bool has(std::string_view key) const;
};

struct Source {
  std::string path;
  Bytes bytes;  // as the file has them, packed or not
  Opening opening;

  // Of a file that is held as a whole: unpacked, of bounded size.
  Result<std::string> text() const;
};
// For a file that is mapped already.
Source make_source(std::string path, Bytes bytes);

struct Input {
  const Source& main;
  std::span<const Source> beside;
  const Rules& rules;
  const ReadOptions& options;
};

struct Format {
  const char* name;
  bool (*looks_like)(const Opening& opening);
  Result<Profile> (*read)(const Input& input);
};
std::span<const Format> profile_formats();

#define TS_PROFILE_READER(name, what)             \
  bool looks_like_##name(const Opening& opening); \
  Result<Profile> read_##name(const Input& input);
#include "traces/readers.inc"
#undef TS_PROFILE_READER

// trtexec's layer information and times of runs: files beside a profile.
bool is_companion_of_trtexec(const Opening& opening);

// As read_profile, of files that are mapped already; errors name no path.
Result<Profile> read_sources(const Input& input);

}  // namespace tessera
