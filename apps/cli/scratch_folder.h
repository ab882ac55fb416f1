// SPDX-License-Identifier: Apache-2.0
// A folder for files that a command makes on its way; it goes when the object goes.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace tessera {

class ScratchFolder {
 public:
  ScratchFolder() {
    std::error_code none;
    std::string pattern = (std::filesystem::temp_directory_path(none) / "tessera_XXXXXX").string();
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }  // empty: none could be made

 private:
  std::string path_;
};

}  // namespace tessera
