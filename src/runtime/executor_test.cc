// SPDX-License-Identifier: Apache-2.0
// Executors as others call them: from several threads, in a forked child, with states of their own or a shared one.
#include "runtime/executor.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/parallel.h"
#include "ops/ops.h"
#include "plan/engine_file.h"
#include "runtime/state.h"
#include "runtime/test_engine.h"
#include "runtime/weights.h"
#include "testing/turns.h"

namespace tessera {
namespace {

constexpr int kThreads = 8;
constexpr const char* kBusy =
    "this executor is running in another thread; make one executor per thread, they share the weights";

Engine engine_of(int64_t rows, int64_t cols) { return remembering_engine(Arch::cpu, rows, cols); }

std::unique_ptr<Executor> bound(const Engine& engine, const ExecutorOptions& options = {}) {
  auto executor = bind(engine, engine.plans[0], options);
  EXPECT_TRUE(executor.ok()) << executor.status().message();
  return executor.ok() ? std::move(executor).value() : nullptr;
}

// Calls body(t) in kThreads threads, all at once.
template <class F>
void in_threads(const F& body) {
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      ++ready;
      while (ready < kThreads) std::this_thread::yield();
      body(t);
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST(Executor, TheTestsEngineIsSound) {
  const Engine e = engine_of(2, 8);
  ASSERT_TRUE(check_engine(e).ok()) << check_engine(e).message();
  const auto executor = bound(e);
  const std::vector<float> first = test_input(16, 1), second = test_input(16, 2);
  const Answer a = answer_of(*executor, first), b = answer_of(*executor, second);
  ASSERT_TRUE(a.status.ok() && b.status.ok());
  EXPECT_TRUE(is_product(a.y, first));
  EXPECT_TRUE(is_product(b.y, second));
  EXPECT_FALSE(is_product(b.y, first));
  EXPECT_EQ(a.before, std::vector<float>(16, 0.0f));
  EXPECT_EQ(b.before, first);
}

// Without a GPU too: the tests of CUDA executors run what their kernels accept.
TEST(Executor, TheTestsEngineIsAcceptedOnAGpu) {
  const Engine e = remembering_engine(Arch::cuda, 256, 1024);
  ASSERT_TRUE(check_engine(e).ok()) << check_engine(e).message();
  for (const PlanStep& step : e.plans[0].steps) {
    const Variant* variant = find_variant(step.variant);
    ASSERT_NE(variant, nullptr) << step.variant;
    EXPECT_TRUE(variant->accepts(problem_of(e.plans[0], step))) << step.layer;
  }
}

TEST(Executor, OneInManyThreadsIsRightOrSaysThatItIsBusy) {
  const int runs = turns(kThreads * 200) / kThreads;
  const Engine e = engine_of(256, 256);
  const auto executor = bound(e);
  std::atomic<int> right{0}, refused{0}, wrong{0};
  in_threads([&](int t) {
    const std::vector<float> x = test_input(256 * 256, t);
    for (int run = 0; run < runs; ++run) {
      const Answer a = answer_of(*executor, x);
      if (a.status.ok()) {
        ++(is_product(a.y, x) ? right : wrong);
      } else {
        ++(a.status.message() == kBusy && a.y[0] == -1 ? refused : wrong);
      }
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(right + refused, kThreads * runs);
  EXPECT_GT(right, 0);
  EXPECT_GT(refused, 0) << "no two threads met: this test would say nothing";
  EXPECT_TRUE(answer_of(*executor, test_input(256 * 256, 1)).status.ok()) << "busy for ever";
}

TEST(Executor, OnePerThreadIsAlwaysRight) {
  const int runs = turns(kThreads * 50) / kThreads;
  const Engine e = engine_of(256, 256);
  for (const int threads : {0, 1, 2}) {  // the shared pool, and pools of their own
    std::vector<std::unique_ptr<Executor>> executors;
    for (int t = 0; t < kThreads; ++t) {
      executors.push_back(bound(e, {.threads = threads}));
      ASSERT_NE(executors.back(), nullptr);
    }
    std::atomic<int> wrong{0};
    in_threads([&](int t) {
      Executor& mine = *executors[static_cast<size_t>(t)];
      for (int run = 0; run < runs; ++run) {
        const std::vector<float> x = test_input(256 * 256, kThreads * run + t);
        const Answer a = answer_of(mine, x);
        const std::vector<float> last =
            run == 0 ? std::vector<float>(x.size(), 0.0f) : test_input(x.size(), kThreads * (run - 1) + t);
        if (!a.status.ok() || !is_product(a.y, x) || a.before != last) ++wrong;
      }
    });
    EXPECT_EQ(wrong, 0) << threads;
  }
}

TEST(Executor, HasThreadsOfItsOwnWhereAsked) {
  set_threads(2);
  const Engine e = engine_of(2, 8);
  EXPECT_TRUE(bound(e)->machine().ends_with(", 2 threads"));
  EXPECT_TRUE(bound(e, {.threads = 5})->machine().ends_with(", 5 threads"));
  EXPECT_TRUE(bound(e, {.threads = 1})->machine().ends_with(", 1 thread"));
  set_threads(3);
  EXPECT_TRUE(bound(e)->machine().ends_with(", 3 threads"));
  set_threads(0);
}

TEST(Executor, WeightsOnTheHostAreTheEnginesOwn) {
  const Engine e = engine_of(2, 8);
  const auto a = Weights::of(e, DeviceKind::kHost), b = Weights::of(e, DeviceKind::kHost);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ((*a)->constants()[0], e.constants[0].data.data());
  EXPECT_EQ((*b)->constants()[0], e.constants[0].data.data());
}

TEST(Executor, StateIsSharedOnlyWhereItIsHandedOver) {
  const Engine e = engine_of(2, 8);
  auto state = State::make(e, DeviceKind::kHost);
  ASSERT_TRUE(state.ok());
  const auto a = bound(e, {.state = *state}), b = bound(e, {.state = *state}), alone = bound(e);
  const std::vector<float> x = test_input(16, 1), zeros(16, 0.0f);
  EXPECT_EQ(answer_of(*a, x).before, zeros);
  EXPECT_EQ(answer_of(*b, test_input(16, 2)).before, x) << "what one writes the other reads";
  EXPECT_EQ(answer_of(*alone, x).before, zeros);
  ASSERT_TRUE((*state)->clear().ok());
  EXPECT_EQ(answer_of(*a, x).before, zeros) << "a new session";
  {
    const Turn turn(**state);
    EXPECT_EQ(answer_of(*b, x).status.message(),
              "the state of this executor is in use in another thread; make one executor and one state per thread, "
              "they share the weights");
    EXPECT_EQ((*state)->clear().message(), "the state is in use in another thread");
    EXPECT_TRUE(answer_of(*alone, x).status.ok());
  }
  EXPECT_TRUE(answer_of(*b, x).status.ok());
}

TEST(Executor, AStateOfAnotherKindIsRefused) {
  const Engine e = engine_of(2, 8), larger = engine_of(4, 8);
  auto state = State::make(e, DeviceKind::kHost);
  ASSERT_TRUE(state.ok());
  EXPECT_EQ(bind(larger, larger.plans[0], {.state = *state}).status().message(),
            "the state was made for another engine: its part 'last' of 64 bytes is 'last' of 128 bytes in this one");
  Engine renamed = e, two = e;
  renamed.states[0].name = "first";
  two.states.push_back({"more", 4});
  EXPECT_EQ(bind(renamed, renamed.plans[0], {.state = *state}).status().message(),
            "the state was made for another engine: its part 'last' of 64 bytes is 'first' of 64 bytes in this one");
  EXPECT_EQ(bind(two, two.plans[0], {.state = *state}).status().message(),
            "the state was made for another engine: the number of its parts is 1, and 2 in this one");
  // As many bytes of another form.
  const Engine counts = counting_engine();
  Engine other = counts;
  for (Plan& p : other.plans) {
    for (PlanTensor& t : p.tensors) t.desc = dense_operand({1, kCountedRows * kCountedCols}, Element::i32);
  }
  auto sum = State::make(counts, DeviceKind::kHost);
  ASSERT_TRUE(sum.ok());
  EXPECT_TRUE((*sum)->check(counting_engine(), DeviceKind::kHost, 0).ok());
  EXPECT_EQ((*sum)->check(other, DeviceKind::kHost, 0).message(),
            "the state was made for another engine: its part 'sum' of 60 bytes, f32[3,5] is 'sum' of 60 bytes, "
            "i32[1,15] in this one");
  EXPECT_EQ((*state)->check(e, DeviceKind::kCuda, 1).message(),
            "the state lies in host memory, and the plan runs on GPU 1");
}

TEST(Executor, BuffersAreCounted) {
  const Engine e = engine_of(2, 8);
  const auto executor = bound(e);
  std::vector<float> x = test_input(16, 1), y(16);
  const void* in[] = {x.data(), x.data()};
  void* out[] = {y.data(), nullptr};
  const std::span<const void* const> ins(in);
  const std::span<void* const> outs(out);
  EXPECT_EQ(executor->run(ins, outs).message(), "plan 'main' has 1 input, and 2 buffers were given");
  EXPECT_EQ(executor->run(ins.first(1), outs.first(1)).message(), "plan 'main' has 2 outputs, and 1 buffer was given");
  EXPECT_EQ(executor->run(ins.first(1), outs).message(), "output 'before' of plan 'main' was given no buffer (null)");
}

#ifndef __SANITIZE_THREAD__  // which ends a child that makes threads
// A child of a process whose pools have threads, while some of them are at work.
TEST(Executor, AForkedChildGetsAnswers) {
  set_threads(3);
  const Engine e = engine_of(256, 256);
  const auto shared = bound(e), own = bound(e, {.threads = 3}), working = bound(e, {.threads = 2});
  const std::vector<float> x = test_input(256 * 256, 3);
  ASSERT_TRUE(answer_of(*shared, x).status.ok());
  ASSERT_TRUE(answer_of(*own, x).status.ok());
  std::atomic<bool> stop{false};
  std::thread worker([&] {
    while (!stop) EXPECT_TRUE(answer_of(*working, x).status.ok());
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      alarm(20);  // ends a child that hangs
      const auto fresh = bind(e, e.plans[0], {.threads = 2});
      int wrong = fresh.ok() ? 0 : 1;
      for (Executor* executor : {shared.get(), own.get(), fresh.ok() ? fresh->get() : nullptr}) {
        if (executor == nullptr) continue;
        const Answer a = answer_of(*executor, x);
        if (!a.status.ok() || !is_product(a.y, x)) ++wrong;
      }
      // One that was running at the fork may say so, but not hang.
      const Answer a = answer_of(*working, x);
      if (a.status.ok() ? !is_product(a.y, x) : a.status.message() != kBusy) ++wrong;
      _exit(wrong);
    }
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFEXITED(status)) << "the child hung, fork " << i;
    ASSERT_EQ(WEXITSTATUS(status), 0);
  }
  stop = true;
  worker.join();
  set_threads(0);
}
#endif

}  // namespace
}  // namespace tessera
