// SPDX-License-Identifier: Apache-2.0
// Folded norms: which ones are folded for Hopper, what the plan then is, and that it computes what the
// norms did.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compile/compile.h"
#include "golden/golden_run.h"
#include "lower/fold_norms.h"
#include "op/extra_results.h"
#include "ops/ops.h"
#include "testing/run_graph.h"

namespace tessera {
namespace {

using testing::canonical;
using testing::relative_error;

// A block of a transformer without its attention: two norms between linear layers, one of them with two readers, a
// third before the head. `kind` and the result's batch may differ.
std::string block(int64_t batch, const char* kind, bool shift) {
  const std::string rows = cat("f32[", batch, ",40,");
  const std::string side = shift ? ", %shift" : "";
  return cat(R"(graph block {
  in %image: )",
             rows, R"(32]
  const %we: f32[96,32] = seed(7)
  const %gain: f32[96] = seed(1)
  const %shift: f32[96] = seed(8)
  const %w1: f32[192,96] = seed(2)
  const %b1: f32[192] = seed(9)
  const %w2: f32[96,192] = seed(3)
  const %wa: f32[96,96] = seed(4)
  const %wb: f32[96,96] = seed(6)
  const %wh: f32[16,96] = seed(5)
  %x: )",
             rows, R"(96] = matmul(%image, %we) @"embed"
  %n: )",
             rows, R"(96] = norm(%x, %gain)", side, ") {eps=0.00001, kind=\"", kind, R"("} @"norm1"
  %h0: )",
             rows, R"(192] = matmul(%n, %w1) @"fc1"
  %h1: )",
             rows, R"(192] = map(%h0, %b1) {fn="add"}
  %h: )",
             rows, R"(192] = map(%h1) {fn="gelu_erf"} @"act"
  %d: )",
             rows, R"(96] = matmul(%h, %w2) @"fc2"
  %r: )",
             rows, R"(96] = map(%d, %x) {fn="add"} @"add1"
  %m: )",
             rows, R"(96] = norm(%r, %gain)", side, ") {eps=0.00001, kind=\"", kind, R"("} @"norm2"
  %a: )",
             rows, R"(96] = matmul(%m, %wa) @"left"
  %b: )",
             rows, R"(96] = matmul(%m, %wb) @"right"
  %c: )",
             rows, R"(96] = matmul(%b, %wb) @"further"
  %s: )",
             rows, R"(96] = map(%a, %r) {fn="add"} @"add2"
  %t: )",
             rows, R"(96] = map(%c, %s) {fn="add"} @"add3"
  %o: )",
             rows, R"(96] = norm(%t, %gain)", side, ") {eps=0.00001, kind=\"", kind, R"("} @"norm3"
  %y: )",
             rows, R"(16] = matmul(%o, %wh) @"head"
  out %y
})");
}

LowerOptions asking(const std::string& precision, Arch target, const Ranges& ranges) {
  LowerOptions lowering;
  lowering.types.precision = precision;
  lowering.types.ranges = &ranges;
  lowering.types.target = target;
  lowering.plan.target = target;
  return lowering;
}

Ranges ranges_of(const Graph& graph) {
  Ranges ranges;
  for (const Value& v : graph.values) ranges.values[v.name] = 6.0f;
  return ranges;
}

std::set<std::string> foldable(const Graph& graph, const std::string& precision, Arch target = Arch::sm90,
                               std::vector<Allowance> allow = {}, const RowOffsets& offsets = {}) {
  const Ranges ranges = ranges_of(graph);
  LowerOptions lowering = asking(precision, target, ranges);
  lowering.types.allow = std::move(allow);
  auto names = foldable_norms(graph, lowering.types, offsets);
  EXPECT_TRUE(names.ok()) << names.status().message();
  return names.ok() ? *names : std::set<std::string>();
}

const std::set<std::string> kAll{"norm1", "norm2", "norm3"};

TEST(FoldedNorms, AreThoseBetweenLinearLayersOfFewRows) {
  const Graph one = canonical(block(1, "layer", true));
  for (const std::string precision : {"fp16", "bf16", "fp8"}) EXPECT_EQ(foldable(one, precision), kAll) << precision;
  EXPECT_EQ(foldable(one, "int8"), (std::set<std::string>{"norm3"}))
      << "the head is in 16 bits, the other readers have even steps";
  EXPECT_EQ(foldable(canonical(block(6, "rms", false)), "fp8"), kAll);
  EXPECT_TRUE(foldable(canonical(block(7, "layer", true)), "fp8").empty()) << "280 rows are no few rows";
  EXPECT_TRUE(foldable(one, "fp8", Arch::cpu).empty());
  EXPECT_TRUE(foldable(one, "nvfp4").empty());
  EXPECT_TRUE(foldable(one, "mxfp8").empty());
}

// A layer whose own precision has no such kernel keeps its norm; the other one goes.
TEST(FoldedNorms, FollowWhatEachLayerIsAskedFor) {
  const Graph one = canonical(block(1, "layer", true));
  EXPECT_EQ(foldable(one, "fp8", Arch::sm90, {{"right", "fp16"}}), kAll);
  EXPECT_EQ(foldable(one, "fp8", Arch::sm90, {{"right", "nvfp4"}}), (std::set<std::string>{"norm1", "norm3"}));
  // Only norm3 reads what comes before it: codes would be all that is left of that.
  EXPECT_EQ(foldable(one, "fp8", Arch::sm90, {{"head", "fp8"}}), (std::set<std::string>{"norm1", "norm2"}));
}

// What is rounded has the rows' mean in it: far from zero too much is lost, in 8 bits sooner than in 16.
TEST(FoldedNorms, StayWhereRowsAreFarFromZero) {
  const Graph one = canonical(block(1, "layer", true));
  const RowOffsets offsets{{"norm1", 0.4}, {"norm2", 1.0}, {"norm3", 30.0}};
  EXPECT_EQ(foldable(one, "fp8", Arch::sm90, {}, offsets), (std::set<std::string>{"norm1"}));
  EXPECT_EQ(foldable(one, "fp16", Arch::sm90, {}, offsets), (std::set<std::string>{"norm1", "norm2"}));
}

TEST(FoldedNorms, StayWhereTheirRangeIsSetByHand) {
  const Graph one = canonical(block(1, "layer", true));
  Ranges ranges = ranges_of(one);
  ranges.values.at("norm2").by_hand = 3.0f;
  const auto names = foldable_norms(one, asking("fp8", Arch::sm90, ranges).types, {});
  ASSERT_TRUE(names.ok());
  EXPECT_EQ(*names, (std::set<std::string>{"norm1", "norm3"}));
}

// Layers that read the tokens in another grouping share one view, one set of codes, and those come from the layer
// before.
TEST(FoldedNorms, ReadersInAnotherGroupingShareCodes) {
  std::string text = block(1, "layer", true);
  const auto replace = [&](const std::string& from, const std::string& to) {
    ASSERT_NE(text.find(from), std::string::npos) << from;
    text.replace(text.find(from), from.size(), to);
  };
  replace("%a: f32[1,40,96] = matmul(%m, %wa)",
          "%mf: f32[40,96] = view(%m) {offset=0, strides=[96,1]}\n  %af: f32[40,96] = matmul(%mf, %wa)");
  replace("%b: f32[1,40,96] = matmul(%m, %wb)",
          "%a: f32[1,40,96] = view(%af) {offset=0, strides=[3840,96,1]}\n  %bf: f32[40,96] = matmul(%mf, %wb)");
  replace("%c: f32[1,40,96] = matmul(%b, %wb)",
          "%b: f32[1,40,96] = view(%bf) {offset=0, strides=[3840,96,1]}\n  %c: f32[1,40,96] = matmul(%b, %wb)");
  const Graph graph = canonical(text);
  EXPECT_EQ(foldable(graph, "fp8"), kAll);
  const Ranges ranges = ranges_of(graph);
  LowerOptions lowering = asking("fp8", Arch::sm90, ranges);
  lowering.types.folded_norms = kAll;
  std::vector<EngineConstant> constants;
  ConstantPool pool(constants);
  const auto plan = lower(graph, lowering, pool);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  for (const PlanStep& s : plan->steps)
    EXPECT_FALSE(s.op == "copy" && s.layer.find("quantize") != std::string::npos) << s.layer;
}

TEST(FoldedNorms, LeaveNoKernelBehind) {
  const Graph graph = canonical(block(1, "layer", true));
  const Ranges ranges = ranges_of(graph);
  for (const std::string precision : {"fp16", "fp8", "int8"}) {
    LowerOptions lowering = asking(precision, Arch::sm90, ranges);
    std::vector<size_t> steps;
    for (const bool folded : {false, true}) {
      if (folded) lowering.types.folded_norms = kAll;
      std::vector<EngineConstant> constants;
      ConstantPool pool(constants);
      const auto plan = lower(graph, lowering, pool);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      steps.push_back(plan->steps.size());
      int normalised = 0, beside = 0;
      for (const PlanStep& s : plan->steps) {
        normalised += s.then.find(StepKind::normalise) != nullptr;
        beside += static_cast<int>(s.out.size()) - 1;
        if (folded && s.layer == "fc2") {
          EXPECT_EQ(s.out.size(), precision == "fp16" ? 2u : 3u);
          EXPECT_EQ(plan->tensors[static_cast<size_t>(s.out.back())].desc.type, QuantType(Element::f32));
        }
      }
      EXPECT_EQ(normalised, folded ? 4 : 0);
      EXPECT_EQ(beside, folded ? (precision == "fp16" ? 3 : 5) : 0);
    }
    EXPECT_EQ(steps[0] - steps[1], 3u) << precision;
  }
}

// By the references. In f32 the algebra is exact but for the rounding of folded weights and biases to f32; in 16 bits
// what is rounded moves: each rounding is 2^-11 of its number at most, of which there are some ten between image and
// result, damped by no residual in the head.
TEST(FoldedNorms, ComputeWhatTheNormsDid) {
  for (const char* kind : {"layer", "rms"}) {
    for (const bool shift : {false, true}) {
      const Graph graph = canonical(block(2, kind, shift));
      const Ranges ranges = ranges_of(graph);
      for (const std::string precision : {"fp32", "fp16", "fp8"}) {
        std::vector<Outputs64> outputs;
        for (const bool folded : {false, true}) {
          LowerOptions lowering = asking(precision, precision == "fp32" ? Arch::cpu : Arch::sm90, ranges);
          lowering.plan.batch = 2;
          lowering.plan.as_reference = true;
          Engine engine;
          ConstantPool pool(engine.constants);
          Graph copy = graph;
          if (folded && precision != "fp32") lowering.types.folded_norms = kAll;
          auto plan = lower(copy, lowering, pool);
          if (folded && precision == "fp32") {  // no kernel of the CPU: the graph itself, run by its references
            ASSERT_TRUE(fold_norms(copy, kAll, {}).ok());
            lowering.plan.target = Arch::ref;
            plan = make_plan(copy, lowering.plan, pool);
          }
          ASSERT_TRUE(plan.ok()) << plan.status().message();
          const auto made = run_plan(engine, *plan, random_samples(*plan, 2, 5));
          ASSERT_TRUE(made.ok()) << made.status().message();
          outputs.push_back(*made);
        }
        EXPECT_GT(*std::max_element(outputs[1][0].begin(), outputs[1][0].end()), 0);
        const double step = precision == "fp32" ? 0x1p-24 : precision == "fp16" ? 0x1p-11 : 0x1p-4;
        EXPECT_LE(relative_error(outputs[0][0], outputs[1][0]), 10 * step) << precision << " " << kind;
      }
    }
  }
}

// A plan that keeps the norms reads the weights of a plan that folds them, to the byte, and computes the same.
TEST(FoldedNorms, ThatStayKernelsReadTheSameWeights) {
  for (const char* kind : {"layer", "rms"}) {
    for (const bool shift : {false, true}) {
      const Graph graph = canonical(block(2, kind, shift));
      Ranges ranges = ranges_of(graph);
      for (const std::string& norm : norms_between_layers(graph)) ranges.values[plain_value(norm)] = 6.0f;
      for (const std::string precision : {"fp16", "fp8"}) {
        Engine engine;
        ConstantPool pool(engine.constants);
        std::vector<Outputs64> outputs;
        std::vector<std::set<int64_t>> weights;
        size_t first = 0;
        for (const bool folded : {true, false}) {
          LowerOptions lowering = asking(precision, Arch::sm90, ranges);
          lowering.plan.batch = 2;
          lowering.plan.as_reference = true;
          (folded ? lowering.types.folded_norms : lowering.types.plain_norms) = kAll;
          const auto plan = lower(graph, lowering, pool);
          ASSERT_TRUE(plan.ok()) << plan.status().message();
          if (folded) first = engine.constants.size();
          const auto made = run_plan(engine, *plan, random_samples(*plan, 2, 5));
          ASSERT_TRUE(made.ok()) << made.status().message();
          outputs.push_back(*made);
          weights.emplace_back();
          for (const PlanStep& s : plan->steps) {
            if (s.op == "matmul") weights.back().insert(plan->tensors[static_cast<size_t>(s.in[1])].index);
            if (s.op == "norm") {
              EXPECT_TRUE(s.in.size() == 1 || s.in[1] < 0) << s.layer;
            }
          }
        }
        EXPECT_EQ(weights[0], weights[1]) << precision << " " << kind;
        for (size_t c = first; c < engine.constants.size(); ++c)
          EXPECT_LE(engine.constants[c].data.size(), 4u) << "a scale: " << engine.constants[c].name;
        const double step = precision == "fp16" ? 0x1p-11 : 0x1p-4;
        EXPECT_GT(*std::max_element(outputs[1][0].begin(), outputs[1][0].end()), 0);
        EXPECT_LE(relative_error(outputs[0][0], outputs[1][0]), 10 * step) << precision << " " << kind;
      }
    }
  }
}

// Files may state anything of them.
TEST(FoldedNorms, RefuseWhatDoesNotFit) {
  const auto check = [](const Attrs& attrs, const Shape& moments, Element e) {
    Problem p{.op = "matmul",
              .in = {dense_operand({3, 96}, Element::f16), dense_operand({8, 96}, Element::f16, true),
                     dense_operand(moments, e)},
              .out = {dense_operand({3, 8}, Element::f16)},
              .attrs = attrs,
              .then = {{{.kind = StepKind::normalise, .operand = 2}}}};
    return check_problem(*find_op("matmul"), p);
  };
  EXPECT_TRUE(check({{kFoldedEps, 1e-5}}, {3, 2, 2}, Element::f32).ok());
  EXPECT_FALSE(check({{kFoldedEps, 1e-5}}, {3, 1, 2}, Element::f32).ok());
  EXPECT_FALSE(check({{kFoldedEps, 1e-5}}, {2, 2, 2}, Element::f32).ok());
  EXPECT_FALSE(check({{kFoldedEps, 1e-5}}, {3, 2, 2}, Element::f16).ok());
  EXPECT_FALSE(check({{kFoldedEps, -1.0}}, {3, 2, 2}, Element::f32).ok());
  EXPECT_FALSE(check({{kFoldedKind, std::string("batch")}}, {3, 2, 2}, Element::f32).ok());
  EXPECT_FALSE(check({{kMomentsResult, int64_t{1}}}, {3, 2, 2}, Element::f32).ok()) << "a result is missing";
}

}  // namespace
}  // namespace tessera
