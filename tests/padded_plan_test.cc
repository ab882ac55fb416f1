// SPDX-License-Identifier: Apache-2.0
// Head sizes and widths that no kernel of Hopper takes as they are: the plan runs as asked, over zeros, and computes
// what the model does; validation knows which zeros belong where.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "compile/compile.h"
#include "testing/run_graph.h"
#include "verify/validate/validate_plan.h"

namespace tessera {
namespace {

using testing::canonical;
using testing::relative_error;

struct Sizes {
  int64_t heads = 2, head = 72, mlp = 200, classes = 10;
  bool joined = true, rotated = false, masked = false;
};

// A block of a transformer with its head. `rotated`: something between the layers and the attention.
std::string block(const Sizes& s) {
  const int64_t tokens = 9, width = s.heads * s.head;
  const auto type = [&](int64_t cols) { return cat("f32[2,", tokens, ",", cols, "]"); };
  const std::string heads = cat("f32[2,", tokens, ",", s.heads, ",", s.head, "]");
  std::string text = cat("graph block {\n  in %image: ", type(32), "\n");
  if (s.masked) text += cat("  in %mask: f32[2,1,1,", tokens, "]\n");
  const auto constant = [&](const char* name, const std::string& shape, int seed) {
    text += cat("  const %", name, ": f32[", shape, "] = seed(", seed, ")\n");
  };
  const auto matrix = [](int64_t n, int64_t k) { return cat(n, ",", k); };
  constant("we", matrix(width, 32), 1), constant("gain", cat(width), 2), constant("b1", cat(s.mlp), 3);
  constant("wqkv", matrix(3 * width, width), 4), constant("bqkv", cat(3 * width), 5);
  for (const char* w : {"wq", "wk", "wv", "wo"}) constant(w, matrix(width, width), 6 + w[1]);
  constant("w1", matrix(s.mlp, width), 7), constant("w2", matrix(width, s.mlp), 8);
  constant("wh", matrix(s.classes, width), 9), constant("bh", cat(s.classes), 10);
  text += cat("  %x: ", type(width), " = matmul(%image, %we) @\"embed\"\n");
  text += cat("  %n: ", type(width), " = norm(%x, %gain) {eps=0.00001, kind=\"rms\"} @\"norm1\"\n");
  const int64_t row = s.joined ? 3 * width : width;
  if (s.joined) text += cat("  %qkv: ", type(row), " = matmul(%n, %wqkv, %bqkv) then bias(2) @\"qkv\"\n");
  for (int i = 0; i < 3; ++i) {
    const char name = "qkv"[i];
    if (!s.joined) text += cat("  %", name, "l: ", type(width), " = matmul(%n, %w", name, ") @\"", name, "\"\n");
    text += cat("  %", name, s.rotated ? "h" : "", ": ", heads, " = view(%", s.joined ? "qkv" : cat(name, "l"),
                ") {offset=", s.joined ? i * width : 0, ", strides=[", tokens * row, ",", row, ",", s.head, ",1]}\n");
    if (s.rotated) text += cat("  %", name, ": ", heads, " = map(%", name, "h) {fn=\"tanh\"} @\"turn_", name, "\"\n");
  }
  text += cat("  %a: ", heads, " = attention(%q, %k, %v", s.masked ? ", %mask" : "", ") {scale=0.125} @\"attn\"\n");
  text += cat("  %ar: ", type(width), " = view(%a) {offset=0, strides=[", tokens * width, ",", width, ",1]}\n");
  text += cat("  %r: ", type(width), " = matmul(%ar, %wo, %x) then residual(2) @\"proj\"\n");
  text += cat("  %m: ", type(width), " = norm(%r, %gain) {eps=0.00001, kind=\"rms\"} @\"norm2\"\n");
  text += cat("  %h: ", type(s.mlp), " = matmul(%m, %w1, %b1) then bias(2) act(gelu_erf) @\"fc1\"\n");
  text += cat("  %d: ", type(width), " = matmul(%h, %w2, %r) then residual(2) @\"fc2\"\n");
  text += cat("  %o: ", type(width), " = norm(%d, %gain) {eps=0.00001, kind=\"rms\"} @\"norm3\"\n");
  text += cat("  %y: ", type(s.classes), " = matmul(%o, %wh, %bh) then bias(2) @\"head\"\n  out %y\n}\n");
  return text;
}

struct Asked {
  const char *precision, *attention;
  bool head = false;  // the head in 8 bits, too
};

struct Planned {
  Graph model;
  Ranges ranges;
  LowerOptions lowering;
  Engine engine;
  Result<Plan> plan = refused("not made");
};

void make_graph(const std::string& text, const Asked& asked, Planned& p) {
  p.model = canonical(text);
  for (const Value& v : p.model.values) p.ranges.values[v.name] = 4.0f;
  p.lowering.types.precision = asked.precision;
  p.lowering.types.attention = asked.attention;
  if (asked.head) p.lowering.types.allow = {{"head", asked.precision}};
  p.lowering.types.ranges = &p.ranges;
  p.lowering.types.target = p.lowering.plan.target = Arch::sm90;
  p.lowering.plan.batch = 2;
  ConstantPool pool(p.engine.constants);
  p.plan = lower(p.model, p.lowering, pool);
}

void make(const Sizes& sizes, const Asked& asked, Planned& p) { make_graph(block(sizes), asked, p); }

const std::vector<Sizes>& all_sizes() {
  static const std::vector<Sizes> kAll = {
      {},
      {.joined = false},
      {.heads = 3, .head = 18, .mlp = 100, .classes = 7},
      {.heads = 3, .head = 18, .mlp = 100, .classes = 7, .joined = false, .rotated = true},
      {.heads = 2, .head = 64, .mlp = 256, .classes = 1000},
  };
  return kAll;
}
constexpr Asked kAsked[] = {{"fp16", ""},      {"bf16", ""}, {"fp8", ""},       {"fp8", "fp8"},
                            {"fp8", "", true}, {"int8", ""}, {"int8", "", true}};

TEST(PaddedPlan, RunsAsAskedAndIsTheModel) {
  for (const Sizes& sizes : all_sizes()) {
    for (const Asked& asked : kAsked) {
      SCOPED_TRACE(cat(sizes.heads, " heads of ", sizes.head, ", ", asked.precision, " ", asked.attention));
      Planned p;
      make(sizes, asked, p);
      ASSERT_TRUE(p.plan.ok()) << p.plan.status().message();
      for (const PlanStep& s : p.plan->steps) {
        const bool linear = s.op == "matmul" && s.role.starts_with("block");
        if (linear || (s.layer == "head" && asked.head)) {
          const std::string want = std::string(asked.precision) == "fp8" ? "e4m3" : asked.precision;
          EXPECT_EQ(s.computed, want) << s.layer << " " << s.variant;
        }
        if (s.op == "attention" && std::string(asked.attention) == "fp8") {
          EXPECT_EQ(s.computed, "e4m3") << s.variant;
        }
      }
      const Validation v = validate_plan(p.engine.constants, *p.plan, p.model, {.ranges = &p.ranges});
      EXPECT_TRUE(v.faults.empty()) << v.faults[0];
    }
  }
}

// Zeros change no number but by the order of f64 sums, and what a rounding to 16 bits makes of that. Codes may be made
// at once where 16 bits came before: some are a step off, and no result by more than a few of them.
TEST(PaddedPlan, ComputesTheSameNumbers) {
  for (const Sizes& sizes : all_sizes()) {
    for (const Asked& asked : kAsked) {
      SCOPED_TRACE(cat(sizes.heads, " heads of ", sizes.head, ", ", asked.precision, " ", asked.attention));
      Planned p;
      make(sizes, asked, p);
      Graph typed = p.model;
      ASSERT_TRUE(quantize(typed, p.lowering.types).ok());
      const auto lowered = lower_graph(p.model, p.lowering);
      ASSERT_TRUE(lowered.ok()) << lowered.status().message();
      const std::vector<testing::Numbers> in = testing::random_inputs(p.model, 5);
      const auto want = testing::run_graph(typed, in), got = testing::run_graph(*lowered, in);
      ASSERT_TRUE(want.ok() && got.ok()) << want.status().message() << got.status().message();
      const bool codes = std::string(asked.precision).ends_with("8");
      EXPECT_LE(relative_error((*got)[0], (*want)[0]), codes ? 0x1p-6 : 0x1p-9);
    }
  }
}

// Windows of an image as rows of 24 and 12 numbers, and a layer whose rows have other axes than what they are made of:
// kernels that cannot pad codes pad what is rounded to them, in its own axes.
constexpr const char* kWindows = R"(graph windows {
  in %image: f32[2,64,32]
  const %we: f32[24,32] = seed(1)
  const %gain: f32[24] = seed(2)
  const %w1: f32[12,24] = seed(3)
  const %w2: f32[48,12] = seed(4)
  const %w3: f32[32,48] = seed(5)
  %x: f32[2,64,24] = matmul(%image, %we) @"embed"
  %n: f32[2,64,24] = norm(%x, %gain) {eps=0.00001, kind="rms"} @"norm"
  %v: f32[2,2,2,4,4,24] = view(%n) {offset=0, strides=[1536,768,96,192,24,1]}
  %c: f32[2,2,2,4,4,24] = copy(%v) @"windows"
  %r: f32[8,16,24] = view(%c) {offset=0, strides=[384,24,1]}
  %a: f32[8,16,12] = matmul(%r, %w1) then act(silu) @"blocks.0.fc1"
  %t: f32[2,64,12] = view(%a) {offset=0, strides=[768,12,1]}
  %b: f32[2,64,48] = matmul(%t, %w2) @"blocks.0.fc2"
  %y: f32[2,64,32] = matmul(%b, %w3) @"head"
  out %y
})";

TEST(PaddedPlan, RowsOfWindowsArePaddedInTheirOwnAxes) {
  for (const char* precision : {"fp8", "int8"}) {
    SCOPED_TRACE(precision);
    Planned p;
    make_graph(kWindows, {precision, ""}, p);
    ASSERT_TRUE(p.plan.ok()) << p.plan.status().message();
    const Validation v = validate_plan(p.engine.constants, *p.plan, p.model, {.ranges = &p.ranges});
    EXPECT_TRUE(v.faults.empty()) << v.faults[0];
    Graph typed = p.model;
    ASSERT_TRUE(quantize(typed, p.lowering.types).ok());
    const auto lowered = lower_graph(p.model, p.lowering);
    ASSERT_TRUE(lowered.ok()) << lowered.status().message();
    const std::vector<testing::Numbers> in = testing::random_inputs(p.model, 5);
    const auto want = testing::run_graph(typed, in), got = testing::run_graph(*lowered, in);
    ASSERT_TRUE(want.ok() && got.ok()) << want.status().message() << got.status().message();
    EXPECT_LE(relative_error((*got)[0], (*want)[0]), 0x1p-6);
  }
}

// What kernels are asked about a mask, they are asked with padded heads: 16 bits would clamp it.
TEST(PaddedPlan, MasksKeepF32) {
  Planned p;
  make({.heads = 3, .head = 18, .masked = true}, {"fp16", ""}, p);
  ASSERT_TRUE(p.plan.ok()) << p.plan.status().message();
  for (const PlanStep& s : p.plan->steps) {
    if (s.op != "attention") continue;
    EXPECT_EQ(p.plan->tensors[static_cast<size_t>(s.in[3])].desc.type, QuantType(Element::f32));
    EXPECT_EQ(p.plan->tensors[static_cast<size_t>(s.in[0])].desc.shape.back(), 24);
  }
}

int64_t cols_of_weight(const Plan& plan, const std::string& layer, size_t axis) {
  for (const PlanStep& s : plan.steps) {
    if (s.layer == layer) return plan.tensors[static_cast<size_t>(s.in[1])].desc.shape[axis];
  }
  ADD_FAILURE() << "no layer " << layer;
  return 0;
}

TEST(PaddedPlan, HeadsArePaddedInTheWeights) {
  Planned p;
  make({}, {"fp8", "fp8"}, p);
  ASSERT_TRUE(p.plan.ok()) << p.plan.status().message();
  EXPECT_EQ(cols_of_weight(*p.plan, "qkv", 0), 3 * 2 * 80);
  EXPECT_EQ(cols_of_weight(*p.plan, "proj", 1), 2 * 80);
  for (const PlanStep& s : p.plan->steps) EXPECT_NE(s.op, "concat") << s.layer << ": zeros cost a kernel";
}

TEST(PaddedPlan, NothingIsPaddedThatRunsAsItIs) {
  Planned p;
  make(all_sizes().back(), {"fp8", "fp8"}, p);
  ASSERT_TRUE(p.plan.ok()) << p.plan.status().message();
  for (const PlanStep& s : p.plan->steps)
    EXPECT_FALSE(s.attrs.has("padded_rows") || s.attrs.has("padded_cols")) << s.layer;
  Planned wide;
  make({}, {"fp16", ""}, wide);
  ASSERT_TRUE(wide.plan.ok());
  EXPECT_EQ(cols_of_weight(*wide.plan, "qkv", 0), 3 * 2 * 72) << "heads of 72 are eight-fold: fp16 takes them";
}

// A number where a zero belongs, in any padded weight, is no longer the model.
TEST(PaddedPlan, ValidationKnowsWhereZerosBelong) {
  Planned p;
  make({}, {"fp8", "fp8"}, p);
  ASSERT_TRUE(p.plan.ok());
  int padded = 0;
  for (const PlanStep& s : p.plan->steps) {
    if (!s.attrs.has("padded_rows") && !s.attrs.has("padded_cols")) continue;
    ++padded;
    const PlanTensor& w = p.plan->tensors[static_cast<size_t>(s.in[1])];
    EngineConstant& constant = p.engine.constants[static_cast<size_t>(w.index)];
    const Bytes was = constant.data;
    Buffer other(was.size());
    std::memcpy(other.data(), was.data(), was.size());
    uint8_t* last = std::find(other.data(), other.data() + other.size(), uint8_t{0});
    ASSERT_NE(last, other.data() + other.size()) << s.layer << ": no zero";
    *last = 0x38;
    constant.data = Bytes::own(std::move(other));
    const auto faults = validate_plan(p.engine.constants, *p.plan, p.model, {.ranges = &p.ranges}).faults;
    ASSERT_FALSE(faults.empty()) << s.layer;
    EXPECT_NE(faults[0].find(cat("layer ", s.layer, ":")), std::string::npos) << faults[0];
    constant.data = was;
    Plan elsewhere = *p.plan;
    for (PlanStep& other_step : elsewhere.steps) {
      if (other_step.layer != s.layer) continue;
      other_step.attrs.erase("padded_rows"), other_step.attrs.erase("padded_cols");
    }
    EXPECT_FALSE(validate_plan(p.engine.constants, elsewhere, p.model, {.ranges = &p.ranges}).faults.empty());
  }
  EXPECT_GE(padded, 4) << "qkv, proj, fc1, fc2";
}

}  // namespace
}  // namespace tessera
