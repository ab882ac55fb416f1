// SPDX-License-Identifier: Apache-2.0
// Writes a safetensors file tensor by tensor (io/safetensors.h has the format): names, types and shapes are said first,
// the numbers follow in that order, in pieces of any size. The file is there after commit(), or not at all.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/atomic_file.h"
#include "io/safetensors.h"

namespace tessera {

class SafetensorsWriter {
 public:
  // `data` of the entries is not read.
  static Result<SafetensorsWriter> create(const std::string& path, const std::vector<SafetensorsEntry>& tensors);
  Status write(std::span<const uint8_t> bytes);
  // Contract: all bytes of all tensors were written.
  Status commit();
  int64_t bytes() const { return header_ + data_; }  // of the whole file

 private:
  SafetensorsWriter(AtomicFile file, int64_t header, int64_t data)
      : file_(std::move(file)), header_(header), data_(data) {}
  AtomicFile file_;
  int64_t header_, data_, written_ = 0;
};

}  // namespace tessera
