// SPDX-License-Identifier: Apache-2.0
// What a refusal advises is taken, and leads to a plan.
#include "compile/advise.h"

#include <gtest/gtest.h>

#include <regex>

#include "ir/text.h"
#include "ops/matmul/matmul.h"
#include "rewrite/canonicalise.h"

namespace tessera {
namespace {

// Two layers in a block; `k`: what the second reads.
Graph model(int64_t k) {
  auto graph = parse_graph(cat(R"(graph g {
    in %image: f32[2,40,32]
    const %we: f32[64,32] = seed(7)
    const %gain: f32[64] = seed(1)
    const %w1: f32[)",
                               k, R"(,64] = seed(2)
    const %w2: f32[64,)",
                               k, R"(] = seed(4)
    const %wh: f32[16,64] = seed(5)
    %x: f32[2,40,64] = matmul(%image, %we) @"embed"
    %n: f32[2,40,64] = norm(%x, %gain) {eps=0.00001, kind="rms"} @"norm"
    %h: f32[2,40,)",
                               k, R"(] = matmul(%n, %w1) @"blocks.0.fc1"
    %a: f32[2,40,)",
                               k, R"(] = map(%h) {fn="gelu_erf"}
    %d: f32[2,40,64] = matmul(%a, %w2) @"blocks.0.fc2"
    %r: f32[2,40,64] = map(%d, %x) {fn="add"} @"add"
    %n2: f32[2,40,64] = norm(%r, %gain) {eps=0.00001, kind="rms"} @"norm2"
    %y: f32[2,40,16] = matmul(%n2, %wh) @"head"
    out %y
  })"));
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  EXPECT_TRUE(canonicalise(*graph).ok());
  return *graph;
}

struct Asked {
  Graph graph;
  LowerOptions options;
  Ranges ranges;

  Asked(int64_t k, const std::string& precision) : graph(model(k)) {
    for (const Value& v : graph.values) ranges.values[v.name] = 4.0f;
    options.types.precision = precision;
    options.plan.target = Arch::sm90;
  }
  Status lowered() {
    options.types.ranges = needs_ranges(options.types) ? &ranges : nullptr;
    std::vector<EngineConstant> constants;
    ConstantPool pool(constants);
    return lower(graph, options, pool).status();
  }
  void prune() {
    options.types.sparse = true;
    for (Node& n : graph.nodes) {
      if (n.op == "matmul" && n.name.starts_with("blocks")) n.attrs.set(kSparse24, int64_t{1});
    }
  }
};

std::string refusal(Asked& asked) {
  const Status status = asked.lowered();
  EXPECT_EQ(status.code(), Code::kRefused) << status.message();
  return status.message();
}

TEST(Advise, AllowsTheLayersThatAreRefused) {
  Asked asked(40, "fp8");
  asked.options.types.allow = {{"blocks.0.fc1", "nvfp4"}};  // the other layer is left in fp8
  std::string text = refusal(asked);
  const Status status = asked.lowered();
  ASSERT_NE(status.layers(), nullptr) << "the layers are data, beside the advice";
  for (const RefusedLayer& l : *status.layers()) {
    EXPECT_NE(text.find(l.layer), std::string::npos) << l.layer;
    const bool asked_for = l.asked == "fp8" || l.asked == "nvfp4";
    EXPECT_TRUE(l.op == "matmul" ? asked_for : l.asked.empty()) << l.layer << " (" << l.op << "): " << l.asked;
    EXPECT_FALSE(l.refusals.empty());
    for (const Refusal& r : l.refusals) {
      EXPECT_EQ(r.variant.find(l.op + "/"), 0u) << r.variant;
      EXPECT_NE(text.find(cat(r.variant, ": ", r.reason)), std::string::npos) << r.variant;
    }
  }
  // What to do comes before the reasons, which may be many.
  EXPECT_LT(text.find("--allow"), text.find("matmul/")) << text;
  EXPECT_LT(text.find(" cannot run as asked on "), text.find("--allow")) << text;
  const std::regex allow("--allow '([^'=]+)=([a-z0-9]+)'");
  int flags = 0;
  for (std::smatch m; std::regex_search(text, m, allow); text = m.suffix(), ++flags)
    asked.options.types.allow.push_back({m[1], m[2]});
  EXPECT_GT(flags, 0);
  EXPECT_TRUE(asked.lowered().ok()) << asked.lowered().message();
}

// Allowing every layer away would be an error of its own.
TEST(Advise, NamesAnotherPrecisionWhereNoLayerWouldBeLeft) {
  Asked asked(48, "nvfp4");
  const std::string text = refusal(asked);
  EXPECT_EQ(text.find("--allow"), std::string::npos) << text;
  EXPECT_NE(text.find("another precision runs: --precision fp8\n"), std::string::npos) << "8 bits before 16: " << text;
  EXPECT_NE(text.find("--target cpu"), std::string::npos) << text;
  asked.options.types.precision = "fp8";
  EXPECT_TRUE(asked.lowered().ok()) << asked.lowered().message();
}

TEST(Advise, LeavesSparsityOutWhereThatHelps) {
  for (const std::string precision : {"fp8_token"}) {  // which sm90 multiplies by dense weights only
    Asked asked(48, precision);
    asked.prune();
    const std::string text = refusal(asked);
    EXPECT_EQ(text.find("--allow"), std::string::npos) << text;
    EXPECT_NE(text.find("leave --sparsity out"), std::string::npos) << text;
    EXPECT_TRUE(Asked(48, precision).lowered().ok());
  }
  Asked both(40, "nvfp4");
  both.prune();
  const std::string text = refusal(both);
  EXPECT_EQ(text.find("leave --sparsity out"), std::string::npos) << text;
  EXPECT_NE(text.find("--precision fp8, without --sparsity"), std::string::npos) << text;
  EXPECT_TRUE(Asked(40, "fp8").lowered().ok());
}

// No precision takes away what the model itself states, and no other target runs more than the CPU does.
TEST(Advise, SaysWhereNothingHelps) {
  auto graph = parse_graph(R"(graph g {
    in %x: f32[3,32]
    const %s: f32[3] = {1, 2, 3}
    %a: e4m3:channel(f32)[3,32] scale=%s = copy(%x) @"round"
    %y: f32[3,32] = copy(%a)
    out %y
  })");
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  std::vector<EngineConstant> constants;
  ConstantPool pool(constants);
  LowerOptions options;
  options.plan.target = Arch::cpu;
  const auto plan = lower(*graph, options, pool);
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.status().message().find("round (copy)"), std::string::npos) << plan.status().message();
  EXPECT_NE(plan.status().message().find("no option changes that"), std::string::npos) << plan.status().message();
}

}  // namespace
}  // namespace tessera
