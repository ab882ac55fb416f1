// SPDX-License-Identifier: Apache-2.0
#include "io/scratch_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "io/mmap.h"

namespace tessera {
namespace {

// A map takes whole pages and a place in the kernel's table: what is smaller is not worth one.
constexpr size_t kLeastBytes = size_t{1} << 20;
constexpr size_t kPage = size_t{64} << 10;  // a multiple of every page size that we run on

bool write_all(int fd, const uint8_t* data, size_t size, size_t offset) {
  for (size_t done = 0; done < size;) {
    const ssize_t n = pwrite(fd, data + done, size - done, static_cast<off_t>(offset + done));
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

ScratchFile::~ScratchFile() {
  if (fd_ >= 0) close(fd_);
}

bool ScratchFile::open() {
  if (fd_ >= 0 || failed_) return fd_ >= 0;
  const char* folder = std::getenv("TMPDIR");
  std::string path = folder != nullptr && *folder != '\0' ? folder : "/tmp";
  path += "/tessera-scratch-XXXXXX";
  fd_ = mkostemp(path.data(), O_CLOEXEC);
  failed_ = fd_ < 0;
  if (!failed_) unlink(path.c_str());
  return !failed_;
}

Bytes ScratchFile::keep(Buffer buffer) {
  if (buffer.size() < kLeastBytes) return Bytes::own(std::move(buffer));
  size_t offset = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!open()) return Bytes::own(std::move(buffer));
    offset = end_;
    end_ += (buffer.size() + kPage - 1) / kPage * kPage;
  }
  if (!write_all(fd_, buffer.data(), buffer.size(), offset)) return Bytes::own(std::move(buffer));
  auto mapped = map_part(fd_, offset, buffer.size());
  return mapped.ok() ? std::move(mapped).value() : Bytes::own(std::move(buffer));
}

}  // namespace tessera
