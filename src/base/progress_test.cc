// SPDX-License-Identifier: Apache-2.0
#include "base/progress.h"

#include <gtest/gtest.h>

#include <new>
#include <thread>
#include <vector>

#include "base/log.h"

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

TEST(Log, QuietSilencesNotesAndWarnings) {
  testing::internal::CaptureStderr();
  note("one");
  warn("two");
  set_quiet(true);
  note("three");
  warn("four");
  set_quiet(false);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "tessera: one\ntessera: warning: two\n");
}

TEST(Log, ActivitiesNameWhatAnExceptionInterrupted) {
  const std::string plan = "batch8", layer = "blocks.0.mlp.fc1", done = "import";
  EXPECT_EQ(interrupted(), "");
  try {
    const Activity outer("plan", plan);
    { const Activity finished("stage", done); }
    const Activity inner("layer", layer);
    throw std::bad_alloc();
  } catch (const std::bad_alloc&) {
  }
  EXPECT_EQ(interrupted(), "layer blocks.0.mlp.fc1, plan batch8");
}

}  // namespace
}  // namespace tessera
