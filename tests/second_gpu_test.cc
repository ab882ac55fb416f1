// SPDX-License-Identifier: Apache-2.0
// What is bound on GPU 1 allocates, binds and runs there, and leaves the caller's GPU as it was. On two fake GPUs
// (testing/fake_gpus.h), so without any: every call of the CUDA runtime is looked at, and no result.
#include <gtest/gtest.h>

#include "runtime/executor.h"

#ifdef TS_WITH_CUDA
#include <functional>
#include <thread>

#include "runtime/cuda_slots.h"
#include "runtime/session.h"
#include "runtime/test_device.h"
#include "runtime/test_sessions.h"
#include "runtime/weights.h"
#include "testing/fake_gpus.h"

namespace tessera {
namespace {

using Strings = std::vector<std::string>;
constexpr int64_t kWide = 1024;

int gpu_of_this_thread() {
  int now = -1;
  EXPECT_EQ(cudaGetDevice(&now), cudaSuccess);
  return now;
}

// Whatever the body does is done on GPU 1, from a thread whose GPU is 0 and stays so.
void all_on_the_second(const char* what, const std::function<void()>& body) {
  SCOPED_TRACE(what);
  ASSERT_EQ(gpu_of_this_thread(), 0);
  forget_calls();
  body();
  EXPECT_EQ(strays(1), Strings()) << "made on the wrong GPU";
  EXPECT_EQ(gpu_of_this_thread(), 0) << "the caller's own";
  EXPECT_EQ(bytes_on(0), 0);
}

// A stream and memory of the caller's on GPU 1.
struct CallersOwn {
  explicit CallersOwn(size_t count) : x(count), y(count), before(count) {}
  TestStream stream;
  const DeviceFloats x, y, before;
};
std::unique_ptr<CallersOwn> on_second(size_t count) {
  const OnDevice there(1);
  return std::make_unique<CallersOwn>(count);
}

TEST(FakeGpus, SeeWhatIsDoneOnTheWrongOne) {
  forget_calls();
  {
    DeviceBuffer misplaced;
    ASSERT_TRUE(misplaced.allocate(16).ok());
    EXPECT_EQ(strays(1), Strings{"cudaMalloc on GPU 0 about 0"});
    EXPECT_EQ(strays(0), Strings());
    EXPECT_EQ(bytes_on(0), 16);
    const OnDevice there(1);
    forget_calls();
    ASSERT_TRUE(fill_device(misplaced.data(), 0, 16).ok());
    EXPECT_EQ(strays(1), Strings{"cudaMemset on GPU 1 about 0"});
  }
  EXPECT_EQ(bytes_on(0), 0);
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  {
    const OnDevice there(1);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  }
  EXPECT_EQ(cudaEventRecord(event, stream), cudaErrorInvalidResourceHandle);
  void* pointer = nullptr;
  EXPECT_FALSE(write_slots(&pointer, std::span(&pointer, 1), {stream}).ok()) << "a launch on a stream of another GPU";
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(gpu_of_this_thread(), 0);
}

TEST(SecondGpu, AnExecutorIsThereAlone) {
  const Engine e = remembering_engine(Arch::cuda, 2, kWide);
  const std::vector<float> x = test_input(2 * kWide, 1);
  std::unique_ptr<Executor> executor;
  all_on_the_second("bind", [&] {
    auto bound = bind(e, e.plans[0], {.device = 1});
    ASSERT_TRUE(bound.ok()) << bound.status().message();
    executor = std::move(bound).value();
  });
  ASSERT_NE(executor, nullptr);
  EXPECT_GE(bytes_on(1), 7 * 2 * kWide * 4) << "weights, state, two values and three buffers";
  EXPECT_GT(calls_of("cudaLaunchKernel") + calls_of("cudaLaunchKernelExC"), 0) << "nothing was launched";
  EXPECT_EQ(calls_of("cudaGraphInstantiate"), 1);
  all_on_the_second("run", [&] { EXPECT_TRUE(answer_of(*executor, x).status.ok()); });
  EXPECT_EQ(calls_of("cudaGraphLaunch"), 1);
  const void* in[] = {x.data()};
  all_on_the_second("time_runs", [&] { EXPECT_TRUE(executor->time_runs(in, 2, 1).ok()); });
  all_on_the_second("time_steps", [&] { EXPECT_TRUE(executor->time_steps(in, 2, 1).ok()); });
  {
    const auto own = on_second(2 * kWide);
    const void* there[] = {own->x.data()};
    void* out[] = {own->y.data(), own->before.data()};
    all_on_the_second("enqueue", [&] {
      EXPECT_TRUE(executor->enqueue(there, out, {own->stream.get()}).ok());
      EXPECT_TRUE(answer_of(*executor, x).status.ok()) << "which waits for the stream";
    });
    EXPECT_EQ(calls_of("cudaStreamWaitEvent"), 1);
  }
  all_on_the_second("the end", [&] { executor.reset(); });
  EXPECT_EQ(bytes_on(1), 0);
}

TEST(SecondGpu, StepsThatAreLookedAtRunThere) {
  const Engine e = remembering_engine(Arch::cuda, 2, kWide);
  const std::vector<float> x = test_input(2 * kWide, 1);
  int seen = 0;
  all_on_the_second("observe", [&] {
    const auto executor =
        bind(e, e.plans[0],
             {.observe = [&](const PlanStep&, std::span<const TensorView>, std::span<const TensorView>) { ++seen; },
              .device = 1});
    ASSERT_TRUE(executor.ok()) << executor.status().message();
    EXPECT_TRUE(answer_of(**executor, x).status.ok());
  });
  EXPECT_EQ(seen, 5);
}

TEST(SecondGpu, EachHasItsOwnWeights) {
  const Engine e = remembering_engine(Arch::cuda, 2, kWide);
  const auto first = Weights::of(e, DeviceKind::kCuda, 0);
  ASSERT_TRUE(first.ok()) << first.status().message();
  const int64_t bytes = bytes_on(0);
  EXPECT_EQ(bytes, 2 * kWide * 4);
  EXPECT_EQ(bytes_on(1), 0);
  forget_calls();
  const auto second = Weights::of(e, DeviceKind::kCuda, 1);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(strays(1), Strings());
  EXPECT_EQ(bytes_on(1), bytes);
  const auto again = Weights::of(e, DeviceKind::kCuda, 1);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, *second);
  EXPECT_EQ(bytes_on(1), bytes);
  // An executor of each, in two threads: each thread's GPU is its own affair.
  std::thread other([&] {
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    const auto on_first = bind(e, e.plans[0], {.device = 0});
    ASSERT_TRUE(on_first.ok()) << on_first.status().message();
    EXPECT_TRUE(answer_of(**on_first, test_input(2 * kWide, 1)).status.ok());
    EXPECT_EQ(gpu_of_this_thread(), 1);
  });
  const auto on_second = bind(e, e.plans[0], {.device = 1});
  EXPECT_TRUE(on_second.ok());
  other.join();
  EXPECT_EQ(gpu_of_this_thread(), 0);
}

TEST(SecondGpu, AStateOfTheOtherOneIsRefused) {
  const Engine e = remembering_engine(Arch::cuda, 2, kWide);
  const auto state = State::make(e, DeviceKind::kCuda, 0);
  ASSERT_TRUE(state.ok());
  EXPECT_EQ(bind(e, e.plans[0], {.state = *state, .device = 1}).status().message(),
            "the state lies on GPU 0, and the plan runs on GPU 1");
  EXPECT_EQ(bind(e, e.plans[0], {.device = 2}).status().message().find("the plan is for cuda"), 0u);
  EXPECT_EQ(gpu_of_this_thread(), 0);
}

TEST(SecondGpu, ASessionIsThereAlone) {
  const Engine e = bucketed_engine(Arch::cuda);
  const std::vector<float> x = test_input(4 * kCols, 1);
  std::vector<float> y(4 * kCols);
  const void* in[] = {x.data()};
  void* out[] = {y.data()};
  std::unique_ptr<Session> session;
  all_on_the_second("make", [&] {
    auto made = Session::make(e, {.device = 1});
    ASSERT_TRUE(made.ok()) << made.status().message();
    session = std::move(made).value();
  });
  ASSERT_NE(session, nullptr);
  EXPECT_GT(bytes_on(1), 0);
  all_on_the_second("run", [&] { EXPECT_TRUE(session->run(in, out).ok()); });
  EXPECT_GT(calls_of("cudaGraphLaunch"), 0);
  all_on_the_second("run again", [&] { EXPECT_TRUE(session->run(in, out).ok()); });
  EXPECT_EQ(calls_of("cudaGraphLaunch"), 1) << "the schedule is one graph";
  all_on_the_second("time_runs", [&] { EXPECT_TRUE(session->time_runs(in, 2, 1).ok()); });
  all_on_the_second("use", [&] { EXPECT_TRUE(session->use({{"begin", "begin.rows2"}}).ok()); });
  all_on_the_second("run the other plan", [&] { EXPECT_TRUE(session->run(in, out).ok()); });
  all_on_the_second("clear", [&] { EXPECT_TRUE(session->clear().ok()); });
  {
    const auto own = on_second(4 * kCols);
    const void* there[] = {own->x.data()};
    void* to[] = {own->y.data()};
    all_on_the_second("enqueue", [&] {
      const Status put = session->enqueue(there, to, {own->stream.get()});
      EXPECT_TRUE(put.ok()) << put.message();
    });
    own->stream.begin();
    all_on_the_second("enqueue under a capture",
                      [&] { EXPECT_TRUE(session->enqueue(there, to, {own->stream.get()}).ok()); });
    own->stream.end();
    all_on_the_second("clear after the caller's stream", [&] { EXPECT_TRUE(session->clear().ok()); });
  }
  all_on_the_second("the end", [&] { session.reset(); });
  EXPECT_EQ(bytes_on(1), 0);
}

}  // namespace
}  // namespace tessera

#else

TEST(SecondGpu, NeedsABuildWithCuda) { GTEST_SKIP() << tessera::why_not_here(tessera::Arch::cuda); }

#endif
