// SPDX-License-Identifier: Apache-2.0
#include "io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace tessera {

Result<AtomicFile> AtomicFile::create(const std::string& path) {
  static std::atomic<int> counter{0};
  AtomicFile file;
  file.path_ = path;
  if (path.empty()) return bad_input("no name for the file to write");
  // Renaming over a link would replace the link and leave the file behind it as it was.
  std::error_code error;
  const std::filesystem::path target = std::filesystem::weakly_canonical(path, error);
  file.target_ = error ? path : target.string();
  struct stat about;
  if (stat(file.target_.c_str(), &about) == 0 && !S_ISREG(about.st_mode)) {
    return bad_input(
        cat(path, ": cannot be written: it is ", S_ISDIR(about.st_mode) ? "a folder" : "not a regular file"));
  }
  const std::string name = cat(file.target_, ".", getpid(), ".", counter++, ".new");
  // Without a name until it is complete: a process that is killed leaves nothing behind. Not every file system can.
  const std::string folder = std::filesystem::path(file.target_).parent_path().string();
  if (access("/proc/self/fd", X_OK) == 0) {
    file.fd_ = open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    if (file.fd_ >= 0) {
      file.name_ = name;
      return file;
    }
  }
  file.temporary_ = name;
  file.fd_ = open(file.temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file.fd_ < 0) {
    file.temporary_.clear();
    return Status(errno == ENOENT || errno == ENOTDIR ? Code::kBadInput : Code::kMachine,
                  cat(path, ": cannot be written: ", std::strerror(errno)));
  }
  return file;
}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  discard();
  path_ = std::move(other.path_);
  target_ = std::move(other.target_);
  temporary_ = std::exchange(other.temporary_, {});
  name_ = std::exchange(other.name_, {});
  fd_ = std::exchange(other.fd_, -1);
  return *this;
}

void AtomicFile::discard() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
  if (!temporary_.empty()) unlink(std::exchange(temporary_, {}).c_str());
}

Status AtomicFile::failed(const char* what) {
  const int error = errno;
  discard();
  return machine_error(cat(path_, ": ", what, ": ", std::strerror(error)));
}

Status AtomicFile::write(std::span<const uint8_t> bytes) {
  if (fd_ < 0) return machine_error(cat(path_, ": writing had failed before"));
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), std::min<size_t>(bytes.size(), size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed("cannot be written");
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status AtomicFile::write_zeros(size_t count) {
  static constexpr uint8_t kZeros[4096] = {};
  for (; count > 0; count -= std::min(count, sizeof(kZeros)))
    TS_TRY(write(std::span(kZeros, std::min(count, sizeof(kZeros)))));
  return {};
}

Status AtomicFile::commit() {
  if (fd_ < 0) return machine_error(cat(path_, ": writing had failed before"));
  if (fsync(fd_) != 0) return failed("cannot be flushed to the disk");
  if (!name_.empty()) {
    const std::string open_file = cat("/proc/self/fd/", fd_);
    if (linkat(AT_FDCWD, open_file.c_str(), AT_FDCWD, name_.c_str(), AT_SYMLINK_FOLLOW) != 0)
      return failed("cannot be given its name");
    temporary_ = std::exchange(name_, {});
  }
  if (close(std::exchange(fd_, -1)) != 0) return failed("cannot be closed");
  if (rename(temporary_.c_str(), target_.c_str()) != 0) return failed("cannot be put in place");
  temporary_.clear();
  // The new name itself is durable only once its folder is; a folder that cannot be flushed does not undo the file.
  const std::string folder = std::filesystem::path(target_).parent_path().string();
  if (const int fd = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); fd >= 0) {
    (void)fsync(fd);
    close(fd);
  }
  return {};
}

Status write_file(const std::string& path, std::string_view text) {
  TS_ASSIGN(AtomicFile file, AtomicFile::create(path));
  TS_TRY(file.write(text));
  return file.commit();
}

}  // namespace tessera
