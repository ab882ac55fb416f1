// SPDX-License-Identifier: Apache-2.0
// Writes a file whole or not at all: to a temporary name in the same folder, flushed to the disk, then renamed over the
// target. Without commit(), or after any failure, nothing is left and an older file of that name stays as it was.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tessera {

class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept { *this = std::move(other); }
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  ~AtomicFile() { discard(); }

  Status write(std::span<const uint8_t> bytes);
  Status write(std::string_view text) { return write({reinterpret_cast<const uint8_t*>(text.data()), text.size()}); }
  Status write_zeros(size_t count);
  Status commit();

 private:
  AtomicFile() = default;
  void discard();
  Status failed(const char* what);  // takes errno, removes the temporary file

  std::string path_, target_, temporary_;  // as given; with links resolved; while writing
  std::string name_;                       // that an unnamed file gets before it is put in place
  int fd_ = -1;
};

// The whole text at once.
Status write_file(const std::string& path, std::string_view text);

}  // namespace tessera
