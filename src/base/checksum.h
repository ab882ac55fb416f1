// SPDX-License-Identifier: Apache-2.0
// checksum64: a fast 64-bit checksum for files (not against an adversary). Bytes are cut into chunks of 1 MiB; in a
// chunk, word i goes to lane i mod 8,
//   lane = p ^ (p >> 32), p = (lane ^ word) * odd constant      (a bijection: a change of one word always shows)
// and lanes, then chunks, then the length are folded in order by two such steps each. A last word is padded with zeros.
// The value does not depend on the number of threads or on how a stream was cut into pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

// All at once, chunks in parallel.
uint64_t checksum64(std::span<const uint8_t> bytes);
// Of each piece, the chunks of all of them in parallel.
std::vector<uint64_t> checksums64(std::span<const std::span<const uint8_t>> pieces);

// Piece by piece: the same value as checksum64 over the pieces laid end to end.
class Checksum64 {
 public:
  Checksum64();
  void add(std::span<const uint8_t> piece);
  void add_zeros(size_t count);
  uint64_t value() const;

 private:
  std::vector<uint8_t> pending_;
  size_t filled_ = 0;
  uint64_t total_ = 0, folded_;
};

}  // namespace tessera
