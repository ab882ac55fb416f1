// SPDX-License-Identifier: Apache-2.0
// Attention that no kernel of a target runs, heads of more columns than any takes: products and a softmax in the
// precision that was asked for, which compute what attention does.
#include <gtest/gtest.h>

#include <algorithm>

#include "compile/compile.h"
#include "testing/run_graph.h"
#include "verify/validate/validate_plan.h"

namespace tessera {
namespace {

using testing::canonical;
using testing::relative_error;

// Channels that attend to one another: a head's columns are pixels. q and k are views of one value, as joined layers
// give them.
std::string graph_of(int64_t head, bool biased, bool causal = false) {
  const std::string heads = cat("f32[2,6,3,", head, "]"), both = cat("f32[2,6,", 6 * head, "]");
  const std::string strides = cat("strides=[", 36 * head, ",", 6 * head, ",", head, ",1]");
  std::string text = cat("graph channels {\n  in %qk: ", both, "\n  in %v: ", heads, "\n");
  if (biased) text += "  in %bias: f32[2,3,6,6]\n";
  text += cat("  %q: ", heads, " = view(%qk) {offset=0, ", strides, "}\n");
  text += cat("  %k: ", heads, " = view(%qk) {offset=", 3 * head, ", ", strides, "}\n");
  text += cat("  %y: ", heads, " = attention(%q, %k, %v", biased ? ", %bias" : "", ") {", causal ? "causal=1, " : "",
              "scale=0.0371} @\"attn\"\n  out %y\n}\n");
  return text;
}

struct Lowered {
  Graph model, typed;
  Result<Graph> graph = refused("not made");
  Engine engine;
  Result<Plan> plan = refused("not made");
};

void make(const std::string& text, const std::string& precision, Arch target, Lowered& l) {
  l.model = l.typed = canonical(text);
  LowerOptions options;
  options.types.precision = precision;
  options.types.target = options.plan.target = target;
  options.plan.batch = 2;
  ASSERT_TRUE(quantize(l.typed, options.types).ok());
  l.graph = lower_graph(l.model, options);
  ConstantPool pool(l.engine.constants);
  l.plan = lower(l.model, options, pool);
}

TEST(SpeltAttention, RunsAndIsTheModel) {
  for (const int64_t head : {304, 1024}) {
    for (const auto& [precision, bound] : {std::pair("fp16", 0x1p-8), {"bf16", 0x1p-5}, {"fp32", 0x1p-20}}) {
      SCOPED_TRACE(cat(precision, ", heads of ", head));
      Lowered l;
      make(graph_of(head, false), precision, Arch::sm90, l);
      ASSERT_TRUE(l.graph.ok()) << l.graph.status().message();
      const auto counts = testing::count_ops(*l.graph);
      EXPECT_EQ(counts.count("attention"), 0u);
      EXPECT_EQ(counts.at("matmul"), 2);
      EXPECT_EQ(counts.at("softmax"), 1);
      ASSERT_TRUE(l.plan.ok()) << l.plan.status().message();
      const auto in = testing::random_inputs(l.model, 3);
      const auto want = testing::run_graph(l.typed, in), got = testing::run_graph(*l.graph, in);
      ASSERT_TRUE(want.ok() && got.ok()) << want.status().message() << got.status().message();
      EXPECT_LE(relative_error((*got)[0], (*want)[0]), bound);
      const Validation v = validate_plan(l.engine.constants, *l.plan, l.model, {});
      EXPECT_TRUE(v.faults.empty()) << v.faults[0];
    }
  }
}

// Another scale is another model.
TEST(SpeltAttention, ItsScaleIsHeldAgainstTheModels) {
  Lowered l;
  make(graph_of(304, false), "fp16", Arch::sm90, l);
  ASSERT_TRUE(l.plan.ok()) << l.plan.status().message();
  for (Node& n : l.model.nodes) {
    if (n.op == "attention") n.attrs.set("scale", 0.0372);
  }
  const Validation v = validate_plan(l.engine.constants, *l.plan, l.model, {});
  ASSERT_FALSE(v.faults.empty());
  EXPECT_NE(v.faults[0].find("attn.scale"), std::string::npos) << v.faults[0];
}

TEST(SpeltAttention, StaysWhereAKernelRunsItOrNothingElseWould) {
  for (const auto& [text, target] : {std::pair(graph_of(96, true), Arch::sm90), {graph_of(304, true), Arch::cpu}}) {
    Lowered l;
    make(text, "fp32", target, l);
    ASSERT_TRUE(l.plan.ok()) << l.plan.status().message();
    EXPECT_EQ(testing::count_ops(*l.graph).at("attention"), 1);
  }
  for (const bool causal : {false, true}) {
    Lowered refused;
    make(graph_of(304, !causal, causal), "fp16", Arch::sm90, refused);
    ASSERT_TRUE(refused.graph.ok());
    EXPECT_EQ(testing::count_ops(*refused.graph).at("attention"), 1);
    EXPECT_FALSE(refused.plan.ok());
  }
}

}  // namespace
}  // namespace tessera
