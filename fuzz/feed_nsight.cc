// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "fuzz/feed_profile.h"
#include "fuzz/feeds.h"

namespace tessera::fuzz {
namespace {

// SQLite reads files by their name only: one for all inputs of this process, gone with it.
class ScratchFile {
 public:
  ScratchFile()
      : path_(std::filesystem::temp_directory_path() / cat("tessera_fuzz_nsight_", getpid())),
        fd_(open(path_.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600)) {
    TS_CHECK(fd_ >= 0, path_);
  }
  ~ScratchFile() {
    close(fd_);
    unlink(path_.c_str());
  }
  const std::string& hold(std::span<const uint8_t> bytes) const {
    TS_CHECK(ftruncate(fd_, 0) == 0, path_);
    TS_CHECK(pwrite(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()), path_);
    return path_;
  }

 private:
  const std::string path_;
  const int fd_;
};

}  // namespace

void feed_nsight(std::span<const uint8_t> input) {
  static const ScratchFile file;
  if (input.size() < 16 || std::memcmp(input.data(), "SQLite format 3", 16) != 0) return;
  feed_profile(make_source(file.hold(input), Bytes({}, input.data(), input.size())), {});
}

}  // namespace tessera::fuzz
