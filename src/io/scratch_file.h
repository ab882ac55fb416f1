// SPDX-License-Identifier: Apache-2.0
// ScratchFile: large arrays that a build makes and reads again, in a file without a name (in $TMPDIR, or /tmp) instead
// of the heap. They are mapped read-only: the system takes their pages whenever it wants memory, give_back (io/mmap.h)
// takes them at once, and they are read in again where they are touched. Where no file can be made, or its disk is
// full, arrays stay on the heap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/buffer.h"

namespace tessera {

class ScratchFile {
 public:
  ScratchFile() = default;
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  // The same bytes. Small arrays stay on the heap. May be called from any thread; the bytes may outlive the object.
  Bytes keep(Buffer buffer);
  int64_t stored_bytes() const { return static_cast<int64_t>(end_); }  // in the file

 private:
  bool open();

  std::mutex mutex_;
  int fd_ = -1;
  bool failed_ = false;  // no file could be made
  size_t end_ = 0;       // of the file
};

}  // namespace tessera
