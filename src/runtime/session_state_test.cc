// SPDX-License-Identifier: Apache-2.0
// A session and its state: who may come between, what an ended schedule leaves, which plans go together.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>

#include "base/progress_sink.h"
#include "plan/engine_file.h"
#include "plan/join_engines.h"
#include "runtime/session.h"
#include "runtime/test_sessions.h"
#include "testing/lowered_engine.h"

namespace tessera {
namespace {

// Runs of graphs by themselves, whole schedules and clear() over one state, from another thread and from the one that
// runs: none comes in between two steps of a schedule.
TEST(SessionState, AScheduleHasTheStateToItself) {
  const Engine e = counting_engine();
  auto state = State::make(e, DeviceKind::kHost);
  ASSERT_TRUE(state.ok());
  std::function<void()> meddle;
  int asked = 0;
  const auto a = Session::make(e, {.state = *state, .go_on = [&] {
                                     ++asked;
                                     if (meddle) meddle();
                                     return true;
                                   }});
  const auto b = Session::make(e, {.state = *state});
  ASSERT_TRUE(a.ok() && b.ok());
  const auto step_of_a = (*a)->graph("step"), begin_of_b = (*b)->graph("begin");
  ASSERT_TRUE(step_of_a.ok() && begin_of_b.ok());
  const std::vector<float> x = test_input(kCount, 1), other = test_input(kCount, 2);
  std::vector<float> y(kCount, -1), lost(kCount);
  const auto try_all = [&] {
    const void* in[] = {other.data()};
    const void* in_begin[] = {other.data(), nullptr};
    const void* none[] = {nullptr};
    void* out[] = {lost.data()};
    void* kept[] = {nullptr};
    void* both[] = {nullptr, lost.data()};
    EXPECT_EQ((*state)->clear().message(), "the state is in use in another thread");
    EXPECT_NE((*b)->run(in, out).message().find("the state of this session is in use"), std::string::npos);
    EXPECT_FALSE((*b)->time_runs(in, 1).ok());
    EXPECT_NE((*begin_of_b)->run(in_begin, kept).message().find("the state of this executor"), std::string::npos);
    EXPECT_NE((*step_of_a)->run(none, both).message().find("the state of this executor"), std::string::npos);
  };
  meddle = [&] {
    try_all();
    std::thread(try_all).join();
  };
  const void* in[] = {x.data()};
  void* out[] = {y.data()};
  ASSERT_TRUE((*a)->run(in, out).ok());
  EXPECT_EQ(y, after(x, 10));
  EXPECT_EQ(asked, 1 + 10 * 3);
  EXPECT_TRUE((*a)->time_runs(in, 1, 0).ok());
  meddle = nullptr;
  ASSERT_TRUE((*b)->run(in, out).ok()) << "the state is free again";
  EXPECT_EQ(y, after(x, 10));
}

// Between two graphs, where no executor runs: the second one is bound there, which asks `admit`.
TEST(SessionState, NobodyComesBetweenTwoGraphs) {
  const Engine e = counting_engine();
  const std::vector<float> x = test_input(kCount, 1), other = test_input(kCount, 2);
  using Meddle = std::function<Status(State&, Session&)>;
  const auto run_other = [&](State&, Session& b) {
    std::vector<float> lost(kCount);
    const void* in[] = {other.data()};
    void* out[] = {lost.data()};
    return b.run(in, out);
  };
  const auto run_begin = [&](State&, Session& b) {
    const void* in[] = {other.data(), nullptr};
    void* out[] = {nullptr};
    return (*b.graph("begin"))->run(in, out);
  };
  for (const Meddle& meddle :
       {Meddle(run_other), Meddle(run_begin), Meddle([](State&s, Session&) { return s.clear(); })}) {
    for (const bool timed : {false, true}) {
      auto state = State::make(e, DeviceKind::kHost);
      ASSERT_TRUE(state.ok());
      const auto b = Session::make(e, {.state = *state});
      ASSERT_TRUE(b.ok());
      ASSERT_TRUE(meddle(**state, **b).ok());
      Status came;
      const auto a = Session::make(e, {.state = *state, .admit = [&](const Plan& p) {
                                         if (p.name == "step") std::thread([&] { came = meddle(**state, **b); }).join();
                                         return Status();
                                       }});
      ASSERT_TRUE(a.ok());
      std::vector<float> y(kCount, -1);
      const void* in[] = {x.data()};
      void* out[] = {y.data()};
      ASSERT_TRUE(timed ? (*a)->time_runs(in, 1, 0).ok() : (*a)->run(in, out).ok());
      EXPECT_FALSE(came.ok()) << "it came in between";
      std::memcpy(y.data(), (*state)->blocks()[0], kCount * 4);
      EXPECT_EQ(y, after(x, 10));
      EXPECT_TRUE(meddle(**state, **b).ok());
    }
  }
}

// What the steps before wrote stays in the state, and the next schedule is a whole one.
TEST(SessionState, AScheduleIsEnded) {
  const Engine e = counting_engine();
  int asked = 0, stop_at = 0;
  const auto session = Session::make(e, {.go_on = [&] { return ++asked != stop_at; }});
  ASSERT_TRUE(session.ok());
  const std::vector<float> x = test_input(kCount, 1);
  std::vector<float> y(kCount, -1);
  const void* in[] = {x.data()};
  void* out[] = {y.data()};
  for (const int at : {1, 2, 3, 4, 5, 31}) {
    ASSERT_TRUE((*session)->clear().ok());
    asked = 0, stop_at = at;
    const Status ended = (*session)->run(in, out);
    EXPECT_EQ(ended.code(), kCancelled) << at;
    EXPECT_EQ(asked, at) << "it went on";
    std::vector<float> kept(kCount);
    std::memcpy(kept.data(), (*session)->state()->blocks()[0], kCount * 4);
    // Step 1 is `begin`; of each `step` that follows, the second keeps the sum.
    EXPECT_EQ(kept, at == 1 ? std::vector<float>(kCount, 0) : after(x, (at - 1) / 3)) << at;
    stop_at = 0;
    ASSERT_TRUE((*session)->run(in, out).ok());
    EXPECT_EQ(y, after(x, 10));
  }
}

TEST(SessionState, PlansThatAreNotAdmittedAreNotUsed) {
  const Engine e = bucketed_engine();
  std::string refused;
  const auto session = Session::make(
      e, {.admit = [&](const Plan& p) { return p.name == refused ? bad_input("not this one") : Status(); }});
  ASSERT_TRUE(session.ok());
  refused = "begin.rows2";
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ((*session)->use({{"begin", "begin.rows2"}}).message(), "not this one");
    EXPECT_EQ((*(*session)->plan("begin"))->name, "begin.rows4");
    ASSERT_EQ((*session)->inputs().size(), 1u);
    EXPECT_EQ((*session)->inputs()[0].plan->name, "begin.rows4");
    const std::vector<float> x = test_input(4 * kCols, turn);
    std::vector<float> y(4 * kCols, -1), want(4 * kCols);
    take_rows(want, x);
    const void* in[] = {x.data()};
    void* out[] = {y.data()};
    ASSERT_TRUE((*session)->run(in, out).ok());
    EXPECT_EQ(y, want);
  }
  refused.clear();
  EXPECT_TRUE((*session)->use({{"begin", "begin.rows2"}}).ok()) << "asked again";
}

// Both graphs have a plan for four rows and one for two.
TEST(SessionState, PlansOfAScheduleHaveOneSize) {
  Engine e = bucketed_engine();
  Plan few = e.plans[1];
  e.plans[1].name = "step.rows4", e.plans[1].sizes = {{"rows", 4}};
  for (PlanTensor& t : few.tensors) t = test_tensor(t.name, {1, 2, kCols}, t.storage, t.index);
  few.arena_bytes = 2 * kCols * 4;
  few.name = "step.rows2", few.sizes = {{"rows", 2}};
  e.plans.push_back(few);
  const Status sound = check_engine(e);
  ASSERT_TRUE(sound.ok()) << sound.message();
  const auto session = Session::make(e);
  ASSERT_TRUE(session.ok()) << session.status().message();
  EXPECT_EQ((*session)->use({{"begin", "begin.rows2"}}).message(),
            "the schedule: plan 'step.rows4' of graph 'step' is for 'rows' = 4, and plan 'begin.rows2' of graph "
            "'begin' for 2; plans of one size are wanted: name one of each graph");
  EXPECT_EQ((*(*session)->plan("begin"))->name, "begin.rows4") << "it stays as it was";
  EXPECT_FALSE(Session::make(e, {.cases = {{"step", "step.rows2"}}}).ok());
  ASSERT_TRUE((*session)->use({{"begin", "begin.rows2"}, {"step", "step.rows2"}}).ok());
  const std::vector<float> x = test_input(2 * kCols, 1);
  std::vector<float> y(2 * kCols, -1), want(2 * kCols);
  take_rows(want, x);
  const void* in[] = {x.data()};
  void* out[] = {y.data()};
  ASSERT_TRUE((*session)->run(in, out).ok());
  EXPECT_EQ(y, want);
  e.schedule.clear();  // parts by hand: whoever runs them sees to it
  const auto parts = Session::make(e);
  ASSERT_TRUE(parts.ok());
  EXPECT_TRUE((*parts)->use({{"begin", "begin.rows2"}}).ok());
}

// `first` writes a row of a cache, `second` the row `at`; y is all of the cache, negated.
Engine caching_engine(Arch arch) {
  constexpr const char* kFirst = R"(graph first {
    in %x: f32[1,1,4]
    in %cache: f32[1,4,4]
    %after: f32[1,4,4] = write(%cache, %x) {axis=1, at=0} @"write"
    out %after
    state %cache = %after
  })";
  constexpr const char* kSecond = R"(graph second {
    in %x: f32[1,1,4]
    in %at: i32[1]
    in %cache: f32[1,4,4]
    %after: f32[1,4,4] = write(%cache, %x, %at) {axis=1} @"write"
    %y: f32[1,4,4] = map(%after) {fn="neg"} @"neg"
    out %y
    out %after
    state %cache = %after
  })";
  auto both = join_engines({lowered_engine(kFirst, "first", arch), lowered_engine(kSecond, "second", arch)});
  EXPECT_TRUE(both.ok()) << both.status().message();
  if (!both.ok()) return {};
  both->schedule = {{"first", 1}, {"second", 1}};
  const Status sound = check_engine(*both);
  EXPECT_TRUE(sound.ok()) << sound.message();
  return std::move(both).value();
}

// Every target says the same, and before anything is written: a kernel would clamp the number without a word.
void refuse_numbers(Arch arch) {
  const Engine e = caching_engine(arch);
  const auto session = Session::make(e);
  ASSERT_TRUE(session.ok()) << session.status().message();
  ASSERT_EQ((*session)->inputs().size(), 2u);
  ASSERT_EQ((*session)->inputs()[1].name, "at");
  const std::vector<float> x = {5, 6, 7, 8};
  std::vector<float> y(16, -7);
  void* out[] = {y.data()};
  for (const int32_t at : {4, -1, 1 << 30}) {
    const void* in[] = {x.data(), &at};
    const std::string refusal = cat("graph 'second': input 'at' of plan 'second' is ", at,
                                    "; the cache has room for 0 to 3 rows before the new ones");
    EXPECT_EQ((*session)->run(in, out).message(), refusal);
    EXPECT_EQ((*session)->time_runs(in, 1, 0).status().message(), refusal);
  }
  EXPECT_EQ(y, std::vector<float>(16, -7));
  const auto second = (*session)->graph("second");
  ASSERT_TRUE(second.ok()) << second.status().message();
  const int32_t last = 3;
  const void* alone[] = {x.data(), &last, nullptr};
  void* kept[] = {y.data(), nullptr};
  ASSERT_TRUE((*second)->run(alone, kept).ok());
  EXPECT_EQ(y[0], 0) << "the first graph ran in a call that was refused";
  EXPECT_EQ(y[12], -5);
  const void* in[] = {x.data(), &last};
  ASSERT_TRUE((*session)->run(in, out).ok());
  EXPECT_EQ(y[0], -5);
  EXPECT_EQ(y[12], -5);
}

TEST(SessionState, NumbersThatACacheHasNoRoomForAreRefused) { refuse_numbers(Arch::cpu); }

// Without a GPU too: the test on a GPU has plans to run.
TEST(SessionState, TheTestsCacheIsAcceptedOnAGpu) { EXPECT_EQ(caching_engine(Arch::cuda).plans.size(), 2u); }

TEST(SessionState, NumbersThatACacheHasNoRoomForAreRefused_cuda) {
  if (const std::string why = why_not_here(Arch::cuda); !why.empty()) GTEST_SKIP() << why;
  refuse_numbers(Arch::cuda);
}

// What a plan leaves in a state is what the next one takes it for.
TEST(SessionState, OutputsInAStateHaveItsForm) {
  const auto refusal = [](const Operand& desc) {
    Engine e = counting_engine();
    PlanTensor odd = e.plans[0].tensors[2];
    odd.name = "odd", odd.desc = desc;
    e.plans[0].tensors.push_back(odd);
    e.plans[0].outputs.push_back({"odd", static_cast<int>(e.plans[0].tensors.size()) - 1});
    return check_engine(e).message();
  };
  EXPECT_EQ(refusal(dense_operand({kRows, kCols}, Element::f32)), "");
  EXPECT_NE(refusal(dense_operand({kRows, 2}, Element::f32))
                .find("state 'sum' is f32[3,5] and, as output 'odd' of plan 'begin', f32[3,2]"),
            std::string::npos);
  EXPECT_NE(refusal(dense_operand({kRows, kCols}, Element::i32)).find("'odd' of plan 'begin', i32[3,5]"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera
