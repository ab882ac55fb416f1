// SPDX-License-Identifier: Apache-2.0
// A layer of a decoding step on Hopper: the matmul of queries, keys and values turns its heads and writes into the
// cache, attention reads it (lower/finish_heads.h). A plan that turns other columns or keeps other rows is found.
#include <gtest/gtest.h>

#include <algorithm>

#include "compile/compile.h"
#include "op/extra_results.h"
#include "testing/run_graph.h"
#include "verify/validate/validate_plan.h"

namespace tessera {
namespace {

using testing::canonical;

// `apart`: cosines and sines are two tensors; else columns of one.
std::string step_text(bool apart) {
  return cat(R"(graph step {
  in %image: f32[1,10,32]
  in %length: i32[1]
  in %c: f32[1,10,64]
  in %keys: f32[1,40,1,64]
  in %values: f32[1,40,1,64]
  const %we: f32[64,32] = seed(7)
  const %wq: f32[128,64] = seed(2)
  const %wk: f32[64,64] = seed(3)
  const %wv: f32[64,64] = seed(4)
  const %bv: f32[64] = seed(14)
  const %wo: f32[64,128] = seed(5)
  %x: f32[1,10,64] = matmul(%image, %we) @"embed"
  %n: f32[1,10,64] = norm(%x) {eps=0.00001, kind="rms"} @"norm"
)",
             apart ? R"(  %cin: f32[1,10,32] = view(%c) {offset=0, strides=[640,64,1]}
  %sin0: f32[1,10,32] = view(%c) {offset=32, strides=[640,64,1]}
  %cos: f32[1,10,32] = map(%cin) {fn="cos"} @"cos"
  %sin: f32[1,10,32] = map(%sin0) {fn="sin"} @"sin"
)"
                   : R"(  %t: f32[1,10,64] = map(%c) {fn="tanh"} @"table"
  %cos: f32[1,10,32] = view(%t) {offset=0, strides=[640,64,1]}
  %sin: f32[1,10,32] = view(%t) {offset=32, strides=[640,64,1]}
)",
             R"(  %q: f32[1,10,128] = matmul(%n, %wq) @"q_proj"
  %qh: f32[1,10,2,64] = view(%q) {offset=0, strides=[1280,128,64,1]}
  %qr: f32[1,10,2,64] = rotary(%qh, %cos, %sin) @"q_rotary"
  %k: f32[1,10,64] = matmul(%n, %wk) @"k_proj"
  %kh: f32[1,10,1,64] = view(%k) {offset=0, strides=[640,64,64,1]}
  %kr: f32[1,10,1,64] = rotary(%kh, %cos, %sin) @"k_rotary"
  %v0: f32[1,10,64] = matmul(%n, %wv) @"v_proj"
  %v: f32[1,10,64] = map(%v0, %bv) {fn="add"}
  %vh: f32[1,10,1,64] = view(%v) {offset=0, strides=[640,64,64,1]}
  %keys2: f32[1,40,1,64] = write(%keys, %kr, %length) {axis=1} @"key.write"
  %values2: f32[1,40,1,64] = write(%values, %vh, %length) {axis=1} @"value.write"
  %a: f32[1,10,2,64] = attention(%qr, %keys2, %values2, _, %length) {fresh=10, scale=0.125} @"attention"
  %f: f32[1,10,128] = view(%a) {offset=0, strides=[1280,128,1]}
  %o: f32[1,10,64] = matmul(%f, %wo) @"o_proj"
  %y: f32[1,10,64] = map(%o, %x) {fn="add"} @"add"
  out %y
  out %keys2
  out %values2
  state %keys = %keys2
  state %values = %values2
})");
}

constexpr const char* kName = "q_proj+k_proj+v_proj";

struct Planned {
  Graph graph;
  Engine engine;
  Plan plan;
  Planned(const std::string& precision, Arch target, bool apart = false) : graph(canonical(step_text(apart))) {
    Ranges ranges;
    for (const Value& v : graph.values) ranges.values[v.name] = 4.0f;
    LowerOptions how;
    how.types.precision = precision, how.types.ranges = &ranges;
    how.plan.target = target;
    ConstantPool pool(engine.constants, &engine.states);
    auto made = lower(graph, how, pool);
    EXPECT_TRUE(made.ok()) << made.status().message();
    if (made.ok()) plan = std::move(made).value();
  }
  PlanStep* step(const std::string& layer) {
    const auto it =
        std::find_if(plan.steps.begin(), plan.steps.end(), [&](const PlanStep& s) { return s.layer == layer; });
    return it == plan.steps.end() ? nullptr : &*it;
  }
  int64_t count(const std::string& op) const {
    return std::count_if(plan.steps.begin(), plan.steps.end(), [&](const PlanStep& s) { return s.op == op; });
  }
  std::string faults() const {
    std::string text;
    for (const std::string& f : validate_plan(engine.constants, plan, graph).faults) text += f + "; ";
    return text;
  }
};

TEST(HeadsPlan, ALayerIsAMatmulAndItsAttention) {
  for (const std::string precision : {"fp16", "bf16", "fp8", "fp8_bf16"}) {
    for (const bool apart : {false, true}) {
      Planned p(precision, Arch::sm90, apart);
      EXPECT_EQ(p.count("rotary"), 0) << precision;
      EXPECT_EQ(p.count("write"), 0) << precision;
      EXPECT_EQ(p.count("concat"), apart ? 1 : 0) << precision;
      const PlanStep* qkv = p.step(kName);
      ASSERT_NE(qkv, nullptr);
      EXPECT_EQ(qkv->variant, "matmul/sm90_swapped");
      ASSERT_EQ(qkv->out.size(), 3u);
      for (const size_t r : {1, 2}) {
        const auto tensor = [&](int t) { return p.plan.tensors[static_cast<size_t>(t)]; };
        const PlanTensor after = tensor(qkv->out[r]),
                         before = tensor(qkv->in[static_cast<size_t>(kept_columns(qkv->attrs)[r - 1].before)]);
        EXPECT_EQ(after.storage, Storage::kState) << precision;
        EXPECT_EQ(before.storage, Storage::kState) << precision;
        EXPECT_EQ(after.index, before.index) << precision;
      }
      EXPECT_EQ(p.faults(), "") << precision;
    }
  }
}

TEST(HeadsPlan, TheCpuKeepsItsKernels) {
  Planned p("fp16", Arch::cpu);
  EXPECT_EQ(p.count("rotary"), 2);
  EXPECT_EQ(p.count("write"), 2);
  EXPECT_EQ(p.faults(), "");
}

TEST(HeadsPlan, OtherColumnsAndRowsAreFound) {
  const auto fault = [](auto change) {
    Planned p("fp16", Arch::sm90);
    PlanStep* s = p.step(kName);
    EXPECT_NE(s, nullptr);
    if (s != nullptr) change(*s);
    return p.faults();
  };
  const auto with_kept = [](PlanStep& s, auto change) {
    std::vector<KeptColumns> all = kept_columns(s.attrs);
    change(all);
    set_kept_columns(s.attrs, all);
  };
  using Kept = std::vector<KeptColumns>;
  EXPECT_EQ(fault([](PlanStep&) {}), "");
  EXPECT_NE(fault([](PlanStep& s) { std::swap(s.out[1], s.out[2]); }).find("what it keeps in 'values2'"),
            std::string::npos);
  EXPECT_NE(fault([&](PlanStep& s) { with_kept(s, [](Kept& k) { k[0].at = -1; }); }).find("is not the model's"),
            std::string::npos)
      << "from row 0 on";
  EXPECT_NE(fault([&](PlanStep& s) { with_kept(s, [](Kept& k) { k[0].first = k[1].first; }); }), "");
  EXPECT_NE(fault([&](PlanStep& s) { with_kept(s, [](Kept& k) { std::swap(k[0].before, k[1].before); }); }), "");
  const auto turn = [](PlanStep& s, double head, double columns) {
    for (Step& step : s.then.steps) {
      if (step.kind == StepKind::rotary) step.numbers = {head, columns};
    }
  };
  EXPECT_NE(fault([&](PlanStep& s) { turn(s, 64, 128); }), "") << "keys are not turned";
  EXPECT_NE(fault([&](PlanStep& s) { turn(s, 64, 256); }), "") << "values are turned";
  EXPECT_NE(fault([&](PlanStep& s) { turn(s, 96, 192); }), "") << "heads of another size";
}

}  // namespace
}  // namespace tessera
