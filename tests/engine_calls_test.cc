// SPDX-License-Identifier: Apache-2.0
// The digits model as others call it: an executor per thread over one engine, and on a GPU on two streams by turns,
// under a capture, in buffers that change. Every answer is, bit for bit, the one that run gave alone.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "io/npz.h"
#include "runtime/bind.h"
#include "runtime/executor.h"
#include "testing/engine_from.h"
#include "testing/turns.h"
#include "types/precisions/precision.h"

#ifdef TS_WITH_CUDA
#include "runtime/test_device.h"
#endif

namespace tessera {
namespace {

constexpr int64_t kBatch = 3;
const std::string kDigits = std::string(TS_SOURCE_DIR) + "/assets/digits";

struct Where {
  std::string precision;
  Arch target;
};

class DigitsCalls : public testing::TestWithParam<Where> {
 protected:
  void SetUp() override {
    const auto& [precision, target] = GetParam();
    if (const std::string why = why_not_here(target); !why.empty()) GTEST_SKIP() << why;
    auto built = engine_from({.model_path = kDigits + "/vit.onnx",
                              .precision = precision,
                              .batches = {kBatch},
                              .target = target,
                              .calib_path = find_precision(precision)->needs_ranges() ? kDigits + "/calib.npz" : "",
                              .golden = false,
                              .quiet = true});
    ASSERT_TRUE(built.ok()) << built.status().message();
    engine_ = std::move(built).value();
    const auto test = read_npz(kDigits + "/test.npz");
    ASSERT_TRUE(test.ok());
    for (const Array& a : *test) {
      if (a.name == "image") cut(a);
    }
    ASSERT_GE(inputs_.size(), 16u);
    const auto executor = bound();
    ASSERT_NE(executor, nullptr);
    for (const std::vector<float>& x : inputs_) {
      want_.push_back(answer(*executor, x));
      ASSERT_FALSE(want_.back().empty());
    }
    ASSERT_NE(want_[0], want_[1]) << "all answers are alike: this test would say nothing";
  }

  const Plan& plan() const { return engine_.plans[0]; }
  size_t outputs() const { return static_cast<size_t>(port_bytes(plan(), plan().outputs[0])) / sizeof(float); }
  std::unique_ptr<Executor> bound(const ExecutorOptions& options = {}) const {
    auto executor = bind(engine_, plan(), options);
    EXPECT_TRUE(executor.ok()) << executor.status().message();
    return executor.ok() ? std::move(executor).value() : nullptr;
  }
  // Empty where the call failed.
  std::vector<float> answer(Executor& executor, const std::vector<float>& x) const {
    std::vector<float> y(outputs());
    const void* in[] = {x.data()};
    void* out[] = {y.data()};
    return executor.run(in, out).ok() ? y : std::vector<float>();
  }

  Engine engine_;
  std::vector<std::vector<float>> inputs_, want_;  // a batch each

 private:
  void cut(const Array& images) {
    const std::vector<double> all = numbers_of(images);
    const size_t batch = static_cast<size_t>(port_bytes(plan(), plan().inputs[0])) / sizeof(float);
    for (size_t at = 0; at + batch <= all.size() && inputs_.size() < 16; at += batch)
      inputs_.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(at),
                           all.begin() + static_cast<std::ptrdiff_t>(at + batch));
  }
};

TEST_P(DigitsCalls, AnExecutorPerThread) {
  std::atomic<int> wrong{0};
  const auto runs = static_cast<size_t>(turns(8 * 40) / 8);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const auto mine = bound({.threads = static_cast<int>(t % 3)});
      for (size_t run = 0; mine != nullptr && run < runs; ++run) {
        const size_t i = (run * 5 + t) % inputs_.size();
        if (answer(*mine, inputs_[i]) != want_[i]) ++wrong;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(DigitsCalls, OneExecutorInManyThreads) {
  const auto executor = bound();
  ASSERT_NE(executor, nullptr);
  std::atomic<int> wrong{0}, right{0}, refused{0};
  const auto runs = static_cast<size_t>(turns(8 * 100) / 8);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (size_t run = 0; run < runs; ++run) {
        const size_t i = (run + t) % inputs_.size();
        const std::vector<float> y = answer(*executor, inputs_[i]);
        ++(y.empty() ? refused : y == want_[i] ? right : wrong);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(right, 0);
  EXPECT_GT(refused, 0);
}

#ifdef TS_WITH_CUDA
TEST_P(DigitsCalls, EnqueueOnTwoStreamsByTurns) {
  if (info(GetParam().target).device != DeviceKind::kCuda) GTEST_SKIP() << "about streams";
  constexpr size_t kSets = 8;
  const auto executor = bound();
  ASSERT_NE(executor, nullptr);
  const TestStream streams[2];
  std::vector<DeviceFloats> x, y;
  for (size_t s = 0; s < kSets; ++s) {
    x.emplace_back(inputs_[0].size(), s % 3);  // buffers of the caller's, which begin anywhere
    y.emplace_back(outputs(), s % 2);
  }
  const size_t rounds = static_cast<size_t>(turns(800)) / kSets;
  for (size_t round = 0; round < rounds; ++round) {
    for (size_t s = 0; s < kSets; ++s) {
      const cudaStream_t stream = streams[s % 2].get();
      x[s].put(inputs_[(round + s) % inputs_.size()], stream);
      const void* in[] = {x[s].data()};
      void* out[] = {y[s].data()};
      const Status status = executor->enqueue(in, out, {stream});
      ASSERT_TRUE(status.ok()) << status.message();
    }
    for (const TestStream& s : streams) s.wait();
    for (size_t s = 0; s < kSets; ++s)
      ASSERT_EQ(y[s].get(), want_[(round + s) % inputs_.size()]) << "round " << round << ", set " << s;
  }
}

TEST_P(DigitsCalls, EnqueueUnderACaptureAndReplay) {
  if (info(GetParam().target).device != DeviceKind::kCuda) GTEST_SKIP() << "about captures";
  const auto executor = bound();
  ASSERT_NE(executor, nullptr);
  const DeviceFloats x(inputs_[0].size(), 1), y(outputs());
  const void* in[] = {x.data()};
  void* out[] = {y.data()};
  TestStream stream;
  stream.begin();
  const Status status = executor->enqueue(in, out, {stream.get()});
  stream.end();
  ASSERT_TRUE(status.ok()) << status.message();
  const auto rounds = static_cast<size_t>(turns(50));
  for (size_t round = 0; round < rounds; ++round) {
    const size_t i = round % inputs_.size(), other = (round * 3 + 1) % inputs_.size();
    x.put(inputs_[i], stream.get());
    stream.replay();
    ASSERT_EQ(y.get(), want_[i]) << "round " << round;
    ASSERT_EQ(answer(*executor, inputs_[other]), want_[other]) << "round " << round;
  }
}
#endif

INSTANTIATE_TEST_SUITE_P(On, DigitsCalls,
                         testing::Values(Where{"fp32", Arch::cpu}, Where{"fp8", Arch::cpu}, Where{"fp16", Arch::sm90},
                                         Where{"fp8", Arch::sm90}),
                         [](const testing::TestParamInfo<Where>& info) {
                           return info.param.precision + "_" + tessera::info(info.param.target).name;
                         });

}  // namespace
}  // namespace tessera
