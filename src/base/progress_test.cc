// SPDX-License-Identifier: Apache-2.0
#include "base/progress.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace tessera {
namespace {

TEST(Progress, LineShowsShareCountAndTime) {
  EXPECT_EQ(progress_line("calibrating", 0, 128, 0.2), "calibrating [........................]   0 %  0 of 128, 0 s");
  EXPECT_EQ(progress_line("calibrating", 64, 128, 3.4), "calibrating [############............]  50 %  64 of 128, 3 s");
  EXPECT_EQ(progress_line("x", 2, 2, 10), "x [########################] 100 %  2 of 2, 10 s");
  EXPECT_EQ(progress_line("more", 9, 2, 1), "more [########################] 100 %  9 of 2, 1 s");
  EXPECT_EQ(progress_line("none", 0, 0, 1), "none [########################] 100 %  0 of 0, 1 s");
}

TEST(Progress, WritesNothingToAPipe) {
  testing::internal::CaptureStderr();  // a file, so not a terminal
  {
    Progress progress("work", 400);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 100; ++i) progress.advance();
      });
    for (std::thread& t : threads) t.join();
    progress.done();
    progress.done();
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace tessera
