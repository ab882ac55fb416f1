// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"

#include <algorithm>
#include <cstring>

#include "base/parallel.h"

namespace tessera {
namespace {

constexpr size_t kChunk = size_t{1} << 20;
// A multiply takes about four cycles and one can start per cycle: eight chains keep the multiplier busy.
constexpr int kLanes = 8;
constexpr uint64_t kStart = 0x243f6a8885a308d3;  // digits of pi and of e: any odd numbers with well mixed bits would do
constexpr uint64_t kFactor = 0xb7e151628aed2a6b;

constexpr uint64_t step(uint64_t state, uint64_t word) {
  const uint64_t product = (state ^ word) * kFactor;
  return product ^ (product >> 32);  // a product carries changes upwards only: bring them down again
}

// Between lanes and between chunks there is time to mix well, so that two damages do not cancel.
constexpr uint64_t fold(uint64_t state, uint64_t part) { return step(step(state ^ part, 0), 0); }

uint64_t checksum_chunk(const uint8_t* data, size_t size) {
  uint64_t lane[kLanes];
  for (int i = 0; i < kLanes; ++i) lane[i] = kStart + static_cast<uint64_t>(i);
  const auto eat = [&](const uint8_t* p) {
    uint64_t words[kLanes];
    std::memcpy(words, p, sizeof(words));
    for (int i = 0; i < kLanes; ++i) lane[i] = step(lane[i], words[i]);
  };
  size_t at = 0;
  for (; at + sizeof(lane) <= size; at += sizeof(lane)) eat(data + at);
  if (at < size) {
    uint8_t last[sizeof(lane)] = {};
    std::memcpy(last, data + at, size - at);
    eat(last);
  }
  uint64_t sum = size;
  for (uint64_t l : lane) sum = fold(sum, l);
  return sum;
}

uint64_t finish(uint64_t folded, uint64_t total) { return step(fold(folded, total), 0); }

}  // namespace

std::vector<uint64_t> checksums64(std::span<const std::span<const uint8_t>> pieces) {
  std::vector<std::span<const uint8_t>> chunks;
  for (const std::span<const uint8_t> piece : pieces) {
    for (size_t at = 0; at < piece.size(); at += kChunk)
      chunks.push_back(piece.subspan(at, std::min(kChunk, piece.size() - at)));
  }
  std::vector<uint64_t> sums(chunks.size());
  parallel_for(static_cast<int64_t>(chunks.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const std::span<const uint8_t> chunk = chunks[static_cast<size_t>(i)];
      sums[static_cast<size_t>(i)] = checksum_chunk(chunk.data(), chunk.size());
    }
  });
  std::vector<uint64_t> values;
  auto sum = sums.begin();
  for (const std::span<const uint8_t> piece : pieces) {
    uint64_t folded = kStart;
    for (size_t at = 0; at < piece.size(); at += kChunk) folded = fold(folded, *sum++);
    values.push_back(finish(folded, piece.size()));
  }
  return values;
}

uint64_t checksum64(std::span<const uint8_t> bytes) { return checksums64({&bytes, 1})[0]; }

Checksum64::Checksum64() : pending_(kChunk), folded_(kStart) {}

void Checksum64::add(std::span<const uint8_t> piece) {
  total_ += piece.size();
  while (!piece.empty()) {
    if (filled_ == 0 && piece.size() >= kChunk) {
      folded_ = fold(folded_, checksum_chunk(piece.data(), kChunk));
      piece = piece.subspan(kChunk);
      continue;
    }
    const size_t take = std::min(piece.size(), kChunk - filled_);
    std::memcpy(pending_.data() + filled_, piece.data(), take);
    filled_ += take;
    piece = piece.subspan(take);
    if (filled_ == kChunk) {
      folded_ = fold(folded_, checksum_chunk(pending_.data(), kChunk));
      filled_ = 0;
    }
  }
}

void Checksum64::add_zeros(size_t count) {
  constexpr uint8_t kZeros[256] = {};
  for (; count > 0; count -= std::min(count, sizeof(kZeros))) add({kZeros, std::min(count, sizeof(kZeros))});
}

uint64_t Checksum64::value() const {
  return finish(filled_ ? fold(folded_, checksum_chunk(pending_.data(), filled_)) : folded_, total_);
}

}  // namespace tessera
