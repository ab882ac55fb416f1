// SPDX-License-Identifier: Apache-2.0
// Sessions through the C ABI: other plans between two runs, a second thread, runs that are ended. The engine has golden
// values, for which a session asks before a plan serves. library_cpp_test.cc has the same of tessera.hpp.
#include <gtest/gtest.h>
#include <tessera/tessera.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "runtime/test_engine.h"
#include "testing/library_calls.h"
#include "testing/session_engine.h"

namespace tessera {
namespace {

constexpr int64_t kMost = kMostRows, kFew = kFewRows, kCols = kCountedCols;

std::vector<float> weights(size_t count) {
  std::vector<float> w(count);
  for (size_t i = 0; i < count; ++i) w[i] = test_weight(static_cast<int64_t>(i));
  return w;
}

const tess_case kCasesOfFew[] = {{"begin", "begin.rows2"}, {"step", "step.rows2"}},
                kCasesOfMost[] = {{"begin", "begin.rows4"}, {"step", "step.rows4"}};

Held<tess_session> make_session(const Held<tess_engine>& engine, const tess_case* cases = nullptr,
                                tess_state* state = nullptr) {
  tess_session_options options{};
  options.size = sizeof(options), options.state = state;
  options.cases = cases, options.case_count = cases == nullptr ? 0 : 2;
  tess_session* session = nullptr;
  EXPECT_OK(tess_session_make(engine.get(), &options, &session));
  return Held<tess_session>(session);
}

// A run with so many rows. Behind each array lie rows that must stay as they are.
struct Call {
  explicit Call(int64_t of_rows, float first)
      : rows(of_rows),
        count(static_cast<size_t>(of_rows * kCols)),
        x(2 * kRoom),
        y(2 * kRoom, NAN),
        echo(2 * kRoom, -9) {
    for (size_t i = 0; i < x.size(); ++i) x[i] = first + static_cast<float>(i);
  }
  int run(tess_session* session, std::string* said = nullptr) {
    HostTensor in(x, {1, rows, kCols}), echoed(echo, {1, rows, kCols}), out(y, {1, rows, kCols});
    const tess_tensor* ins[] = {&in.tensor};
    tess_tensor* outs[] = {&echoed.tensor, &out.tensor};
    std::fill(y.begin(), y.end(), -9.0f), std::fill(echo.begin(), echo.end(), -9.0f);
    return code_of(tess_session_run(session, ins, 1, outs, 2), said);
  }
  void check() const {
    const std::vector<float> w = weights(count);
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(echo[i], i < count ? x[i] : -9) << i;
      ASSERT_EQ(y[i], i < count ? x[i] + 10 * w[i] : -9) << i;
    }
  }
  static constexpr size_t kRoom = kMost * kCols;
  int64_t rows;
  size_t count;
  std::vector<float> x, y, echo;
};

int64_t rows_of_port(tess_session* session, int32_t is_output, size_t port) {
  tess_port_info info{};
  info.size = sizeof(info);
  EXPECT_OK(tess_session_port(session, is_output, port, &info));
  return info.ndim == 3 ? info.shape[1] : -1;
}

TEST(LibrarySession, TakesOtherPlans) {
  const EngineFolder folder;
  const Held<tess_engine> engine = open_file(session_engine(folder.path()));
  const Held<tess_session> session = make_session(engine);
  ASSERT_NE(session, nullptr);
  for (const int64_t rows : {kMost, kFew, kMost, kFew, kFew, kMost}) {
    ASSERT_OK(tess_session_use(session.get(), rows == kFew ? kCasesOfFew : kCasesOfMost, 2));
    EXPECT_EQ(rows_of_port(session.get(), 0, 0), rows);
    EXPECT_EQ(rows_of_port(session.get(), 1, 1), rows);
    Call call(rows, static_cast<float>(100 * rows)), other(kFew + kMost - rows, 1);
    ASSERT_EQ(call.run(session.get()), TESS_OK);
    call.check();
    EXPECT_EQ(other.run(session.get()), TESS_BAD_INPUT) << "arrays of the plans that it does not use";
  }
  // Plans that do not go together: those before stay.
  std::string said;
  ASSERT_EQ(code_of(tess_session_use(session.get(), kCasesOfFew, 1), &said), TESS_BAD_INPUT);
  EXPECT_NE(said.find("plans of one size are wanted"), std::string::npos) << said;
  Call call(kMost, 3);
  ASSERT_EQ(call.run(session.get()), TESS_OK);
  call.check();
}

// The plan for more rows does not reproduce its golden values: the session goes on with what it had, and takes only
// what fits that.
TEST(LibrarySession, PlansThatFailTheirCheckAreNotTaken) {
  const EngineFolder folder;
  const Held<tess_engine> engine = open_file(session_engine(folder.path(), /*failing=*/true));
  const Held<tess_session> session = make_session(engine, kCasesOfFew);
  ASSERT_NE(session, nullptr);
  for (int turn = 0; turn < 3; ++turn) {
    std::string said;
    ASSERT_EQ(code_of(tess_session_use(session.get(), kCasesOfMost, 2), &said), TESS_VERIFY_FAILED) << said;
    EXPECT_EQ(rows_of_port(session.get(), 0, 0), kFew);
    EXPECT_EQ(rows_of_port(session.get(), 1, 0), kFew);
    Call call(kFew, static_cast<float>(turn));
    ASSERT_EQ(call.run(session.get(), &said), TESS_OK) << said;
    call.check();
    Call larger(kMost, 1);
    EXPECT_EQ(larger.run(session.get()), TESS_BAD_INPUT);
  }
  tess_session_options options{};
  options.size = sizeof(options), options.cases = kCasesOfMost, options.case_count = 2;
  tess_session* none = nullptr;
  EXPECT_EQ(code_of(tess_session_make(engine.get(), &options, &none)), TESS_VERIFY_FAILED);
  EXPECT_EQ(none, nullptr);
}

// Ports are asked for in one thread while another changes the plans: each answer is of one combination.
TEST(LibrarySession, PortsWhilePlansChange) {
  const EngineFolder folder;
  const Held<tess_engine> engine = open_file(session_engine(folder.path()));
  const Held<tess_session> session = make_session(engine);
  ASSERT_NE(session, nullptr);
  std::atomic<bool> done{false};
  std::thread changes([&] {
    for (int turn = 0; turn < 3000; ++turn)
      EXPECT_OK(tess_session_use(session.get(), turn % 2 == 0 ? kCasesOfFew : kCasesOfMost, 2));
    done = true;
  });
  int64_t seen[2] = {0, 0};
  while (!done) {
    size_t count = 0;
    ASSERT_OK(tess_session_port_count(session.get(), 1, &count));
    ASSERT_EQ(count, 2u);
    tess_port_info info{};
    info.size = sizeof(info);
    ASSERT_OK(tess_session_port(session.get(), 1, 1, &info));
    ASSERT_STREQ(info.name, "y");
    ASSERT_EQ(info.ndim, 3);
    ASSERT_TRUE(info.shape[1] == kFew || info.shape[1] == kMost) << info.shape[1];
    ASSERT_EQ(info.bytes, info.shape[1] * kCols * 4);
    ++seen[info.shape[1] == kFew ? 0 : 1];
  }
  changes.join();
  EXPECT_GT(seen[0] + seen[1], 0);
}

TEST(LibrarySession, ASecondThreadIsTurnedAway) {
  const EngineFolder folder;
  const Held<tess_engine> engine = open_file(session_engine(folder.path()));
  tess_state* made = nullptr;
  ASSERT_OK(tess_state_make(engine.get(), 0, &made));
  const Held<tess_state> state(made);
  const Held<tess_session> a = make_session(engine, kCasesOfFew, state.get()), b = make_session(engine, nullptr, made);
  ASSERT_TRUE(a != nullptr && b != nullptr);
  struct Meddler {
    tess_session *a, *b;
    tess_state* state;
    int asked;
  } meddler{a.get(), b.get(), state.get(), 0};
  // In the middle of a's schedule, from another thread: whatever needs the session or its state is busy.
  ASSERT_OK(tess_session_watch(
      a.get(),
      [](void* user) -> int32_t {
        auto& m = *static_cast<Meddler*>(user);
        ++m.asked;
        std::thread([&] {
          Call few(kFew, 1), most(kMost, 1);
          EXPECT_EQ(few.run(m.a), TESS_BUSY);
          EXPECT_EQ(most.run(m.b), TESS_BUSY);
          EXPECT_EQ(code_of(tess_session_use(m.a, kCasesOfMost, 2)), TESS_BUSY);
          EXPECT_EQ(code_of(tess_session_clear(m.b)), TESS_BUSY);
          EXPECT_EQ(code_of(tess_state_clear(m.state)), TESS_BUSY);
          EXPECT_EQ(code_of(tess_session_watch(m.a, nullptr, nullptr)), TESS_BUSY);
          EXPECT_EQ(rows_of_port(m.a, 0, 0), kFew) << "ports are told meanwhile";
        }).join();
        return 1;
      },
      &meddler));
  Call call(kFew, 7);
  ASSERT_EQ(call.run(a.get()), TESS_OK);
  call.check();
  EXPECT_EQ(meddler.asked, 2 + 10 * 3);
  Call other(kMost, 5);
  ASSERT_EQ(other.run(b.get()), TESS_OK);
  other.check();
}

// Between the steps, by the function and from another thread; the next run is a new one.
TEST(LibrarySession, ARunIsEnded) {
  const EngineFolder folder;
  const Held<tess_engine> engine = open_file(session_engine(folder.path()));
  const Held<tess_session> session = make_session(engine, kCasesOfFew);
  ASSERT_NE(session, nullptr);
  struct Watched {
    tess_session* session;
    int asked, stop_at;
    bool cancels;
  } w{session.get(), 0, 0, false};
  ASSERT_OK(tess_session_watch(
      session.get(),
      [](void* user) -> int32_t {
        auto& watched = *static_cast<Watched*>(user);
        if (++watched.asked != watched.stop_at) return 1;
        if (!watched.cancels) return 0;
        std::thread([&] { EXPECT_OK(tess_session_cancel(watched.session)); }).join();
        return 1;
      },
      &w));
  for (const bool cancels : {false, true}) {
    for (const int at : {1, 2, 7, 31}) {
      w.asked = 0, w.stop_at = at, w.cancels = cancels;
      Call call(kFew, 3);
      std::string said;
      EXPECT_EQ(call.run(session.get(), &said), TESS_CANCELLED) << at;
      EXPECT_NE(said.find("cancelled"), std::string::npos) << said;
      EXPECT_EQ(w.asked, at) << "it went on";
      w.stop_at = 0;
      ASSERT_EQ(call.run(session.get()), TESS_OK) << at;
      call.check();
    }
  }
  EXPECT_OK(tess_session_cancel(session.get()));  // before a run: none
  EXPECT_OK(tess_session_watch(session.get(), nullptr, nullptr));
  Call call(kFew, 4);
  ASSERT_EQ(call.run(session.get()), TESS_OK);
  call.check();
  EXPECT_EQ(code_of(tess_session_cancel(nullptr)), TESS_USAGE);
  EXPECT_EQ(code_of(tess_session_watch(nullptr, nullptr, nullptr)), TESS_USAGE);
}

}  // namespace
}  // namespace tessera
