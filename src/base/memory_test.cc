// SPDX-License-Identifier: Apache-2.0
#include "base/memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace tessera {
namespace {

TEST(Memory, WhatIsThereIsGiven) {
  EXPECT_GT(available_memory(), int64_t{1} << 20);
  auto buffer = allocate(1000, "a test");
  ASSERT_TRUE(buffer.ok());
  ASSERT_EQ(buffer->size(), 1000u);
  for (size_t i = 0; i < 1000; ++i) ASSERT_EQ(buffer->data()[i], 0);
  EXPECT_TRUE(allocate(0, "nothing").ok());
}

TEST(Memory, WhatIsNotThereIsRefusedByName) {
  for (const int64_t bytes : {int64_t{1} << 46, int64_t{1} << 62, INT64_MAX}) {
    const auto buffer = allocate(bytes, "tensor 'w'");
    ASSERT_FALSE(buffer.ok());
    EXPECT_EQ(buffer.status().code(), Code::kMachine);
    EXPECT_TRUE(buffer.status().message().starts_with(cat("no memory for tensor 'w': ", bytes, " bytes are wanted, ")))
        << buffer.status().message();
  }
}

TEST(Memory, TheProcessesOwnLimitCounts) {
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &old), 0);
  const rlimit tight{.rlim_cur = rlim_t{4} << 30, .rlim_max = old.rlim_max};
  if (setrlimit(RLIMIT_AS, &tight) != 0) GTEST_SKIP() << "no limit can be set here";
  const int64_t have = available_memory();
  const auto buffer = allocate(int64_t{5} << 30, "x");
  ASSERT_EQ(setrlimit(RLIMIT_AS, &old), 0);
  EXPECT_LE(have, int64_t{4} << 30);
  EXPECT_FALSE(buffer.ok());
}

}  // namespace
}  // namespace tessera
