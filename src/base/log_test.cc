// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <gtest/gtest.h>

#include <new>

namespace tessera {
namespace {

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

TEST(Log, WhatTheVariableSays) {
  const auto said = [](const char* text) {
    const LogChoice c = read_log_choice(text);
    return cat(c.most, c.given ? " given" : "", c.json ? " json" : "", c.wrong.empty() ? "" : " wrong " + c.wrong);
  };
  EXPECT_EQ(said(""), "2");
  EXPECT_EQ(said("none"), "-1 given");
  EXPECT_EQ(said("error"), "0 given");
  EXPECT_EQ(said("warning"), "1 given");
  EXPECT_EQ(said("note"), "2 given");
  EXPECT_EQ(said("json"), "2 given json");
  EXPECT_EQ(said("warning,json"), "1 given json");
  EXPECT_EQ(said("json,error"), "0 given json");
  EXPECT_EQ(said("loud"), "2 wrong loud");
  EXPECT_EQ(said("warning,loud"), "1 given wrong loud");
  EXPECT_EQ(said("WARNING"), "2 wrong WARNING");
}

TEST(Log, LinesOfJson) {
  EXPECT_EQ(json_line("T", LogLevel::kNote, "a line"), R"({"time":"T","level":"note","text":"a line"})");
  EXPECT_EQ(json_line("T", LogLevel::kError, "bad", 3), R"({"time":"T","level":"error","code":3,"text":"bad"})");
  EXPECT_EQ(json_line("T", LogLevel::kWarning, "q\"b\\s\nt\tz\x01"),
            "{\"time\":\"T\",\"level\":\"warning\",\"text\":\"q\\\"b\\\\s\\nt\\u0009z\\u0001\"}");
}

// Names come from other people's files.
TEST(Log, BytesThatAreNoTextAreReplaced) {
  const auto text = [](const std::string& bytes) {
    const std::string line = json_line("", LogLevel::kNote, bytes), front = R"({"time":"","level":"note","text":")";
    return line.substr(front.size(), line.size() - front.size() - 2);
  };
  for (const std::string good : {"\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xED\x9F\xBF", "\xF4\x8F\xBF\xBF"})
    EXPECT_EQ(text(good), good);
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(text("\xFF"), r);
  EXPECT_EQ(text("a\x80z"), "a" + r + "z");
  EXPECT_EQ(text("\xC3"), r) << "cut off";
  EXPECT_EQ(text("\xC0\xAF"), r + r) << "longer than it has to be";
  EXPECT_EQ(text("\xED\xA0\x80"), r + r + r) << "half of a pair";
  EXPECT_EQ(text("\xF4\x90\x80\x80"), r + r + r + r) << "beyond the last character";
}

}  // namespace
}  // namespace tessera
