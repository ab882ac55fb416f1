// SPDX-License-Identifier: Apache-2.0
// Engines that ask for more than the machine has, or give a kernel less than it needs: an error by name, before
// anything is taken.
#include <gtest/gtest.h>

#include "plan/engine_file.h"
#include "runtime/bind.h"
#include "runtime/executor.h"
#include "testing/lowered_engine.h"

namespace tessera {
namespace {

constexpr int64_t kTooMuch = int64_t{1} << 46;

PlanTensor port(const std::string& name, const Shape& shape, Storage storage) {
  PlanTensor t;
  t.name = name;
  t.desc = dense_operand(shape, Element::f32);
  t.storage = storage;
  t.index = 0;
  return t;
}

// y = x for rows of 4.
Engine copying_engine() {
  Engine e;
  e.target = Arch::cpu;
  Plan p{.name = "main", .arch = Arch::cpu, .batch = 2};
  p.tensors = {port("x", {2, 4}, Storage::kInput), port("y", {2, 4}, Storage::kOutput)};
  p.inputs = {{"x", 0}};
  p.outputs = {{"y", 1}};
  p.steps.push_back({.layer = "copy", .op = "copy", .variant = "copy/cpu", .in = {0}, .out = {1}});
  e.plans = {p};
  return e;
}

std::string error_of(const Engine& e, bool sound = true) {
  EXPECT_EQ(check_engine(e).ok(), sound) << check_engine(e).message();
  const auto executor = bind(e, e.plans[0]);
  EXPECT_FALSE(executor.ok());
  return executor.status().message();
}

TEST(Bind, RunsWhatFits) {
  const Engine e = copying_engine();
  ASSERT_TRUE(check_engine(e).ok()) << check_engine(e).message();
  auto executor = bind(e, e.plans[0]);
  ASSERT_TRUE(executor.ok()) << executor.status().message();
  const std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<float> y(8, -1);
  const void* in[] = {x.data()};
  void* out[] = {y.data()};
  ASSERT_TRUE((*executor)->run(in, out).ok());
  EXPECT_EQ(y, x);
}

// A view into a caller's buffer, which a kernel finds through a slot: it is told how far to go from there.
TEST(Bind, ViewsOfSlotsKeepTheirOffset) {
  Engine e = copying_engine();
  Plan& p = e.plans[0];
  p.tensors[0].desc.shape = {3, 4};
  p.tensors.push_back(port("x.view", {2, 4}, Storage::kInput));
  p.tensors[2].offset_bytes = 16;
  p.steps[0].in = {2};
  auto steps = bind_steps(p);
  ASSERT_TRUE(steps.ok()) << steps.status().message();
  void* slots[2] = {};
  place_views(p, {.input_slots = slots, .output_slots = slots + 1}, *steps);
  const TensorView &x = (*steps)[0].in[0], &y = (*steps)[0].out[0];
  EXPECT_EQ(x.slot, slots);
  EXPECT_EQ(x.slot_offset_bytes, 16);
  EXPECT_EQ(x.data, nullptr);
  EXPECT_EQ(y.slot, slots + 1);
  EXPECT_EQ(y.slot_offset_bytes, 0);
}

TEST(Bind, NoMemoryIsSaidByNameAndBytes) {
  Engine arena = copying_engine();
  arena.plans[0].arena_bytes = kTooMuch;
  EXPECT_NE(error_of(arena).find("no memory for the working memory of plan 'main': 70368744177664 bytes are wanted"),
            std::string::npos)
      << error_of(arena);
  Engine state = copying_engine();
  state.states = {{"cache", kTooMuch}};
  EXPECT_NE(error_of(state).find("no memory for state 'cache': 70368744177664 bytes are wanted"), std::string::npos);
  Engine wide = copying_engine();
  for (PlanTensor& t : wide.plans[0].tensors) t.desc = dense_operand({2, kTooMuch / 8}, Element::f32);
  EXPECT_NE(error_of(wide).find("no memory for 'x' of plan 'main': 70368744177664 bytes are wanted"),
            std::string::npos);
}

TEST(Bind, WhatThisProgramDoesNotKnow) {
  Engine unknown = copying_engine();
  unknown.plans[0].steps[0].variant = "copy/abacus";
  EXPECT_NE(error_of(unknown).find("layer copy wants kernel 'copy/abacus', which this program"), std::string::npos);
  Engine shape = copying_engine();
  shape.plans[0].steps[0].config = "3x5";
  EXPECT_NE(error_of(shape, false)
                .find("layer copy: 'copy/cpu' has no config '3x5' for this problem; it has one, without a name"),
            std::string::npos)
      << error_of(shape, false);
}

// One kernel cannot be part of another unless it was written so.
TEST(Bind, AStepOfAChainIsOneThatItsKernelCanBe) {
  Engine chained = copying_engine();
  chained.plans[0].steps[0].chain = 0;
  EXPECT_NE(error_of(chained).find("layer copy: 'copy/cpu' is a kernel of its own, and the step is in chain 0"),
            std::string::npos)
      << error_of(chained);
}

// A kernel reads its operands in the order that it asked for: an engine file that claims another one is refused before
// it runs.
TEST(Bind, OperandsLieAsTheirKernelReadsThem) {
  Plan p{.name = "main", .arch = Arch::cpu, .batch = 2};
  p.tensors = {port("x", {2, 8}, Storage::kInput), port("gain", {8}, Storage::kConstant),
               port("y", {2, 8}, Storage::kOutput)};
  p.inputs = {{"x", 0}};
  p.outputs = {{"y", 2}};
  p.tensors[1].desc.constant = true;
  p.steps.push_back({.layer = "n", .op = "norm", .variant = "norm/cpu", .in = {0, 1}, .out = {2}});
  p.steps[0].attrs.set("eps", 1e-5);
  ASSERT_TRUE(bind_steps(p).ok()) << bind_steps(p).status().message();
  for (const Layout layout : kLayouts) {
    if (layout == Layout::kRows) continue;
    Plan claims = p;
    claims.tensors[1].desc.layout = layout;
    EXPECT_NE(bind_steps(claims).status().message().find(
                  cat("layer n: operand 1 lies in '", name_of(layout), "' in the engine file, norm/cpu reads 'rows'")),
              std::string::npos)
        << bind_steps(claims).status().message();
    for (const char* variant : {"copy/cpu", "copy/reference"}) {
      Engine result = copying_engine();
      result.plans[0].steps[0].variant = variant;
      result.plans[0].tensors[1].desc.layout = layout;
      EXPECT_FALSE(bind_steps(result.plans[0]).ok()) << variant << " " << name_of(layout);
    }
  }
}

size_t input_of(const Plan& plan, const std::string& name) {
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    if (plan.inputs[i].name == name) return i;
  }
  ADD_FAILURE() << "no input " << name;
  return 0;
}

// Numbers for writing, through a copy, numbers for reading, and some that are no lengths.
constexpr const char* kBoth = R"(graph both {
  in %x: f32[2,1,1,4]
  in %at: i64[2]
  in %valid: i32[2]
  in %number: i32[2]
  in %cache: f32[2,5,1,4]
  %row: i32[2] = copy(%at) @"row"
  %after: f32[2,5,1,4] = write(%cache, %x, %row) {axis=1} @"write"
  %y: f32[2,1,1,4] = attention(%x, %after, %after, _, %valid) {scale=1, fresh=0} @"attention"
  %z: i32[2] = map(%number) {fn="neg"} @"neg"
  out %y
  out %z
  out %after
  state %cache = %after
})";

TEST(CacheLengths, AreFoundThroughCopies) {
  const Engine e = lowered_engine(kBoth);
  const Plan& plan = e.plans[0];
  const std::vector<CacheLength> lengths = cache_lengths(plan);
  EXPECT_EQ(longest_cache(lengths, input_of(plan, "at")), 4);
  EXPECT_EQ(longest_cache(lengths, input_of(plan, "valid")), 5);
  for (const char* other : {"x", "number", "cache"}) EXPECT_EQ(longest_cache(lengths, input_of(plan, other)), -1);
}

TEST(CacheLengths, EachBatchItemIsLookedAt) {
  const Engine e = lowered_engine(kBoth);
  const auto executor = bind(e, e.plans[0]);
  ASSERT_TRUE(executor.ok()) << executor.status().message();
  const std::vector<float> x(8, 1);
  const auto run = [&](int64_t row, int32_t first, int32_t second) {
    const std::vector<int64_t> at = {0, row};
    const std::vector<int32_t> valid = {first, second}, number = {-9, 1 << 30};
    std::vector<float> y(8);
    std::vector<int32_t> z(2);
    const void* in[] = {x.data(), at.data(), valid.data(), number.data(), nullptr};
    void* out[] = {y.data(), z.data(), nullptr};
    return (*executor)->run(in, out).message();
  };
  EXPECT_EQ(run(0, 0, 5), "");
  EXPECT_EQ(run(4, 5, 0), "");
  EXPECT_EQ(run(5, 5, 0),
            "input 'at' of plan 'main' is 5 for batch item 1; the cache has room for 0 to 4 rows before the new ones");
  EXPECT_EQ(run(4, 5, 6),
            "input 'valid' of plan 'main' is 6 for batch item 1; the cache has room for 0 to 5 rows before the new "
            "ones");
  EXPECT_EQ(run(4, -1, 5),
            "input 'valid' of plan 'main' is -1 for batch item 0; the cache has room for 0 to 5 rows before the new "
            "ones");
  EXPECT_EQ(run(int64_t{1} << 32, 5, 0),
            "input 'at' of plan 'main' is 4294967296 for batch item 1; the cache has room for 0 to 4 rows before the "
            "new ones");
}

}  // namespace
}  // namespace tessera
