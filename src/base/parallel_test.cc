// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <vector>

namespace tessera {
namespace {

TEST(ParallelFor, CoversEveryItemOnce) {
  set_threads(3);
  std::vector<std::atomic<int>> seen(1001);
  parallel_for(1001, 7, [&](int64_t begin, int64_t end) {
    EXPECT_LE(end - begin, 7);
    for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
  });
  for (const auto& s : seen) EXPECT_EQ(s, 1);
  set_threads(0);
}

TEST(ParallelFor, MemoryThatRunsOutInAPieceReachesTheCaller) {
  for (int threads : {1, 4}) {
    set_threads(threads);
    for (int64_t bad : {0, 50, 99}) {
      EXPECT_THROW(parallel_for(100, 1,
                                [&](int64_t begin, int64_t end) {
                                  if (begin <= bad && bad < end) throw std::bad_alloc();
                                }),
                   std::bad_alloc);
      std::atomic<int64_t> sum{0};
      parallel_for(100, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) sum += i;
      });
      EXPECT_EQ(sum, 4950) << "the pool works on";
    }
  }
  set_threads(0);
}

}  // namespace
}  // namespace tessera
