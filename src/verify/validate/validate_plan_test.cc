// SPDX-License-Identifier: Apache-2.0
// Plans with faults of their own, which no graph has: memory that two tensors share, outputs and steps exchanged.
// Batches of which only the first samples are computed.
#include "verify/validate/validate_plan.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "compile/compile.h"
#include "ir/text.h"
#include "rewrite/canonicalise.h"

namespace tessera {
namespace {

// A gated MLP with a residual, and two outputs.
Graph model(int64_t batch) {
  const std::string rows = cat("f32[", batch, ",40,");
  auto graph = parse_graph(cat("graph m {\n  in %image: ", rows, R"(32]
  const %we: f32[64,32] = seed(7)
  const %gain: f32[64] = seed(1)
  const %wg: f32[96,64] = seed(2)
  const %wu: f32[96,64] = seed(3)
  const %wd: f32[64,96] = seed(4)
  const %wh: f32[16,64] = seed(5)
  const %wi: f32[16,64] = seed(6)
  %x: )",
                               rows, R"(64] = matmul(%image, %we) @"embed"
  %n: )",
                               rows, R"(64] = norm(%x, %gain) {eps=0.00001, kind="rms"} @"norm"
  %g: )",
                               rows, R"(96] = matmul(%n, %wg) @"gate"
  %a: )",
                               rows, R"(96] = map(%g) {fn="silu"} @"act"
  %u: )",
                               rows, R"(96] = matmul(%n, %wu) @"up"
  %p: )",
                               rows, R"(96] = map(%a, %u) {fn="mul"} @"mul"
  %d: )",
                               rows, R"(64] = matmul(%p, %wd) @"down"
  %r: )",
                               rows, R"(64] = map(%d, %x) {fn="add"} @"add"
  %y: )",
                               rows, R"(16] = matmul(%r, %wh) @"head"
  %z: )",
                               rows, R"(16] = matmul(%r, %wi) @"other_head"
  out %y
  out %z
})"));
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  Graph g = std::move(graph).value();
  EXPECT_TRUE(canonicalise(g).ok());
  return g;
}

struct Planned {
  Graph graph;
  Engine engine;
  Plan plan;
  std::vector<std::string> faults() const { return validate_plan(engine.constants, plan, graph).faults; }
};

Planned planned(Arch target, int64_t batch, const std::string& precision = "fp16") {
  Planned p{.graph = model(batch)};
  LowerOptions lowering;
  lowering.types.precision = precision;
  lowering.plan.target = target;
  lowering.plan.batch = batch;
  ConstantPool pool(p.engine.constants);
  auto plan = lower(p.graph, lowering, pool);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  p.plan = std::move(plan).value();
  return p;
}

PlanStep& step_of(Plan& plan, const std::string& layer) {
  for (PlanStep& s : plan.steps) {
    if (s.layer == layer) return s;
  }
  ADD_FAILURE() << "no layer " << layer;
  return plan.steps[0];
}

TEST(ValidatePlan, FindsNothingInARightPlanOfAnyBatch) {
  for (const Arch target : {Arch::cpu, Arch::sm90}) {
    for (const int64_t batch : {1, 2, 3, 40, 64}) {  // 40: tokens and samples are as many
      const Planned p = planned(target, batch);
      const Validation v = validate_plan(p.engine.constants, p.plan, p.graph);
      EXPECT_TRUE(v.faults.empty()) << info(target).name << ", batch " << batch << ": " << v.faults[0];
      EXPECT_TRUE(v.followed);
      EXPECT_EQ(v.steps, static_cast<int64_t>(p.plan.steps.size()));
      EXPECT_EQ(v.computed > 0, target == Arch::sm90) << "the gate is no layer of the model";
      EXPECT_EQ(v.constants, target == Arch::sm90 ? 6 : 7);
    }
  }
}

TEST(ValidatePlan, MemoryGivenToTwoTensors) {
  Planned p = planned(Arch::cpu, 2);
  // The stream is read again at the end of the block; the gate's result now lies on it.
  const int stream = step_of(p.plan, "embed").out[0], gate = step_of(p.plan, "gate").out[0];
  p.plan.tensors[static_cast<size_t>(gate)].offset_bytes = p.plan.tensors[static_cast<size_t>(stream)].offset_bytes;
  ASSERT_FALSE(p.faults().empty());
  EXPECT_NE(p.faults()[0].find("layer down: its residual is 'gate', the model has 'embed'"), std::string::npos)
      << p.faults()[0];
}

TEST(ValidatePlan, StepsInTheWrongOrder) {
  Planned p = planned(Arch::cpu, 2);
  std::swap(step_of(p.plan, "gate"), step_of(p.plan, "norm"));
  ASSERT_FALSE(p.faults().empty());
  EXPECT_NE(p.faults()[0].find("layer gate: it reads "), std::string::npos) << p.faults()[0];
}

TEST(ValidatePlan, OutputsExchanged) {
  Planned p = planned(Arch::cpu, 2);
  std::swap(step_of(p.plan, "head").out, step_of(p.plan, "other_head").out);
  EXPECT_FALSE(p.faults().empty());
  Planned q = planned(Arch::cpu, 2);
  std::swap(q.plan.outputs[0].tensor, q.plan.outputs[1].tensor);
  ASSERT_FALSE(q.faults().empty());
  EXPECT_EQ(q.faults()[0], "output 'y' is not that of the model");
}

TEST(ValidatePlan, OutputsMissing) {
  Planned p = planned(Arch::cpu, 2);
  p.plan.outputs.push_back(p.plan.outputs[0]);
  ASSERT_EQ(p.faults().size(), 1u);
  EXPECT_EQ(p.faults()[0], "it has 1 inputs and 3 outputs, the model has 1 and 2");
}

// In a plan of many samples too, where two of them are computed.
TEST(ValidatePlan, AGateOfAnotherFunctionAtALargeBatch) {
  Planned p = planned(Arch::sm90, 64);
  bool gated = false;
  for (PlanStep& s : p.plan.steps) {
    for (Step& step : s.then.steps) {
      if (step.kind == StepKind::gate) step.fn = Unary::gelu_tanh, gated = true;
    }
  }
  ASSERT_TRUE(gated);
  ASSERT_FALSE(p.faults().empty());
  EXPECT_NE(p.faults()[0].find("layer gate+up: it computes something else than the model"), std::string::npos)
      << p.faults()[0];
}

TEST(ValidatePlan, AnErrorOfOursWithTheFirstSentences) {
  Planned p = planned(Arch::cpu, 2);
  for (PlanStep& s : p.plan.steps) {
    if (s.op == "norm") s.attrs.set("eps", 0.01);
  }
  std::vector<std::string> said;
  const Status status = check_plan(p.engine.constants, p.plan, p.graph, {}, &said);
  EXPECT_EQ(status.message(),
            "plan main is not the model: layer norm: eps is 0.01, the model has 1e-05; this is a fault of tessera, not "
            "of the precision");
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].find("plan main: 7 constants and "), 0u) << said[0];
}

// What another plan has shown to be right is passed over, and nothing else is.
TEST(ValidatePlan, ConstantsThatWereComparedAreKnownByTheirBytes) {
  Planned p = planned(Arch::cpu, 2);
  ComparedConstants compared;
  const auto run = [&](ComparedConstants* known) {
    return validate_plan(p.engine.constants, p.plan, p.graph, {.compared = known});
  };
  const Validation first = run(&compared);
  EXPECT_TRUE(first.faults.empty());
  const size_t known = compared.size();
  EXPECT_GE(known, 4u);
  const Validation again = run(&compared);
  EXPECT_TRUE(again.faults.empty());
  EXPECT_EQ(again.constants, first.constants);
  EXPECT_EQ(compared.size(), known);
  const PlanStep& step = step_of(p.plan, "down");
  Bytes& stored = p.engine.constants[static_cast<size_t>(p.plan.tensors[static_cast<size_t>(step.in[1])].index)].data;
  Buffer other(stored.size());
  std::memcpy(other.data(), stored.data(), stored.size());
  other.data()[1] ^= 0x40;  // one number
  const Bytes right = std::exchange(stored, Bytes::own(std::move(other)));
  EXPECT_EQ(run(&compared).faults.size(), 1u);
  EXPECT_EQ(run(&compared).faults.size(), 1u);  // what is wrong is not remembered as right
  stored = right;
  const_cast<uint8_t*>(stored.data())[1] ^= 0x40;  // behind its back
  EXPECT_TRUE(run(&compared).faults.empty());
  EXPECT_EQ(run(nullptr).faults.size(), 1u);
}

}  // namespace
}  // namespace tessera
