// SPDX-License-Identifier: Apache-2.0
#include "io/beside.h"

#include <algorithm>
#include <filesystem>

namespace tessera {
namespace {

namespace fs = std::filesystem;

bool climbs(const std::string& name) {
  if (name.empty() || name.front() == '/' || name.find('\\') != std::string::npos ||
      name.find('\0') != std::string::npos)
    return true;
  const fs::path path(name);
  return std::any_of(path.begin(), path.end(), [](const fs::path& part) { return part == ".."; });
}

bool lies_in(const fs::path& file, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), file.begin(), file.end()).first == folder.end();
}

std::string shown(const std::string& name) {
  std::string out = name.substr(0, 120);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return name.size() > out.size() ? out + "..." : out;
}

}  // namespace

Result<std::string> path_beside(const std::string& file, const std::string& name) {
  if (climbs(name)) return bad_input(cat("'", shown(name), "' must lie in the folder of the file that names it"));
  const fs::path parent = fs::path(file).parent_path(), folder = parent.empty() ? fs::path(".") : parent;
  const fs::path path = folder / name;
  std::error_code error;
  const fs::path target = fs::weakly_canonical(path, error);
  if (error) return bad_input(cat("'", shown(name), "' cannot be looked up: ", error.message()));
  bool inside = lies_in(target, fs::canonical(folder, error)) && !error;
  if (!inside) {
    const fs::path real = fs::canonical(file, error);
    inside = !error && lies_in(target, real.parent_path());
  }
  if (!inside) return bad_input(cat("'", shown(name), "' is a link that leads out of the folder"));
  return path.string();
}

}  // namespace tessera
