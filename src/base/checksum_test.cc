// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <random>
#include <set>

#include "base/parallel.h"

namespace tessera {
namespace {

std::vector<uint8_t> random_bytes(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> bytes(n);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(random());
  return bytes;
}

constexpr size_t kMiB = size_t{1} << 20;

TEST(Checksum, PiecesAndThreadsDoNotMatter) {
  std::mt19937_64 random(7);
  for (size_t size :
       {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, kMiB - 1, kMiB, kMiB + 1, 3 * kMiB + 12345}) {
    const std::vector<uint8_t> bytes = random_bytes(size, size);
    set_threads(1);
    const uint64_t want = checksum64(bytes);
    set_threads(3);
    EXPECT_EQ(checksum64(bytes), want) << size;
    Checksum64 pieces;
    for (size_t at = 0; at < size;) {
      const size_t take = std::min<size_t>(size - at, 1 + random() % (random() % 4 ? 5000 : 2 * kMiB));
      pieces.add({bytes.data() + at, take});
      at += take;
    }
    EXPECT_EQ(pieces.value(), want) << size;
  }
  set_threads(0);
}

TEST(Checksum, ZerosCountLikeBytes) {
  for (size_t zeros : {0, 1, 255, 256, 257, 70000}) {
    std::vector<uint8_t> bytes(zeros + 3, 0);
    bytes[0] = 1, bytes[1] = 2, bytes.back() = 3;
    Checksum64 sum;
    const uint8_t front[] = {1, 2}, back[] = {3};
    sum.add(front);
    sum.add_zeros(zeros);
    sum.add(back);
    EXPECT_EQ(sum.value(), checksum64(bytes)) << zeros;
  }
}

TEST(Checksum, EveryFlipAndLengthShows) {
  std::vector<uint8_t> bytes = random_bytes(333, 3);
  std::set<uint64_t> seen{checksum64(bytes)};
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    EXPECT_TRUE(seen.insert(checksum64(bytes)).second) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
  }
  const std::vector<uint8_t> zeros(500, 0);
  for (size_t n = 0; n < zeros.size(); ++n)
    EXPECT_TRUE(seen.insert(checksum64({zeros.data(), n})).second) << n << " zeros";
}

// The value is part of the engine file's format: it may not change.
TEST(Checksum, ValuesStay) {
  std::vector<uint8_t> bytes(2 * kMiB + 77);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 131 + (i >> 8));
  EXPECT_EQ(checksum64({}), 0xfc2a1896ad490baeu);
  EXPECT_EQ(checksum64(bytes), 0x85bf8bd3628b429eu);
}

TEST(Checksum, PrintsItsSpeed) {
  const std::vector<uint8_t> bytes(64 * kMiB, 5);
  set_threads(1);
  const auto start = std::chrono::steady_clock::now();
  const uint64_t sum = checksum64(bytes);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  set_threads(0);
  std::printf("checksum64: %.1f GB/s on one core (%016llx)\n", static_cast<double>(bytes.size()) / seconds / 1e9,
              static_cast<unsigned long long>(sum));
}

}  // namespace
}  // namespace tessera
