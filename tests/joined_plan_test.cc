// SPDX-License-Identifier: Apache-2.0
// What a block of a transformer becomes on Hopper: four matmuls, the first of which turns its heads, and norms and
// gates that adaRMS modulates in the kernels beside them. Layers that were asked for different precisions stay what was
// asked; a plan whose columns are another layer's is found.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "compile/compile.h"
#include "golden/golden_run.h"
#include "testing/run_graph.h"
#include "verify/validate/validate_plan.h"

namespace tessera {
namespace {

using testing::canonical;
using testing::relative_error;

// `modulated`: a row of %table in the place of the norm's gain and shift, another before the residual.
std::string block(bool modulated) {
  return cat(R"(graph block {
  in %image: f32[1,40,32]
  in %table: f32[1,192]
  const %we: f32[64,32] = seed(7)
  const %gain: f32[64] = seed(1)
  const %wq: f32[128,64] = seed(2)
  const %bq: f32[128] = seed(12)
  const %wk: f32[32,64] = seed(3)
  const %wv: f32[32,64] = seed(4)
  const %bv: f32[32] = seed(14)
  const %wo: f32[64,128] = seed(5)
  const %wh: f32[16,64] = seed(6)
  const %cos: f32[1,40,16] = seed(8)
  const %sin: f32[1,40,16] = seed(9)
  %t: f32[1,192] = map(%table) {fn="tanh"} @"table"
  %x: f32[1,40,64] = matmul(%image, %we) @"embed"
  %factor: f32[1,1,64] = view(%t) {offset=0, strides=[64,64,1]}
  %shift: f32[1,1,64] = view(%t) {offset=64, strides=[64,64,1]}
  %gate: f32[1,1,64] = view(%t) {offset=128, strides=[64,64,1]}
)",
             modulated ? R"(  %n0: f32[1,40,64] = norm(%x) {eps=0.00001, kind="rms"} @"norm"
  %n1: f32[1,40,64] = map(%n0, %factor) {fn="mul"}
  %n: f32[1,40,64] = map(%n1, %shift) {fn="add"}
)"
                       : R"(  %n: f32[1,40,64] = norm(%x, %gain, %gain) {eps=0.00001, kind="rms"} @"norm"
)",
             R"(  %q0: f32[1,40,128] = matmul(%n, %wq) @"q_proj"
  %q: f32[1,40,128] = map(%q0, %bq) {fn="add"}
  %qh: f32[1,40,4,32] = view(%q) {offset=0, strides=[5120,128,32,1]}
  %qr: f32[1,40,4,32] = rotary(%qh, %cos, %sin) @"q_rotary"
  %k: f32[1,40,32] = matmul(%n, %wk) @"k_proj"
  %kh: f32[1,40,1,32] = view(%k) {offset=0, strides=[1280,32,32,1]}
  %kr: f32[1,40,1,32] = rotary(%kh, %cos, %sin) @"k_rotary"
  %v0: f32[1,40,32] = matmul(%n, %wv) @"v_proj"
  %v: f32[1,40,32] = map(%v0, %bv) {fn="add"}
  %vh: f32[1,40,1,32] = view(%v) {offset=0, strides=[1280,32,32,1]}
  %a: f32[1,40,4,32] = attention(%qr, %kr, %vh) {scale=0.17677669} @"attention"
  %f: f32[1,40,128] = view(%a) {offset=0, strides=[5120,128,1]}
  %o: f32[1,40,64] = matmul(%f, %wo) @"o_proj"
  %g: f32[1,40,64] = map(%o, %)",
             modulated ? "gate" : "gain", R"() {fn="mul"}
  %r: f32[1,40,64] = map(%g, %x) {fn="add"} @"add"
  %y: f32[1,40,16] = matmul(%r, %wh) @"head"
  out %y
})");
}

Result<Plan> plan_of(const Graph& graph, LowerOptions lowering, Engine& engine) {
  Ranges ranges;
  for (const Value& v : graph.values) ranges.values[v.name] = 4.0f;
  ConstantPool pool(engine.constants);
  lowering.types.ranges = &ranges;
  return lower(graph, lowering, pool);
}

LowerOptions options_for(const std::string& precision, Arch target) {
  LowerOptions lowering;
  lowering.types.precision = precision;
  lowering.plan.target = target;
  return lowering;
}

std::string words_of(const PlanStep& s) {
  std::string words = cat(s.op, " ", s.layer);
  for (const Step& step : s.then.steps) words += cat(" ", name_of(step.kind));
  return words;
}

std::vector<std::string> steps_of(const Plan& plan) {
  std::vector<std::string> all;
  for (const PlanStep& s : plan.steps) all.push_back(words_of(s));
  return all;
}

std::string text_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += cat("\n  ", line);
  return text;
}

const PlanStep& step_of(const Plan& plan, const std::string& layer) {
  for (const PlanStep& s : plan.steps) {
    if (s.layer == layer) return s;
  }
  ADD_FAILURE() << "no layer " << layer << " in" << text_of(steps_of(plan));
  return plan.steps[0];
}

constexpr const char* kJoinedName = "q_proj+k_proj+v_proj";

TEST(JoinedPlan, HasOneMatmulForQueriesKeysAndValues) {
  for (const std::string precision : {"fp16", "bf16", "fp8", "int8"}) {
    for (const bool modulated : {false, true}) {
      Engine engine;
      const auto plan = plan_of(canonical(block(modulated)), options_for(precision, Arch::sm90), engine);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      const std::string all = cat(precision, text_of(steps_of(*plan)));
      const PlanStep& qkv = step_of(*plan, kJoinedName);
      EXPECT_EQ(qkv.attrs.list(kJoined), (std::vector<int64_t>{128, 32, 32})) << all;
      EXPECT_EQ(layers_of(qkv), (std::vector<std::string>{"q_proj", "k_proj", "v_proj"}));
      EXPECT_EQ(qkv.asked, precision);
      EXPECT_EQ(qkv.role, "block.attention_in");
      ASSERT_NE(qkv.then.find(StepKind::rotary), nullptr) << all;
      EXPECT_EQ(qkv.then.find(StepKind::rotary)->numbers, (std::array{32.0, 160.0})) << all;
      const PlanStep& norm = step_of(*plan, "norm");
      EXPECT_EQ(norm.in.size(), 3u) << "gain and shift, " << all;
      const PlanStep& o = step_of(*plan, "o_proj");
      ASSERT_NE(o.then.find(StepKind::scale), nullptr) << all;
      EXPECT_NE(o.then.find(StepKind::residual), nullptr) << all;
      EXPECT_TRUE(o.variant.starts_with("matmul/sm90_")) << o.variant;
      const int gate = o.in[static_cast<size_t>(o.then.find(StepKind::scale)->operand)];
      EXPECT_EQ(plan->tensors[static_cast<size_t>(gate)].storage == Storage::kConstant, !modulated) << all;
      int64_t copies = 0, kernels = 0;
      for (const PlanStep& s : plan->steps) {
        copies += s.op == "copy";
        kernels += s.op != "copy" && s.layer != "table" && s.layer != "embed" && s.layer != "head";
      }
      EXPECT_EQ(kernels, 4) << "norm, qkv, attention, o: " << all;
      EXPECT_LE(copies, precision == "int8" ? 6 : 4) << all;  // of what the caller gives and gets, and what it computes
      const Validation v = validate_plan(engine.constants, *plan, canonical(block(modulated)));
      EXPECT_TRUE(v.faults.empty()) << precision << ": " << v.faults[0];
    }
  }
}

TEST(JoinedPlan, KeepsLayersOnTheCpuAndThoseOfOtherPrecisions) {
  Engine engine;
  const auto cpu = plan_of(canonical(block(true)), options_for("fp16", Arch::cpu), engine);
  ASSERT_TRUE(cpu.ok()) << cpu.status().message();
  for (const PlanStep& s : cpu->steps) EXPECT_FALSE(s.attrs.has(kJoined)) << s.layer;
  LowerOptions lowering = options_for("fp8", Arch::sm90);
  lowering.types.allow = {{"k_proj", "fp16"}};
  const auto mixed = plan_of(canonical(block(false)), lowering, engine);
  ASSERT_TRUE(mixed.ok()) << mixed.status().message();
  EXPECT_EQ(step_of(*mixed, "k_proj").stored, "f16");
  EXPECT_EQ(step_of(*mixed, "q_proj+v_proj").stored, "e4m3");
}

// By the references, joined and apart: nothing is rounded another way. 16-bit results that are no longer stored (the
// norm's, before factor and shift; the layer's, before its gate) are 2^-11 each.
TEST(JoinedPlan, ComputesWhatTheLayersDid) {
  for (const bool modulated : {false, true}) {
    std::vector<Outputs64> outputs;
    for (const Arch target : {Arch::sm90, Arch::cpu}) {
      LowerOptions lowering = options_for("fp16", target);
      lowering.plan.as_reference = true;
      Engine engine;
      const auto plan = plan_of(canonical(block(modulated)), lowering, engine);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      const auto made = run_plan(engine, *plan, random_samples(*plan, 1, 5));
      ASSERT_TRUE(made.ok()) << made.status().message();
      outputs.push_back(*made);
    }
    EXPECT_GT(*std::max_element(outputs[1][0].begin(), outputs[1][0].end()), 0);
    EXPECT_LE(relative_error(outputs[0][0], outputs[1][0]), 2 * 0x1p-11) << modulated;
  }
}

// Four matmuls to a block, whatever the exporter writes.
TEST(JoinedPlan, FindsLayersInExportedModels) {
  struct Counts {
    int matmuls, joined;  // in blocks
  };
  // BERT's last block computes the class token's query alone, and a pooler follows; SigLIP's head attends once more.
  const std::map<std::string, Counts> exports = {
      {"llama_dyn18", {8, 2}},      {"llama_ts17", {8, 2}},       {"gemma_dyn20", {8, 2}},
      {"bert_dyn18", {10, 2}},      {"bert_ts17", {10, 2}},       {"clip_text_dyn18", {8, 2}},
      {"clip_vision_ts14", {8, 2}}, {"siglip_hf_dyn20", {12, 2}}, {"dinov2_hf_dyn20", {8, 2}}};
  for (const auto& [name, counts] : exports) {
    LoadOptions options{.exact = false};
    const bool text = name.starts_with("llama") || name.starts_with("gemma") || name.starts_with("bert");
    if (text) options.shapes = {{"input_ids", {2, 8}}, {"attention_mask", {2, 8}}};
    if (name.starts_with("clip_text")) options.shapes = {{"input_ids", {2, 8}}};
    const auto graph = load_model(cat(TS_SOURCE_DIR "/tests/data/models/", name, ".onnx"), 2, options);
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    Engine engine;
    const auto plan = plan_of(*graph, options_for("fp16", Arch::sm90), engine);
    ASSERT_TRUE(plan.ok()) << name << ": " << plan.status().message();
    int matmuls = 0, rotaries = 0, joined = 0;
    for (const PlanStep& s : plan->steps) {
      matmuls += s.op == "matmul" && s.role.starts_with("block");
      rotaries += s.op == "rotary";
      joined += s.op == "matmul" && s.attrs.has(kJoined);
    }
    EXPECT_EQ(matmuls, counts.matmuls) << name << text_of(steps_of(*plan));
    // Heads of eight, with four pairs, are not turned by the matmul.
    EXPECT_EQ(rotaries, name.starts_with("llama") ? 2 : 0) << name << text_of(steps_of(*plan));
    EXPECT_EQ(joined, counts.joined) << name << text_of(steps_of(*plan));
    const Validation v = validate_plan(engine.constants, *plan, *graph);
    EXPECT_TRUE(v.faults.empty()) << name << ": " << v.faults[0];
  }
}

struct Planned {
  Graph graph = canonical(block(true));
  Engine engine;
  Plan plan;
  Planned() {
    auto made = plan_of(graph, options_for("fp16", Arch::sm90), engine);
    EXPECT_TRUE(made.ok()) << made.status().message();
    plan = std::move(made).value();
  }
  PlanStep& step(const std::string& layer) { return const_cast<PlanStep&>(step_of(plan, layer)); }
  std::string faults() const {
    std::string text;
    for (const std::string& f : validate_plan(engine.constants, plan, graph).faults) text += f + "; ";
    return text;
  }
};

TEST(JoinedPlan, ViewsOfOtherColumnsAreFound) {
  Planned p;
  ASSERT_EQ(p.faults(), "");
  // The attention's values are the keys' columns.
  PlanTensor& v = p.plan.tensors[static_cast<size_t>(p.step("attention").in[2])];
  v.offset_bytes -= 32 * 2;
  EXPECT_NE(p.faults().find("its v is 'k_rotary', the model has 'v_proj'"), std::string::npos) << p.faults();
  v.offset_bytes += 16 * 2;
  EXPECT_NE(p.faults().find("layer attention"), std::string::npos) << "half of both: " << p.faults();
  v.offset_bytes += 16 * 2;
  ASSERT_EQ(p.faults(), "");
  PlanTensor& q = p.plan.tensors[static_cast<size_t>(p.step("attention").in[0])];
  q.offset_bytes += 32 * 2;
  EXPECT_NE(p.faults(), "") << "queries that begin a head later";
}

TEST(JoinedPlan, RowsAndBiasesOfAnotherLayerAreFound) {
  for (const size_t operand : {1, 2}) {
    Planned p;
    const PlanTensor& t = p.plan.tensors[static_cast<size_t>(p.step(kJoinedName).in[operand])];
    const Bytes& stored = p.engine.constants[static_cast<size_t>(t.index)].data;
    Buffer changed(stored.size());
    std::memcpy(changed.data(), stored.data(), stored.size());
    // k's rows, the 32 after the first 128, for v's; as whole groups of 32 they stay what the layout makes of them.
    const size_t row = stored.size() / 192;
    std::memcpy(changed.data() + 128 * row, stored.data() + 160 * row, 32 * row);
    p.engine.constants[static_cast<size_t>(t.index)].data = Bytes::own(std::move(changed));
    EXPECT_NE(p.faults().find(kJoinedName), std::string::npos) << operand << ": " << p.faults();
  }
}

TEST(JoinedPlan, WidthsAndNamesThatAreNotTheLayersAreFound) {
  {
    Planned p;
    p.step(kJoinedName).attrs.set(kJoined, std::vector<int64_t>{128, 48, 16});
    EXPECT_NE(p.faults().find("columns are not"), std::string::npos) << p.faults();
  }
  {
    Planned p;
    p.step(kJoinedName).layer = "q_proj+v_proj+k_proj";
    EXPECT_NE(p.faults(), "");
  }
  {
    Planned p;
    p.step(kJoinedName).layer = "q_proj+k_proj+w_proj";
    EXPECT_NE(p.faults().find("which is no such layer"), std::string::npos) << p.faults();
  }
  {
    Planned p;
    for (Step& s : p.step(kJoinedName).then.steps) {
      if (s.kind == StepKind::rotary) s.numbers[1] = 128;
    }
    EXPECT_NE(p.faults(), "") << "keys are not turned";
  }
}

}  // namespace
}  // namespace tessera
