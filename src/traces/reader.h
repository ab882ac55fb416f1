// SPDX-License-Identifier: Apache-2.0
// Reads profiles of any tool: the format is found from the bytes, never from the file's name (readers.inc is the list).
// gzip is unpacked. Names of kernels are classified by rules (classify.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "traces/classify.h"
#include "traces/profile.h"

namespace tessera {

struct ReadOptions {
  // Runs of the model that the file holds; 0: as the file says (its own count, steps of the profiler), else 1 with a
  // note.
  int64_t runs = 0;
  // Further files that belong to the profile (trtexec: layer information, times), in any order.
  std::vector<std::string> beside = {};
};

// What a file is, by its first bytes alone.
enum class ProfileKind : uint8_t {
  kNone,
  kProfile,
  kCompanion,  // of a profile, without times of kernels (ReadOptions::beside)
};
Result<ProfileKind> kind_of_profile(const std::string& path);

// The error says what is wrong with the file and which formats would be read.
Result<Profile> read_profile(const std::string& path, const Rules& rules, const ReadOptions& options = {});

// The rules of a user's file, then those of the program.
Result<Rules> read_rules(const std::string& path);

}  // namespace tessera
