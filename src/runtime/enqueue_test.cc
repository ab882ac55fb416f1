// SPDX-License-Identifier: Apache-2.0
// CUDA executors as others call them: on streams and under captures of the caller's, from several threads, in a forked
// child, on another GPU. All of it needs a device.
#include <gtest/gtest.h>

#include "runtime/executor.h"

#ifdef TS_WITH_CUDA
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "runtime/cuda_slots.h"
#include "runtime/state.h"
#include "runtime/test_device.h"
#include "runtime/test_engine.h"
#include "runtime/weights.h"
#include "testing/turns.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 256, kCols = 1024;
constexpr size_t kCount = kRows * kCols;

#define SKIP_WITHOUT_GPU() \
  if (const std::string why = why_not_here(Arch::cuda); !why.empty()) GTEST_SKIP() << why

Engine engine_here() { return remembering_engine(Arch::cuda, kRows, kCols); }

std::unique_ptr<Executor> bound(const Engine& engine, const ExecutorOptions& options = {}) {
  auto executor = bind(engine, engine.plans[0], options);
  EXPECT_TRUE(executor.ok()) << executor.status().message();
  return executor.ok() ? std::move(executor).value() : nullptr;
}

// Buffers of one call.
struct Buffers {
  explicit Buffers(size_t skip = 0) : x(kCount, skip), y(kCount, skip), before(kCount, skip) {}
  DeviceFloats x, y, before;
  Status enqueue(Executor& executor, cudaStream_t stream) {
    const void* in[] = {x.data()};
    void* out[] = {y.data(), before.data()};
    return executor.enqueue(in, out, {stream});
  }
};

// The state makes each run depend on the one before: on streams that do not wait for each other, `before` and the
// shared arena would be wrong.
TEST(Enqueue, OnTwoStreamsByTurns_cuda) {
  SKIP_WITHOUT_GPU();
  constexpr int kSets = 8;
  const int in_all = turns(400);
  const Engine e = engine_here();
  const auto executor = bound(e);
  ASSERT_NE(executor, nullptr);
  const TestStream streams[2];
  std::vector<Buffers> sets(kSets);
  std::vector<float> last(kCount, 0.0f);
  for (int first = 0; first < in_all; first += kSets) {
    for (int s = 0; s < kSets; ++s) {
      const cudaStream_t stream = streams[(first + s) % 2].get();
      sets[static_cast<size_t>(s)].x.put(test_input(kCount, first + s), stream);
      const Status status = sets[static_cast<size_t>(s)].enqueue(*executor, stream);
      ASSERT_TRUE(status.ok()) << status.message();
    }
    for (const TestStream& s : streams) s.wait();
    for (int s = 0; s < kSets; ++s) {
      const std::vector<float> x = test_input(kCount, first + s);
      ASSERT_TRUE(is_product(sets[static_cast<size_t>(s)].y.get(), x)) << "turn " << first + s;
      ASSERT_EQ(sets[static_cast<size_t>(s)].before.get(), last) << "turn " << first + s;
      last = x;
    }
  }
}

TEST(Enqueue, AndRunByTurns_cuda) {
  SKIP_WITHOUT_GPU();
  const Engine e = engine_here();
  const auto executor = bound(e);
  ASSERT_NE(executor, nullptr);
  const TestStream stream;
  Buffers set;
  const int rounds = turns(100) / 2;
  for (int turn = 0; turn < rounds; ++turn) {
    const std::vector<float> x = test_input(kCount, 2 * turn), other = test_input(kCount, 2 * turn + 1);
    set.x.put(x, stream.get());
    ASSERT_TRUE(set.enqueue(*executor, stream.get()).ok());
    const Answer a = answer_of(*executor, other);  // while the other may still be running
    ASSERT_TRUE(a.status.ok()) << a.status.message();
    EXPECT_TRUE(is_product(a.y, other)) << turn;
    EXPECT_EQ(a.before, x) << turn;
    EXPECT_TRUE(is_product(set.y.get(), x)) << turn;
  }
}

TEST(Enqueue, IntoBuffersThatBeginAnywhere_cuda) {
  SKIP_WITHOUT_GPU();
  const Engine e = engine_here();
  const auto executor = bound(e);
  ASSERT_NE(executor, nullptr);
  const TestStream stream;
  for (const size_t skip : {0, 1, 3, 4, 64}) {
    Buffers set(skip);
    const std::vector<float> x = test_input(kCount, static_cast<int>(skip));
    set.x.put(x, stream.get());
    ASSERT_TRUE(set.enqueue(*executor, stream.get()).ok());
    stream.wait();
    EXPECT_TRUE(is_product(set.y.get(), x)) << skip;
  }
}

// A replay reads what the buffers hold then, whatever other buffers were used in between.
TEST(Enqueue, UnderACaptureOfTheCallers_cuda) {
  SKIP_WITHOUT_GPU();
  const Engine e = engine_here();
  const auto executor = bound(e);
  ASSERT_NE(executor, nullptr);
  Buffers captured(1), other;
  const TestStream elsewhere;
  other.x.put(test_input(kCount, 1000), elsewhere.get());
  ASSERT_TRUE(other.enqueue(*executor, elsewhere.get()).ok());  // an event outside, which the capture may not wait for
  TestStream stream;
  stream.begin();
  const Status status = captured.enqueue(*executor, stream.get());
  stream.end();
  ASSERT_TRUE(status.ok()) << status.message();
  elsewhere.wait();
  EXPECT_TRUE(is_product(other.y.get(), test_input(kCount, 1000)));
  std::vector<float> last = test_input(kCount, 1000);
  const int replays = turns(20);
  for (int turn = 0; turn < replays; ++turn) {
    const std::vector<float> x = test_input(kCount, turn), between = test_input(kCount, 500 + turn);
    captured.x.put(x, stream.get());
    stream.replay();
    ASSERT_TRUE(is_product(captured.y.get(), x)) << turn;
    ASSERT_EQ(captured.before.get(), last) << turn;
    last = x;
    if (turn % 3 == 1) {
      ASSERT_TRUE(is_product(answer_of(*executor, between).y, between)) << turn;
      last = between;
    } else if (turn % 3 == 2) {
      other.x.put(between, elsewhere.get());
      ASSERT_TRUE(other.enqueue(*executor, elsewhere.get()).ok());
      elsewhere.wait();
      ASSERT_TRUE(is_product(other.y.get(), between)) << turn;
      last = between;
    }
  }
}

TEST(Enqueue, TheTableHoldsMorePointersThanOneLaunchCarries_cuda) {
  SKIP_WITHOUT_GPU();
  const TestStream stream;
  for (const size_t count : {1, 127, 128, 129, 300}) {
    DeviceBuffer table;
    ASSERT_TRUE(table.allocate((count + 1) * sizeof(void*)).ok());
    ASSERT_TRUE(fill_device(table.data(), 0, (count + 1) * sizeof(void*)).ok());
    std::vector<void*> want(count + 1, nullptr), got(count + 1);
    for (size_t i = 0; i < count; ++i) want[i] = reinterpret_cast<void*>(16 * (i + 1));
    const Status s = write_slots(reinterpret_cast<void**>(table.data()), std::span(want).first(count), {stream.get()});
    ASSERT_TRUE(s.ok()) << s.message();
    stream.wait();
    ASSERT_TRUE(copy_to_host(got.data(), table.data(), got.size() * sizeof(void*)).ok());
    EXPECT_EQ(got, want) << count;
  }
}

TEST(Enqueue, OneExecutorInManyThreads_cuda) {
  SKIP_WITHOUT_GPU();
  const Engine e = engine_here();
  const auto executor = bound(e);
  ASSERT_NE(executor, nullptr);
  std::atomic<int> right{0}, refused{0}, wrong{0};
  const int runs = turns(8 * 50) / 8;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const std::vector<float> x = test_input(kCount, t);
      for (int run = 0; run < runs; ++run) {
        const Answer a = answer_of(*executor, x);
        if (a.status.ok()) {
          ++(is_product(a.y, x) ? right : wrong);
        } else {
          ++(a.status.message().starts_with("this executor is running in another thread") ? refused : wrong);
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(right, 0);
  EXPECT_GT(refused, 0);
}

TEST(Enqueue, OneExecutorPerThread_cuda) {
  SKIP_WITHOUT_GPU();
  const Engine e = engine_here();
  std::atomic<int> wrong{0};
  const int runs = turns(8 * 50) / 8;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const auto mine = bound(e);  // made at the same time as the others
      for (int run = 0; mine != nullptr && run < runs; ++run) {
        const std::vector<float> x = test_input(kCount, 8 * run + t);
        const Answer a = answer_of(*mine, x);
        if (!a.status.ok() || !is_product(a.y, x) || (run > 0 && a.before != test_input(kCount, 8 * run + t - 8)))
          ++wrong;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Enqueue, WeightsAreUploadedOnce_cuda) {
  SKIP_WITHOUT_GPU();
  const int64_t bytes = int64_t{64} << 20;
  const Engine e = remembering_engine(Arch::cuda, 256, bytes / 4 / 256);
  const auto free_bytes = [] {
    size_t free = 0, total = 0;
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    return static_cast<int64_t>(free);
  };
  std::vector<std::unique_ptr<Executor>> executors;
  executors.push_back(bound(e));
  const int64_t before = free_bytes();
  for (int i = 0; i < 3; ++i) executors.push_back(bound(e));
  // Arena (two values), state, and the buffers of run (three), not the weights.
  const int64_t each = (before - free_bytes()) / 3;
  EXPECT_GE(each, 6 * bytes);
  EXPECT_LT(each, 6 * bytes + bytes / 2);
  const auto a = Weights::of(e, DeviceKind::kCuda), b = Weights::of(e, DeviceKind::kCuda);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(*a, *b);
  const Engine other = remembering_engine(Arch::cuda, 256, 256);
  const auto c = Weights::of(other, DeviceKind::kCuda);
  ASSERT_TRUE(c.ok());
  EXPECT_NE(*c, *a);
}

// Binding runs the plan once: a session that is under way must not notice.
TEST(Enqueue, AStateThatIsHandedOverIsAsItWas_cuda) {
  SKIP_WITHOUT_GPU();
  const Engine e = engine_here();
  auto state = State::make(e, DeviceKind::kCuda);
  ASSERT_TRUE(state.ok()) << state.status().message();
  const auto first = bound(e, {.state = *state});
  const std::vector<float> x = test_input(kCount, 1), zeros(kCount, 0.0f);
  EXPECT_EQ(answer_of(*first, x).before, zeros);
  const auto second = bound(e, {.state = *state}), alone = bound(e);
  EXPECT_EQ(answer_of(*second, test_input(kCount, 2)).before, x);
  EXPECT_EQ(answer_of(*alone, x).before, zeros);
  // One after the other on two streams: the second waits for the first by way of the state.
  const TestStream streams[2];
  Buffers sets[2];
  const int rounds = turns(100) / 2;
  for (int turn = 0; turn < rounds; ++turn) {
    for (int i = 0; i < 2; ++i) {
      sets[i].x.put(test_input(kCount, 2 * turn + i), streams[i].get());
      ASSERT_TRUE(sets[i].enqueue(i == 0 ? *first : *second, streams[i].get()).ok());
    }
    for (const TestStream& s : streams) s.wait();
    ASSERT_EQ(sets[1].before.get(), test_input(kCount, 2 * turn)) << turn;
  }
  ASSERT_TRUE((*state)->clear().ok());
  EXPECT_EQ(answer_of(*first, x).before, zeros);
}

TEST(Enqueue, OnTheGpuThatWasAskedFor_cuda) {
  SKIP_WITHOUT_GPU();
  const Engine e = engine_here();
  int count = 0, now = -1;
  TS_CUDA_OK(cudaGetDeviceCount(&count));
  EXPECT_NE(bind(e, e.plans[0], {.device = count}).status().message().find(cat("GPU ", count, " was asked for")),
            std::string::npos);
  for (int device = 0; device < count; ++device) {
    TS_CUDA_OK(cudaSetDevice(0));
    const auto executor = bound(e, {.device = device});
    ASSERT_NE(executor, nullptr);
    const std::vector<float> x = test_input(kCount, device);
    EXPECT_TRUE(is_product(answer_of(*executor, x).y, x)) << device;
    TS_CUDA_OK(cudaGetDevice(&now));
    EXPECT_EQ(now, 0) << "the caller's own";
  }
  if (count < 2) GTEST_SKIP() << "one GPU only: others were not run";
}

TEST(Enqueue, AForkedChildIsToldSo_cuda) {
  SKIP_WITHOUT_GPU();
  const Engine e = engine_here();
  auto executor = bound(e);
  ASSERT_NE(executor, nullptr);
  const std::vector<float> x = test_input(kCount, 1);
  ASSERT_TRUE(answer_of(*executor, x).status.ok());
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    alarm(20);  // ends a child that hangs
    const std::string used = answer_of(*executor, x).status.message();
    const std::string made = bind(e, e.plans[0]).status().message();
    executor.reset();
    _exit((used == "CUDA does not survive a fork; make the executor in the child" ? 0 : 1) +
          (made.find("forked from one that had used CUDA") != std::string::npos ? 0 : 2));
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status)) << "the child hung";
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(is_product(answer_of(*executor, x).y, x)) << "the parent goes on";
}

}  // namespace
}  // namespace tessera

#else

TEST(Enqueue, NeedsABuildWith_cuda) { GTEST_SKIP() << tessera::why_not_here(tessera::Arch::cuda); }

#endif
