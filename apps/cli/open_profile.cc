// SPDX-License-Identifier: Apache-2.0
#include "cli/open_profile.h"

#include <cstring>
#include <filesystem>

#include "cli/open_engine.h"
#include "io/mmap.h"

namespace tessera {
namespace {

// The one place where an engine becomes a profile: room profile is called here.
Result<Profile> profile_of(const std::string& path) {
  return usage_error(cat(path, " is an engine; profile it first: tessera profile ", path, " --json > ",
                         std::filesystem::path(path).stem().string(), ".json"));
}

bool begins_as_engine(const Bytes& file) { return file.size() >= 7 && std::memcmp(file.data(), "TESSERA", 7) == 0; }

}  // namespace

Result<Rules> open_rules(const std::string& path) {
  if (path.empty()) return with_built_in({});
  const auto file = map_file(path);
  if (!file.ok()) return Status(file.status().code(), "--rules " + file.status().message() + hint_for_missing(path));
  TS_ASSIGN(Rules first, parse_rules({reinterpret_cast<const char*>(file->data()), file->size()}, path));
  return with_built_in(std::move(first));
}

Result<Profile> open_profile(const std::string& path, const Rules& rules, const ReadOptions& options) {
  const auto file = map_file(path);
  if (!file.ok()) return Status(file.status().code(), file.status().message() + hint_for_missing(path));
  if (!begins_as_engine(*file)) return read_profile(path, rules, options);
  if (options.runs > 0 || !options.beside.empty())
    return usage_error(cat(path, " is an engine: runs and further files belong to profiles of other tools"));
  return profile_of(path);
}

}  // namespace tessera
