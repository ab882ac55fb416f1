// SPDX-License-Identifier: Apache-2.0
// Scratch memory of a piece of CPU work. Blocks are shared by all kernels of the process and handed out last used
// first, so they stay in cache; kernels reserve what they need when they are bound, so that launching does not
// allocate.
#pragma once

#include <cstdint>

#include "base/buffer.h"

namespace tessera {

class Scratch {
 public:
  explicit Scratch(int64_t bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // The next n floats, aligned to 64 bytes; contents are whatever was there.
  float* floats(int64_t n);
  void* bytes(int64_t n) { return floats(divide_up(n, sizeof(float))); }
  // Bytes that n floats take, with their alignment: sum these up for the constructor.
  static constexpr int64_t bytes_of(int64_t n) { return round_up(n * static_cast<int64_t>(sizeof(float)), 64); }
  // Makes sure that every thread of every pool can have a block of this size.
  static void reserve(int64_t bytes);

 private:
  Buffer block_;
  int64_t used_ = 0;
};

}  // namespace tessera
