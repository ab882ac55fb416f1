// SPDX-License-Identifier: Apache-2.0
// States from graph to session (docs/design/0029): what a run leaves is what the next one finds, in place where that is
// safe, and two sessions do not meet.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "ir/text.h"
#include "plan/engine_file.h"
#include "plan/join_engines.h"
#include "runtime/session.h"
#include "testing/lowered_engine.h"

namespace tessera {
namespace {

size_t count_steps(const Plan& plan, const std::string& op) {
  return static_cast<size_t>(
      std::count_if(plan.steps.begin(), plan.steps.end(), [&](const PlanStep& s) { return s.op == op; }));
}

// x is written at row `at` of a cache; y is all of the cache.
constexpr const char* kCache = R"(graph cache {
  in %x: f32[1,1,2]
  in %at: i32[1]
  in %cache: f32[1,4,2]
  %after: f32[1,4,2] = write(%cache, %x, %at) {axis=1} @"write"
  %y: f32[1,4,2] = map(%after) {fn="neg"} @"neg"
  out %y
  out %after
  state %cache = %after
})";

TEST(States, CachesGrowInPlace) {
  const Engine e = lowered_engine(kCache);
  const Plan& plan = e.plans[0];
  ASSERT_EQ(e.states.size(), 1u);
  EXPECT_EQ(e.states[0].name, "cache");
  EXPECT_EQ(e.states[0].bytes, 32);
  EXPECT_EQ(count_steps(plan, "write"), 1u);
  EXPECT_EQ(count_steps(plan, "copy"), 0u) << "nothing is copied from run to run";
  for (const PlanStep& s : plan.steps) {
    if (s.op != "write") continue;
    EXPECT_EQ(plan.tensors[static_cast<size_t>(s.out[0])].storage, Storage::kState);
  }
  const auto a = Session::make(e), b = Session::make(e);
  ASSERT_TRUE(a.ok() && b.ok());
  for (int32_t turn = 0; turn < 4; ++turn) {
    for (const float sign : {1.0f, -1.0f}) {  // two sessions by turns
      const std::vector<float> x = {sign * static_cast<float>(turn + 1), sign * 10};
      std::vector<float> y(8, -7);
      const void* in[] = {x.data(), &turn};
      void* out[] = {y.data()};
      const Status ran = (sign > 0 ? *a : *b)->run(in, out);
      ASSERT_TRUE(ran.ok()) << ran.message();
      for (int32_t row = 0; row < 4; ++row) {
        const float want = row <= turn ? static_cast<float>(row + 1) : 0;
        EXPECT_EQ(y[static_cast<size_t>(2 * row)], -sign * want) << "turn " << turn << " row " << row;
      }
    }
  }
}

// A kernel would write over the last row, and the answers after it would be wrong without a word.
TEST(States, RowsThatACacheHasNoRoomForAreRefused) {
  const Engine e = lowered_engine(kCache);
  const auto session = Session::make(e);
  ASSERT_TRUE(session.ok());
  const std::vector<float> x = {5, 6};
  std::vector<float> y(8, -7);
  for (const bool enqueued : {false, true}) {
    for (const int32_t at : {4, -1, std::numeric_limits<int32_t>::max()}) {
      const void* in[] = {x.data(), &at};
      void* out[] = {y.data()};
      const Status ran = enqueued ? (*session)->enqueue(in, out, {}) : (*session)->run(in, out);
      EXPECT_EQ(ran.code(), Code::kBadInput);
      EXPECT_NE(ran.message().find(cat("input 'at' of plan 'main' is ", at,
                                       "; the cache has room for 0 to 3 rows before the new ones")),
                std::string::npos)
          << ran.message();
    }
  }
  const int32_t last = 3;
  const void* in[] = {x.data(), &last};
  void* out[] = {y.data()};
  ASSERT_TRUE((*session)->run(in, out).ok());
  EXPECT_EQ(y, (std::vector<float>{0, 0, 0, 0, 0, 0, -5, -6})) << "nothing was written by the runs before";
}

// The old cache is read after the new rows are made: what is written over would be lost.
TEST(States, WhatIsReadLaterIsNotWrittenOver) {
  const Engine e = lowered_engine(R"(graph late {
    in %x: f32[1,1,2]
    in %cache: f32[1,4,2]
    %after: f32[1,4,2] = write(%cache, %x) {axis=1, at=1} @"write"
    %y: f32[1,4,2] = map(%after, %cache) {fn="sub"} @"sub"
    out %y
    out %after
    state %cache = %after
  })");
  EXPECT_EQ(count_steps(e.plans[0], "write"), 2u) << "the result is written over the state at the end";
  const auto session = Session::make(e);
  ASSERT_TRUE(session.ok());
  float before = 0;
  for (const float v : {3.0f, 5.0f, 11.0f}) {
    const std::vector<float> x = {v, v};
    std::vector<float> y(8, -7);
    const void* in[] = {x.data()};
    void* out[] = {y.data()};
    ASSERT_TRUE((*session)->run(in, out).ok());
    EXPECT_EQ(y, (std::vector<float>{0, 0, v - before, v - before, 0, 0, 0, 0}));
    before = v;
  }
}

// A running sum, and two states that change places: neither is a cache.
TEST(States, AnyResultOfItsOwnShape) {
  const Engine e = lowered_engine(R"(graph sums {
    in %x: f32[1,3]
    in %sum: f32[1,3]
    in %a: f32[1,2]
    in %b: f32[1,2]
    %sum2: f32[1,3] = map(%sum, %x) {fn="add"} @"add"
    %y: f32[1,3] = map(%sum2) {fn="neg"} @"neg"
    %a2: f32[1,2] = copy(%b) @"a2"
    %b2: f32[1,2] = copy(%a) @"b2"
    %z: f32[1,2] = map(%a) {fn="neg"} @"z"
    out %y
    out %z
    out %sum2
    out %a2
    out %b2
    state %sum = %sum2
    state %a = %a2
    state %b = %b2
  })");
  EXPECT_EQ(e.states.size(), 3u);
  const auto session = Session::make(e);
  ASSERT_TRUE(session.ok()) << session.status().message();
  const auto executor = (*session)->graph("main");
  ASSERT_TRUE(executor.ok());
  float sum = 0;
  for (int turn = 0; turn < 4; ++turn) {
    const float v = static_cast<float>(turn + 1);
    const std::vector<float> x = {v, v, v}, a = {1, 2}, b = {3, 4};
    std::vector<float> y(3), z(2);
    const void* in[] = {x.data(), nullptr, turn == 0 ? a.data() : nullptr, turn == 0 ? b.data() : nullptr};
    void* out[] = {y.data(), z.data(), nullptr, nullptr, nullptr};
    ASSERT_TRUE((*executor)->run(in, out).ok());
    sum += v;
    EXPECT_EQ(y[0], -sum);
    EXPECT_EQ(z[0], turn % 2 == 0 ? -1.0f : -3.0f);
  }
}

// Two graphs of their own engines become one: states of one name are one, constants are there once.
TEST(States, GraphsShareThem) {
  const char* const kAdd = R"(graph add {
    in %x: f32[1,3]
    in %sum: f32[1,3]
    const %w: f32[3] = {1, 2, 3}
    %t: f32[1,3] = map(%x, %w) {fn="mul"} @"mul"
    %after: f32[1,3] = map(%sum, %t) {fn="add"} @"add"
    out %after
    state %sum = %after
  })";
  const char* const kShow = R"(graph show {
    in %sum: f32[1,3]
    const %w: f32[3] = {1, 2, 3}
    %y: f32[1,3] = map(%sum, %w) {fn="mul"} @"mul"
    out %y
    state %sum
  })";
  auto both = join_engines({lowered_engine(kAdd, "add"), lowered_engine(kShow, "show")});
  ASSERT_TRUE(both.ok()) << both.status().message();
  both->schedule = {{"add", 3}, {"show", 1}};
  const Status sound = check_engine(*both);
  ASSERT_TRUE(sound.ok()) << sound.message();
  EXPECT_EQ(both->states.size(), 1u);
  EXPECT_EQ(both->constants.size(), 1u);
  const auto session = Session::make(*both);
  ASSERT_TRUE(session.ok()) << session.status().message();
  const std::vector<float> x = {1, 1, 2};
  std::vector<float> y(3);
  const void* in[] = {x.data()};
  void* out[] = {y.data()};
  ASSERT_TRUE((*session)->run(in, out).ok());
  EXPECT_EQ(y, (std::vector<float>{3, 12, 54}));
  ASSERT_TRUE((*session)->run(in, out).ok());
  EXPECT_EQ(y, (std::vector<float>{6, 24, 108})) << "the state outlives an answer";
  ASSERT_TRUE((*session)->clear().ok());
  ASSERT_TRUE((*session)->run(in, out).ok());
  EXPECT_EQ(y, (std::vector<float>{3, 12, 54}));

  Engine larger = lowered_engine(kShow, "show");
  larger.states[0].bytes = 24;
  EXPECT_EQ(join_engines({lowered_engine(kAdd, "add"), larger}).status().message(),
            "state 'sum' has 24 bytes in graph 'show' and 12 in another: graphs share a state of one size");
}

TEST(States, TextSaysWhatCannotBeOne) {
  const auto error = [](const char* states) {
    return parse_graph(cat(R"(graph g {
      in %x: f32[1,3]
      in %h: f32[1,3]
      %y: f32[1,3] = map(%x, %h) {fn="add"} @"add"
      %n: f32[3] = view(%y) {offset=0, strides=[1]}
      out %y
      out %n
      )",
                           states, "\n}"))
        .status()
        .message();
  };
  EXPECT_EQ(error("state %h = %y"), "");
  EXPECT_NE(error("state %y = %y").find("a state names an input that is declared before it"), std::string::npos);
  EXPECT_NE(error("state %h = %h").find("a state names an output that is declared before it"), std::string::npos);
  EXPECT_NE(error("state %h = %n").find("begins as f32[1,3] and ends as f32[3]"), std::string::npos);
  EXPECT_NE(error("state %h = %y state %x = %y").find("belongs to another state"), std::string::npos);
}

}  // namespace
}  // namespace tessera
