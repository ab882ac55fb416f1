// SPDX-License-Identifier: Apache-2.0
// Bytes packed by gzip, unpacked piece by piece as they are read: a small file can stand for any number of bytes, so
// the reader says how many it takes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <streambuf>
#include <string>
#include <vector>

#include "base/status.h"

struct z_stream_s;

namespace tessera {

bool is_gzip(std::span<const uint8_t> bytes);

// `packed` outlives the stream. Several packed files one after the other are one, as gzip has it.
class GzipStream : public std::streambuf {
 public:
  GzipStream(std::span<const uint8_t> packed, uint64_t limit_bytes);
  ~GzipStream() override;
  // Why the stream ended before its time, if it did: damage, a cut file, the limit.
  const Status& status() const { return status_; }

 protected:
  int_type underflow() override;

 private:
  struct End {
    void operator()(z_stream_s* stream) const;
  };
  size_t unpack(std::span<uint8_t> to);

  const std::span<const uint8_t> packed_;
  const uint64_t limit_bytes_;
  std::unique_ptr<z_stream_s, End> stream_;
  std::vector<uint8_t> piece_;
  uint64_t unpacked_ = 0;
  size_t taken_ = 0;  // packed bytes that zlib has seen
  bool done_ = false;
  Status status_;
};

// All of it. More than `limit_bytes` is an error.
Result<std::string> unpack_gzip(std::span<const uint8_t> packed, uint64_t limit_bytes);

}  // namespace tessera
