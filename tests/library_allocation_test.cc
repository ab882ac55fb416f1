// SPDX-License-Identifier: Apache-2.0
// tess_run allocates nothing, and contexts share the weights.
#include <gtest/gtest.h>
#include <tessera/tessera.h>

#include "testing/count_allocations.h"
#include "testing/library_calls.h"

namespace tessera {
namespace {

TEST(LibraryAllocation, RunningAllocatesNothing) {
  if (!counts_allocations()) GTEST_SKIP() << "malloc cannot be counted here";
  const EngineFolder folder;
  for (const auto& [precision, threads] : {std::pair{"fp32", 0}, {"fp8", 1}, {"w4a16", 0}, {"int8", 2}}) {
    SCOPED_TRACE(precision);
    const Held<tess_engine> engine = open_file(folder.digits(precision, "5"));
    const int64_t begin = allocations;
    const Held<tess_context> context = make_context(engine, "batch5", threads);
    EXPECT_GT(allocations, begin) << "the library's allocations are not counted: this test would say nothing";
    std::vector<float> x = digits_images(5), y(50);
    HostTensor in(x, {5, 1, 8, 8}), out(y, {5, 10});
    const tess_tensor* ins[] = {&in.tensor};
    tess_tensor* outs[] = {&out.tensor};
    for (int run = 0; run < 3; ++run) {
      const int64_t before = allocations;
      tess_status* status = run % 2 == 0 ? tess_run(context.get(), ins, 1, outs, 1)
                                         : tess_enqueue(context.get(), ins, 1, outs, 1, nullptr);
      // A pool of the context's own starts in its first run; the one that all share is at work since the golden check.
      if (run > 0 || threads == 0) {
        EXPECT_EQ(allocations - before, 0) << "run " << run;
      }
      EXPECT_EQ(code_of(status), TESS_OK);
    }
  }
}

TEST(LibraryAllocation, AContextAddsItsArena) {
  if (!counts_allocations()) GTEST_SKIP() << "malloc cannot be counted here";
  const EngineFolder folder;
  const Held<tess_engine> engine = open_file(folder.digits("fp32", "5"));
  tess_context_options options{};
  options.size = sizeof(options), options.plan = "batch5";
  tess_memory need{};
  need.size = sizeof(need);
  ASSERT_OK(tess_memory_needed(engine.get(), &options, &need));
  ASSERT_GT(need.weights_bytes, need.arena_bytes);
  std::vector<Held<tess_context>> contexts;
  contexts.reserve(8);
  for (int i = 0; i < 8; ++i) {
    const int64_t before = bytes_held;
    contexts.push_back(make_context(engine, "batch5"));
    if (i == 0) continue;  // it also makes what all share
    const int64_t added = bytes_held - before;
    EXPECT_GE(added, need.arena_bytes);
    EXPECT_LT(added - need.arena_bytes, need.weights_bytes / 8) << "of " << need.weights_bytes << " bytes of weights";
  }
  const int64_t all = bytes_held;
  contexts.clear();
  EXPECT_LE(bytes_held, all - 8 * need.arena_bytes) << "contexts give back what they took";
}

}  // namespace
}  // namespace tessera
