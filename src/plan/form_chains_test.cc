// SPDX-License-Identifier: Apache-2.0
// Which neighbouring steps become one chain: asked for, of few rows, at least kFewestPhases of them, none of which
// reads early what the chain itself makes.
#include "plan/form_chains.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "ir/text.h"
#include "plan/engine_file.h"
#include "plan/make_plan.h"

namespace tessera {
namespace {

// `layers` matmuls in a row, between copies that reach the caller's buffers.
std::string stack(int rows, int layers, const std::string& between = "") {
  const std::string shape = cat("bf16[1,", rows, ",256]");
  std::string text =
      cat("graph g {\n  in %x: ", shape, "\n  const %w: bf16[256,256] = seed(3)\n  %h0: ", shape, " = copy(%x)\n");
  for (int i = 0; i < layers; ++i)
    text += cat("  %h", i + 1, ": ", shape, " = matmul(%h", i, ", %w) @\"fc", i + 1, "\" role block.mlp asked bf16\n",
                i + 1 == 2 ? between : "");
  return text + cat("  %y: ", shape, " = copy(%h", layers, ")\n  out %y\n}\n");
}

std::vector<int> chains_of(const std::string& text, bool chains = true) {
  auto graph = parse_graph(text);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  if (!graph.ok()) return {};
  std::vector<EngineConstant> constants;
  ConstantPool pool(constants);
  auto plan = make_plan(*graph, {.target = Arch::sm90, .chains = chains}, pool);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  std::vector<int> of_steps;
  for (const PlanStep& s : plan.ok() ? plan->steps : std::vector<PlanStep>()) of_steps.push_back(s.chain);
  return of_steps;
}

using Chains = std::vector<int>;

TEST(FormChains, StepsBetweenTheCallersBuffersAreOne) {
  EXPECT_EQ(chains_of(stack(10, 4)), (Chains{-1, 0, 0, 0, 0, -1}));
  EXPECT_EQ(chains_of(stack(64, 5)), (Chains{-1, 0, 0, 0, 0, 0, -1}));
}

TEST(FormChains, NoneUnlessAskedFor) { EXPECT_EQ(chains_of(stack(10, 4), false), Chains(6, -1)); }

TEST(FormChains, FewPhasesAndManyRowsStayKernels) {
  EXPECT_EQ(chains_of(stack(10, static_cast<int>(kFewestPhases) - 1)), Chains(kFewestPhases + 1, -1));
  EXPECT_EQ(chains_of(stack(65, 4)), Chains(6, -1));
}

// A kernel that is no phase ends a chain: what is left on either side is too short.
TEST(FormChains, AKernelOfItsOwnBetween) {
  const std::string between = "  %m: f32[1,10,256] = map(%h2) {fn=\"sin\"}\n";
  EXPECT_EQ(chains_of(stack(10, 4, between)), Chains(7, -1));
  const Chains eight = {-1, -1, -1, -1, 0, 0, 0, 0, 0, 0, -1};
  EXPECT_EQ(chains_of(stack(10, 8, between)), eight);
}

// A bias is read before its phase begins: what the chain itself makes is not there yet, so a new chain begins.
TEST(FormChains, AVectorThatTheChainMakesEndsIt) {
  const std::string usual = "matmul(%h4, %w)", early = "matmul(%h4, %w, %v) then bias(2)";
  std::string text = stack(1, 8, "  %v: bf16[256] = view(%h1) {strides=[1]}\n");
  EXPECT_EQ(chains_of(text), (Chains{-1, 0, 0, 0, 0, 0, 0, 0, 0, -1}));
  text.replace(text.find(usual), usual.size(), early);
  EXPECT_EQ(chains_of(text), (Chains{-1, 0, 0, 0, 0, 1, 1, 1, 1, -1}));
}

TEST(FormChains, TheEngineFileKeepsThem) {
  auto graph = parse_graph(stack(10, 4));
  ASSERT_TRUE(graph.ok());
  Engine e;
  e.target = Arch::sm90;
  ConstantPool pool(e.constants);
  auto plan = make_plan(*graph, {.target = Arch::sm90, .chains = true}, pool);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  e.plans.push_back(std::move(plan).value());
  const std::string path = testing::TempDir() + "form_chains_test.tess";
  const Status written = write_engine(e, path);
  ASSERT_TRUE(written.ok()) << written.message();
  auto again = read_engine(path);
  std::remove(path.c_str());
  ASSERT_TRUE(again.ok()) << again.status().message();
  ASSERT_EQ(again->plans[0].steps.size(), e.plans[0].steps.size());
  for (size_t i = 0; i < e.plans[0].steps.size(); ++i) {
    EXPECT_EQ(again->plans[0].steps[i].chain, e.plans[0].steps[i].chain);
    EXPECT_EQ(again->plans[0].steps[i].config, e.plans[0].steps[i].config);
  }
}

}  // namespace
}  // namespace tessera
