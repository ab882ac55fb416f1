// SPDX-License-Identifier: Apache-2.0
// Running an engine on the CPU allocates nothing, the first time included, and executors share the weights.
#include <gtest/gtest.h>

#include <filesystem>

#include "assemble/build_engine.h"
#include "base/parallel.h"
#include "runtime/bind.h"
#include "runtime/executor.h"
#include "testing/count_allocations.h"
#include "testing/engine_from.h"
#include "types/precisions/precision.h"

namespace tessera {
namespace {

TEST(Allocation, RunningAllocatesNothing) {
  if (!counts_allocations()) GTEST_SKIP() << "malloc cannot be counted here";
  const std::string model = std::string(TS_SOURCE_DIR) + "/assets/digits/vit.onnx";
  ASSERT_TRUE(std::filesystem::exists(model));
  set_threads(3);
  for (const std::string& precision : precision_names()) {
    SCOPED_TRACE(precision);
    BuildOptions options;
    options.model_path = model, options.target = Arch::cpu, options.batches = {5};
    options.precision = precision, options.quiet = true, options.golden = false;
    const auto built = engine_from(options);
    ASSERT_TRUE(built.ok()) << built.status().message();
    const Engine& engine = *built;
    const Plan& plan = engine.plans.front();
    EXPECT_GT(allocations, 0) << "nothing was counted so far: this test would say nothing";
    auto executor = bind(engine, plan);
    ASSERT_TRUE(executor.ok()) << executor.status().message();
    const auto floats = [](int64_t bytes) {
      return std::vector<float>(static_cast<size_t>(bytes) / sizeof(float), 0.5f);
    };
    std::vector<float> in = floats(port_bytes(plan, plan.inputs[0])), out = floats(port_bytes(plan, plan.outputs[0]));
    const void* ins[] = {in.data()};
    void* outs[] = {out.data()};
    for (int run = 0; run < 2; ++run) {
      const int64_t before = allocations;
      const Status s = (*executor)->run(ins, outs);
      EXPECT_EQ(allocations - before, 0) << "run " << run;
      EXPECT_TRUE(s.ok()) << s.message();
    }
  }
}

// n executors take the weights once, and n times arena and state.
TEST(Allocation, AnExecutorAddsItsArenaAndItsState) {
  if (!counts_allocations()) GTEST_SKIP() << "malloc cannot be counted here";
  BuildOptions options;
  options.model_path = std::string(TS_SOURCE_DIR) + "/assets/digits/vit.onnx", options.target = Arch::cpu;
  options.batches = {5}, options.precision = "fp32", options.quiet = true, options.golden = false;
  auto built = engine_from(options);
  ASSERT_TRUE(built.ok()) << built.status().message();
  Engine& engine = *built;
  engine.states = {{"cache", 3 << 20}};
  int64_t weights = 0;
  for (const EngineConstant& c : engine.constants) weights += static_cast<int64_t>(c.data.size());
  const int64_t own = engine.plans[0].arena_bytes + engine.states[0].bytes;
  std::vector<std::unique_ptr<Executor>> executors;
  executors.reserve(5);
  for (int i = 0; i < 5; ++i) {
    const int64_t before = bytes_held;
    auto executor = bind(engine, engine.plans[0]);
    ASSERT_TRUE(executor.ok()) << executor.status().message();
    executors.push_back(std::move(executor).value());
    if (i == 0) continue;  // it also makes the blocks of scratch memory, which all kernels of the process share
    const int64_t added = bytes_held - before;
    EXPECT_GE(added, own);
    EXPECT_LT(added - own, weights / 8) << "of " << weights << " bytes of weights";
  }
  const int64_t all = bytes_held;
  executors.clear();
  EXPECT_LE(bytes_held, all - 5 * own) << "executors give back what they took";
}

}  // namespace
}  // namespace tessera
