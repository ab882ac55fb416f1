// SPDX-License-Identifier: Apache-2.0
#include "precision/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/refused_layers.h"
#include "ir/check.h"
#include "ir/text.h"
#include "precision/roles.h"

namespace tessera {
namespace {

// "layer op asked: reason" of each layer that a refusal is about; * for a reason of the layer itself.
std::vector<std::string> layers_of(const Status& status) {
  std::vector<std::string> words;
  if (status.layers() == nullptr) return words;
  for (const RefusedLayer& l : *status.layers()) {
    for (const Refusal& r : l.refusals)
      words.push_back(cat(l.layer, " ", l.op, " ", l.asked, ": ", r.variant.empty() ? "*" : r.variant, " ", r.reason));
  }
  return words;
}

// A block as canonicalise leaves it: embed, norm, fc1 (gelu), fc2 (residual), norm, head.
constexpr const char* kBlock = R"(graph block {
  in %image: f32[2,4,16]
  const %we: f32[32,16] = seed(1)
  const %g: f32[32] = seed(2)
  const %w1: f32[64,32] = seed(3)
  const %w2: f32[32,64] = seed(4)
  const %wh: f32[10,32] = seed(5)
  %e: f32[2,4,32] = matmul(%image, %we) @"embed"
  %n: f32[2,4,32] = norm(%e, %g) {eps=0.000001, kind="layer"} @"norm1"
  %h: f32[2,4,64] = matmul(%n, %w1) then act(gelu_erf) @"mlp.fc1"
  %r: f32[2,4,32] = matmul(%h, %w2, %e) then residual(2) @"mlp.fc2"
  %m: f32[2,4,32] = norm(%r, %g) {eps=0.000001, kind="layer"} @"norm2"
  %y: f32[2,4,10] = matmul(%m, %wh) @"head"
  out %y
}
)";

Graph parsed(const char* text) {
  auto g = parse_graph(text);
  EXPECT_TRUE(g.ok()) << g.status().message();
  return std::move(g).value();
}

const Node& node(const Graph& g, std::string_view name) {
  for (const Node& n : g.nodes) {
    if (n.name == name) return n;
  }
  ADD_FAILURE() << "no node " << name;
  return g.nodes[0];
}

Ranges ranges() {
  return {.values = {{"n", 3.0f}, {"h", 4.48f}, {"e", 1}, {"r", 1}, {"m", 1}, {"y", 1}}, .method = {}, .how = "test"};
}

TEST(Quantize, RolesFollowNorms) {
  Graph g = parsed(kBlock);
  assign_roles(g);
  EXPECT_EQ(node(g, "embed").role, "embed");
  EXPECT_EQ(node(g, "mlp.fc1").role, "block.mlp");
  EXPECT_EQ(node(g, "mlp.fc2").role, "block.mlp");
  EXPECT_EQ(node(g, "head").role, "head");
}

TEST(Quantize, AnExactWeightKeepsItsTypeInEveryPrecision) {
  std::string text = kBlock;
  text.replace(text.find("%w1: f32[64,32]"), 15, "%w1: f32[64,32] exact");
  for (const char* precision : {"bf16", "fp16", "fp8"}) {
    Graph g = parsed(text.c_str());
    const Ranges seen = ranges();
    QuantizeOptions options{.precision = precision};
    options.ranges = &seen;
    ASSERT_TRUE(quantize(g, options).ok()) << precision;
    EXPECT_EQ(node(g, "mlp.fc1").role, "exact");
    EXPECT_EQ(node(g, "mlp.fc1").asked, "fp32") << precision;
    EXPECT_EQ(g.at(node(g, "mlp.fc1").inputs[1]).type.quant, QuantType(Element::f32)) << precision;
    EXPECT_EQ(node(g, "mlp.fc2").asked, precision);
    EXPECT_NE(g.at(node(g, "mlp.fc2").inputs[1]).type.quant, QuantType(Element::f32)) << precision;
  }
  // A recipe's rule for all layers leaves it; one for its role does not.
  QuantizeOptions options{.precision = "bf16"};
  options.rules = {{.precision = "fp16"}};
  Graph all = parsed(text.c_str());
  ASSERT_TRUE(quantize(all, options).ok());
  EXPECT_EQ(node(all, "mlp.fc1").asked, "fp32");
  EXPECT_EQ(node(all, "mlp.fc2").asked, "fp16");
  options.rules.push_back({.role = "exact", .precision = "fp16"});
  Graph named = parsed(text.c_str());
  ASSERT_TRUE(quantize(named, options).ok());
  EXPECT_EQ(node(named, "mlp.fc1").asked, "fp16");
}

TEST(Quantize, ABlockWithoutNormsAroundItIsABlock) {
  std::string text = kBlock;  // no final norm: fc2's result goes straight to the head
  const size_t norm2 = text.find("  %m:"), end = text.find('\n', norm2);
  text.erase(norm2, end - norm2 + 1);
  text.replace(text.find("matmul(%m, %wh)"), 15, "matmul(%r, %wh)");
  Graph g = parsed(text.c_str());
  assign_roles(g);
  EXPECT_EQ(node(g, "mlp.fc1").role, "block.mlp");
  EXPECT_EQ(node(g, "mlp.fc2").role, "block.mlp");
  EXPECT_EQ(node(g, "head").role, "head");
  EXPECT_EQ(node(g, "embed").role, "embed");
}

std::string role_in(const std::string& tail, std::string_view layer) {
  // A stream %r that a block has added to, then what a test is about.
  const std::string text = cat(R"(graph heads {
  in %image: f32[2,4,16]
  const %we: f32[32,16] = seed(1)
  const %g: f32[32] = seed(2)
  const %w1: f32[64,32] = seed(3)
  const %w2: f32[32,64] = seed(4)
  const %wh: f32[10,32] = seed(5)
  const %wi: f32[16,32] = seed(6)
  const %ws: f32[32,32] = seed(7)
  %e: f32[2,4,32] = matmul(%image, %we) @"embed"
  %n: f32[2,4,32] = norm(%e, %g) {eps=0.000001, kind="layer"} @"norm1"
  %h: f32[2,4,64] = matmul(%n, %w1) then act(gelu_erf) @"fc1"
  %r: f32[2,4,32] = matmul(%h, %w2, %e) then residual(2) @"fc2"
  %m: f32[2,4,32] = norm(%r, %g) {eps=0.000001, kind="layer"} @"norm2"
)",
                               tail, "}\n");
  Graph g = parsed(text.c_str());
  assign_roles(g);
  return node(g, layer).role;
}

TEST(Roles, EveryLayerBeforeAnOutputIsAHead) {
  // Two heads whose results are added (a distilled model), by one product's program and by a map; heads of two outputs.
  const char* const added = R"(  %a: f32[2,4,10] = matmul(%m, %wh) @"one"
  %y: f32[2,4,10] = matmul(%m, %wh, %a) then residual(2) @"two"
  out %y
)";
  EXPECT_EQ(role_in(added, "one"), "head");
  EXPECT_EQ(role_in(added, "two"), "head");
  EXPECT_EQ(role_in(added, "fc2"), "block.mlp");
  const char* const mapped = R"(  %a: f32[2,4,10] = matmul(%m, %wh) @"one"
  %b: f32[2,4,10] = matmul(%r, %wh) @"two"
  %y: f32[2,4,10] = map(%a, %b) {fn="add"} @"sum"
  out %y
)";
  EXPECT_EQ(role_in(mapped, "one"), "head");
  EXPECT_EQ(role_in(mapped, "two"), "head");
  const char* const apart = R"(  %a: f32[2,4,10] = matmul(%m, %wh) @"one"
  %b: f32[2,4,32] = matmul(%m, %ws) then act(tanh) @"pooler"
  out %a
  out %b
  out %r
)";
  EXPECT_EQ(role_in(apart, "one"), "head");
  EXPECT_EQ(role_in(apart, "pooler"), "head");
  EXPECT_EQ(role_in(apart, "fc2"), "block.mlp");
}

TEST(Roles, OfAnMlpOnlyTheLastLayerIsAHead) {
  const char* const mlp = R"(  %a: f32[2,4,64] = matmul(%m, %w1) then act(gelu_erf) @"head.fc1"
  %b: f32[2,4,32] = matmul(%a, %w2) @"head.fc2"
  %y: f32[2,4,32] = norm(%b, %g) {eps=0.000001, kind="layer"} @"head.norm"
  out %y
)";
  EXPECT_EQ(role_in(mlp, "head.fc1"), "block.mlp");
  EXPECT_EQ(role_in(mlp, "head.fc2"), "head");
}

TEST(Roles, HiddenStatesHaveNoHead) {
  EXPECT_EQ(role_in("  out %r\n", "fc2"), "block.mlp");
  EXPECT_EQ(role_in("  out %m\n", "fc2"), "block.mlp");
  // Not even where the stream is met in a map, behind a norm of the layer's own.
  const char* const mapped = R"(  %a: f32[2,4,64] = matmul(%m, %w1) then act(gelu_erf) @"b.fc1"
  %b: f32[2,4,32] = matmul(%a, %w2) @"b.fc2"
  %c: f32[2,4,32] = norm(%b, %g) {eps=0.000001, kind="layer"} @"b.norm"
  %y: f32[2,4,32] = map(%r, %c) {fn="add"} @"b.sum"
  out %y
)";
  EXPECT_EQ(role_in(mapped, "b.fc2"), "block.mlp");
}

TEST(Roles, AHeadMayBeAddedToTheCallersNumbers) {
  const char* const step = R"(  %a: f32[2,4,16] = matmul(%m, %wi, %image) then residual(2) @"velocity"
  out %a
)";
  EXPECT_EQ(role_in(step, "velocity"), "head");
}

TEST(Quantize, Fp8RoundsWhereTheValueIsMade) {
  Graph g = parsed(kBlock);
  const Ranges r = ranges();
  const Status s = quantize(g, {.precision = "fp8", .ranges = &r});
  ASSERT_TRUE(s.ok()) << s.message();
  const Node& fc1 = node(g, "mlp.fc1");
  EXPECT_EQ(to_string(g.at(fc1.inputs[0]).type.quant), "e4m3:tensor(f32)");
  EXPECT_EQ(to_string(g.at(fc1.inputs[1]).type.quant), "e4m3:channel(f32)");
  EXPECT_EQ(fc1.asked, "fp8");
  EXPECT_TRUE(fc1.then.is({StepKind::act, StepKind::quantize}));
  EXPECT_TRUE(node(g, "norm1").then.is({StepKind::quantize}));
  const Node& fc2 = node(g, "mlp.fc2");
  EXPECT_FLOAT_EQ(static_cast<float>(g.numbers(g.at(fc2.inputs[0]).scale)[0]), 4.48f / 448);
  EXPECT_EQ(g.at(fc2.outputs[0]).type.quant, QuantType(Element::f16));
  EXPECT_EQ(node(g, "head").asked, "fp16");
  EXPECT_EQ(g.at(node(g, "head").inputs[1]).type.quant, QuantType(Element::f16));
  EXPECT_EQ(g.at(g.outputs[0]).type.quant, QuantType(Element::f32)) << "the caller's outputs stay f32";
}

// What the model itself calls exact is no part of the precision that is asked of its blocks.
TEST(Quantize, LayersWithExactWeightsAreFp32) {
  for (const std::string precision : {"fp8", "bf16", "fp16"}) {
    Graph g = parsed(kBlock);
    for (Value& v : g.values) v.exact = v.name == "w2" || v.name == "image";
    QuantizeOptions options{.precision = precision};
    const Ranges known = ranges();
    options.ranges = &known;
    const Status status = quantize(g, options);
    ASSERT_TRUE(status.ok()) << status.message();
    const Node& fc2 = node(g, "mlp.fc2");
    EXPECT_EQ(fc2.asked, "fp32") << precision;
    EXPECT_EQ(node(g, "mlp.fc1").asked, precision);
    for (const size_t input : {0, 1}) EXPECT_EQ(g.at(fc2.inputs[input]).type.quant, QuantType(Element::f32));
    EXPECT_TRUE(g.at(fc2.inputs[1]).constant);
  }
}

TEST(Quantize, WeightsAreRoundedOnceFromTheOriginal) {
  Graph before = parsed(kBlock), g = parsed(kBlock);
  const Ranges r = ranges();
  ASSERT_TRUE(quantize(g, {.precision = "fp8", .ranges = &r}).ok());
  const std::vector<double> original = before.numbers(node(before, "mlp.fc1").inputs[1]);
  const ValueId w = node(g, "mlp.fc1").inputs[1];
  const std::vector<double> codes = g.numbers(w), scales = g.numbers(g.at(w).scale);
  ASSERT_EQ(scales.size(), 64u);
  for (size_t i = 0; i < codes.size(); ++i) {
    const double value = codes[i] * scales[i / 32];
    EXPECT_LE(std::abs(value - original[i]),
              0.5001 * step_at(Element::e4m3, original[i] / scales[i / 32]) * scales[i / 32])
        << i;
  }
}

TEST(Quantize, AValueWithOtherReadersIsCopied) {
  std::string text = kBlock;
  text.replace(text.find("matmul(%h, %w2, %e)"), 19, "matmul(%h, %w2, %n)");  // the norm's result is the residual too
  Graph g = parsed(text.c_str());
  const Ranges r = ranges();
  ASSERT_TRUE(quantize(g, {.precision = "fp8", .ranges = &r}).ok());
  EXPECT_TRUE(node(g, "norm1").then.empty());
  EXPECT_EQ(node(g, "n.quantize").op, "copy");
  EXPECT_EQ(g.at(node(g, "mlp.fc2").inputs[2]).type.quant, QuantType(Element::f16));
}

TEST(Quantize, AllowKeepsALayerAndStaysVisible) {
  Graph g = parsed(kBlock);
  const Ranges r = ranges();
  ASSERT_TRUE(quantize(g, {.precision = "fp8", .allow = {{"mlp.*2", "fp16"}}, .ranges = &r}).ok());
  EXPECT_EQ(node(g, "mlp.fc2").asked, "fp16");
  EXPECT_EQ(g.at(node(g, "mlp.fc2").inputs[1]).type.quant, QuantType(Element::f16));
  EXPECT_TRUE(node(g, "mlp.fc1").then.is({StepKind::act}));
  Graph other = parsed(kBlock);
  EXPECT_EQ(quantize(other, {.precision = "fp8", .allow = {{"nothing", "fp16"}}, .ranges = &r}).code(), Code::kUsage);
}

TEST(Quantize, WeightsThatDoNotFitAreRefused) {
  const char* text = R"(graph g {
    in %x: f32[2,4]
    const %w: f32[1,4] = {1, 2, 1e6, 3}
    %y: f32[2,1] = matmul(%x, %w) @"fc"
    out %y
  })";
  Graph g = parsed(text);
  const Status s = quantize(g, {.precision = "fp16"});
  EXPECT_EQ(s.code(), Code::kRefused);
  EXPECT_NE(s.message().find("layer fc: its constant 'w' holds 1e+06"), std::string::npos) << s.message();
  ASSERT_EQ(layers_of(s).size(), 1u);
  EXPECT_EQ(layers_of(s)[0].find("fc matmul fp16: * its constant 'w' holds 1e+06"), 0u) << layers_of(s)[0];
  Graph wide = parsed(text);
  EXPECT_TRUE(quantize(wide, {.precision = "bf16"}).ok());
}

TEST(Quantize, WeightsMustBeFinite) {
  // No precision holds them, so none is advised.
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    for (const char* precision : {"fp16", "bf16", "fp8"}) {
      Graph g = parsed(kBlock);
      const Ranges r = ranges();
      Value& w = g.at(node(g, "mlp.fc1").inputs[1]);
      Buffer b(w.data.size());
      std::memcpy(b.data(), w.data.data(), b.size());
      std::memcpy(b.data() + 4 * 37, &bad, 4);
      w.data = Bytes::own(std::move(b));
      const Status s = quantize(g, {.precision = precision, .ranges = &r});
      EXPECT_EQ(s.code(), Code::kBadInput) << precision;
      EXPECT_EQ(s.message().find("layer mlp.fc1: "), 0u) << s.message();
      EXPECT_NE(s.message().find("weights must be finite"), std::string::npos) << s.message();
      EXPECT_EQ(s.message().find("another precision"), std::string::npos) << s.message();
    }
  }
}

TEST(Quantize, AWeightOnTheLeftIsNotSilentlyLeftOut) {
  const char* text = R"(graph g {
    in %x: f32[2,16]
    const %left: f32[4,16] = seed(1)
    const %w: f32[16,16] = seed(2)
    %a: f32[2,16] = matmul(%x, %w) @"fc"
    %y: f32[4,2] = matmul(%left, %a) @"mix"
    out %y
  })";
  const Ranges r{.values = {{"x", 1}, {"a", 1}}, .method = {}, .how = "test"};
  Graph g = parsed(text);
  const Status s = quantize(g, {.precision = "fp8", .ranges = &r});
  EXPECT_EQ(s.code(), Code::kRefused);
  EXPECT_NE(s.message().find("--allow 'mix=fp16'"), std::string::npos) << s.message();
  EXPECT_EQ(layers_of(s), std::vector<std::string>{"mix matmul fp8: * its weight is the left operand of the product"});
  Graph accepted = parsed(text);
  const Status allowed =
      quantize(accepted, {.precision = "fp8", .allow = {{"fc", "fp8"}, {"mix", "fp16"}}, .ranges = &r});
  EXPECT_TRUE(allowed.ok()) << allowed.message();
}

// A scale that underflows would become 0, or by the rule for values that are all zero, 1.
TEST(Quantize, ARangeWithoutAScaleIsRefused) {
  const char* text = R"(graph g {
    in %x: f32[2,16]
    const %w: f32[16,16] = seed(2)
    %y: f32[2,16] = matmul(%x, %w) @"fc"
    out %y
  })";
  const struct {
    const char* precision;
    float largest;
  } cases[] = {{"fp8", 448}, {"int8", 127}, {"nvfp4", 6 * 448}};
  for (const auto& [precision, largest] : cases) {
    const float least = largest * std::numeric_limits<float>::min();
    for (const float amax : {0.0f, least, 0.99f * least, std::numeric_limits<float>::denorm_min()}) {
      const Ranges r{.values = {{"x", amax}}, .method = {}, .how = "test"};
      Graph g = parsed(text);
      const Status s = quantize(g, {.precision = precision, .allow = {{"fc", precision}}, .ranges = &r});
      EXPECT_EQ(s.ok(), amax == 0 || amax == least) << precision << " " << amax << ": " << s.message();
      if (!s.ok()) {
        EXPECT_NE(s.message().find("layer fc: its input 'x' has the range"), std::string::npos) << s.message();
      }
    }
  }
}

// 16 bits would make minus infinity a number, and lose the angle of a late token.
TEST(Quantize, MasksAndAnglesStayF32) {
  Graph g = parsed(R"(graph g {
    in %x: f32[1,3,2,4]
    in %see: f32[1,1,3,3]
    const %zero: f32[] = {0}
    const %hidden: f32[] = {-inf}
    const %angle: f32[1,3,2] = seed(1)
    %mask: u8[1,1,3,3] = map(%see, %zero) {fn="greater"}
    %bias: f32[1,1,3,3] = map(%mask, %zero, %hidden) {fn="where"} @"bias"
    %cos: f32[1,3,2] = map(%angle) {fn="cos"} @"cos"
    %sin: f32[1,3,2] = map(%angle) {fn="sin"} @"sin"
    %r: f32[1,3,2,4] = rotary(%x, %cos, %sin) {interleaved=0} @"rotary"
    %a: f32[1,3,2,4] = attention(%r, %r, %r, %bias) {scale=0.5} @"attn"
    %y: f32[1,3,2,4] = map(%a) {fn="relu"} @"relu"
    out %y
  })");
  ASSERT_TRUE(quantize(g, {.precision = "fp16", .target = Arch::cpu}).ok());
  const auto element = [&](const std::string& name) { return g.at(node(g, name).outputs[0]).type.quant.element; };
  for (const char* name : {"bias", "cos", "sin"}) EXPECT_EQ(element(name), Element::f32) << name;
  for (const char* name : {"rotary", "attn"}) EXPECT_EQ(element(name), Element::f16) << name;
  const ValueId hidden = node(g, "bias").inputs[2];
  EXPECT_EQ(g.at(hidden).type.quant.element, Element::f32);
  EXPECT_TRUE(std::isinf(g.numbers(hidden)[0]));
}

// An attention that was not recognised as one: its mask is made by maps and added before a softmax.
constexpr const char* kSpeltOut = R"(graph spelt {
  in %x: f32[2,4,32]
  in %seen: u8[2,1,4]
  const %g: f32[32] = seed(1)
  const %w: f32[32,32] = seed(2)
  const %zero: f32[] = {0}
  const %hidden: f32[] = {HIDDEN}
  %n: f32[2,4,32] = norm(%x, %g) {eps=0.000001, kind="layer"} @"norm"
  %q: f32[2,4,32] = matmul(%n, %w) @"q"
  %s: f32[2,4,4] = matmul(%q, %n) @"scores"
  %m: f32[2,1,4] = map(%seen, %zero, %hidden) {fn="where"} @"mask"
  %b: f32[2,4,4] = map(%s, %m) {fn="add"} @"masked"
  %p: f32[2,4,4] = softmax(%b) @"softmax"
  const %wo: f32[8,4] = seed(3)
  %y: f32[2,4,8] = matmul(%p, %wo) @"out"
  out %y
}
)";

TEST(Quantize, WhatTheCarrierDoesNotHoldKeepsF32) {
  const auto types = [](const std::string& hidden, const char* precision) {
    std::string text = kSpeltOut;
    text.replace(text.find("HIDDEN"), 6, hidden);
    Graph g = parsed(text.c_str());
    const Ranges r{.values = {{"n", 3.0f}, {"q", 1}}, .method = {}, .how = "test"};
    const Status s = quantize(g, {.precision = precision, .ranges = &r});
    EXPECT_TRUE(s.ok()) << s.message();
    const Node& add = node(g, "masked");
    return std::vector<Element>{g.at(add.inputs[0]).type.quant.element, g.at(add.inputs[1]).type.quant.element,
                                g.at(add.outputs[0]).type.quant.element};
  };
  const std::vector<Element> wide = {Element::f16, Element::f32, Element::f32}, narrow(3, Element::f16);
  for (const char* precision : {"fp16", "fp8", "int8", "w4a16"}) {
    // -1e4: f16 holds it, but not the scores beside it.
    for (const char* hidden : {"-3.4e38", "-1e9", "-inf", "-70000", "-65504", "-1e4", "-1000"})
      EXPECT_EQ(types(hidden, precision), wide) << precision << " " << hidden;
    EXPECT_EQ(types("-100", precision), narrow) << precision;  // weighs keys
  }
  const std::vector<Element> bf16(3, Element::bf16), beyond_bf16 = {Element::bf16, Element::f32, Element::f32};
  EXPECT_EQ(types("-100", "bf16"), bf16);
  for (const char* hidden : {"-1e4", "-1e9", "-inf"}) EXPECT_EQ(types(hidden, "bf16"), beyond_bf16) << hidden;
}

TEST(Quantize, RangesBeyondTheCarrierKeepF32) {
  Graph g = parsed(kBlock);
  Ranges r = ranges();
  r.values["r"] = 1e5f;  // what fc2 adds to
  ASSERT_TRUE(quantize(g, {.precision = "fp8", .ranges = &r}).ok());
  EXPECT_EQ(g.at(node(g, "mlp.fc2").outputs[0]).type.quant, QuantType(Element::f32));
  Graph fits = parsed(kBlock);
  r.values["r"] = 6e4f;
  ASSERT_TRUE(quantize(fits, {.precision = "fp8", .ranges = &r}).ok());
  EXPECT_EQ(fits.at(node(fits, "mlp.fc2").outputs[0]).type.quant, QuantType(Element::f16));
}

TEST(Quantize, WhatNoKernelReadsInF32IsRefused) {
  // The head multiplies fp16: of a wide input a CPU makes f32 products, Hopper has none of f32 and f16.
  Ranges r = ranges();
  r.values["m"] = 1e5f;
  Graph cpu = parsed(kBlock);
  EXPECT_TRUE(quantize(cpu, {.precision = "fp8", .ranges = &r, .target = Arch::cpu}).ok());
  EXPECT_EQ(cpu.at(node(cpu, "head").inputs[0]).type.quant, QuantType(Element::f32));
  Graph sm90 = parsed(kBlock);
  const Status s = quantize(sm90, {.precision = "fp8", .ranges = &r, .target = Arch::sm90});
  EXPECT_EQ(s.code(), Code::kRefused);
  EXPECT_EQ(s.message().find("layer head: 'm' reaches 100000, f16 holds at most 65504, and no kernel of sm90"), 0u)
      << s.message();
  ASSERT_EQ(layers_of(s).size(), 1u);
  EXPECT_EQ(layers_of(s)[0].find("head matmul "), 0u) << layers_of(s)[0];
  Graph fp32 = parsed(kBlock);  // what is advised
  EXPECT_TRUE(quantize(fp32, {.precision = "fp32", .target = Arch::sm90}).ok());
}

TEST(Quantize, ADivisorMustNotBecomeZero) {
  const auto divisor = [](const char* least) {
    std::string text = R"(graph g {
    in %x: f32[2,16]
    const %w: f32[16,16] = seed(1)
    const %least: f32[] = {LEAST}
    %a: f32[2,16] = matmul(%x, %w) @"fc"
    %d: f32[2,16] = map(%a, %least) {fn="max"} @"least"
    %y: f32[2,16] = map(%a, %d) {fn="div"} @"ratio"
    out %y
  })";
    text.replace(text.find("LEAST"), 5, least);
    Graph g = parsed(text.c_str());
    EXPECT_TRUE(quantize(g, {.precision = "fp16"}).ok());
    return g.at(node(g, "least").outputs[0]).type.quant.element;
  };
  EXPECT_EQ(divisor("1e-12"), Element::f32);
  EXPECT_EQ(divisor("1e-4"), Element::f16);
}

TEST(Quantize, AQueryThatTheModelLearntHasItsCodesAtBuild) {
  Graph g = parsed(R"(graph g {
    in %x: f32[2,4,32]
    const %g: f32[32] = seed(1)
    const %probe: f32[1,1,32] = seed(2)
    const %w: f32[64,32] = seed(3)
    const %wo: f32[32,32] = seed(4)
    %n: f32[2,4,32] = norm(%x, %g) {eps=0.000001, kind="layer"} @"norm"
    %kv: f32[2,4,64] = matmul(%n, %w) @"kv"
    %q: f32[2,1,2,16] = view(%probe) {offset=0, strides=[0,32,16,1]}
    %k: f32[2,4,2,16] = view(%kv) {offset=0, strides=[256,64,16,1]}
    %v: f32[2,4,2,16] = view(%kv) {offset=32, strides=[256,64,16,1]}
    %a: f32[2,1,2,16] = attention(%q, %k, %v) {scale=0.25} @"attn"
    %f: f32[2,1,32] = view(%a) {offset=0, strides=[32,32,1]}
    %y: f32[2,1,32] = matmul(%f, %wo) @"proj"
    out %y
  })");
  const Ranges r{.values = {{"n", 1}, {"kv", 2}, {"a", 3}}, .method = {}, .how = "test"};
  const Status s = quantize(g, {.precision = "fp8", .attention = "fp8", .ranges = &r});
  ASSERT_TRUE(s.ok()) << s.message();
  EXPECT_TRUE(check(g).ok()) << check(g).message();
  const Value& q = g.at(node(g, "attn").inputs[0]);
  EXPECT_EQ(q.type.quant, kE4m3PerTensor);
  const Value& codes = g.at(placement_of(g, g.producers(), node(g, "attn").inputs[0]).base);
  EXPECT_TRUE(codes.constant);
  EXPECT_EQ(elements(codes.type.shape), 32);
}

TEST(Quantize, ACallersValueIsCastOnlyForKernelsThatCannotReadIt) {
  const char* text = R"(graph g {
    in %x: f32[4,16]
    const %w: f32[8,16] = seed(1)
    const %v: f32[8,8] = seed(2)
    %y: f32[4,8] = matmul(%x, %w) @"first"
    %z: f32[4,8] = matmul(%y, %v) @"second"
    out %y
    out %z
  })";
  const auto casts = [&](std::optional<Arch> target) {
    Graph g = parsed(text);
    EXPECT_TRUE(quantize(g, {.precision = "fp16", .target = target}).ok());
    EXPECT_EQ(g.at(g.outputs[0]).type.quant, QuantType(Element::f32));
    return std::count_if(g.nodes.begin(), g.nodes.end(), [](const Node& n) { return n.op == "copy"; });
  };
  EXPECT_EQ(casts(Arch::cpu), 0) << "it decodes whatever it reads";
  EXPECT_EQ(casts(Arch::sm90), 2) << "both operands must be of one type there";
  EXPECT_EQ(casts({}), 2);
}

// Each precision: types of fc1's weight and input, and whether the norm before it makes the codes.
TEST(Quantize, EveryPrecisionHasItsTypes) {
  const Ranges r = ranges();
  for (const std::string& name : precision_names()) {
    const Precision& p = *find_precision(name);
    Graph g = parsed(kBlock);
    const Status s = quantize(g, {.precision = name, .ranges = &r});
    ASSERT_TRUE(s.ok()) << name << ": " << s.message();
    ASSERT_TRUE(check(g).ok()) << name << ": " << check(g).message();
    const Node& fc1 = node(g, "mlp.fc1");
    EXPECT_EQ(fc1.asked, name);
    const Value &x = g.at(fc1.inputs[0]), &w = g.at(fc1.inputs[1]);
    EXPECT_EQ(to_string(w.type.quant), to_string(p.weight)) << name;
    EXPECT_EQ(w.scale2 != kNoValue, p.weight.scale2.granularity != Granularity::kNone) << name;
    const QuantType input = p.activation.scaled() ? p.activation : QuantType(p.carrier);
    EXPECT_EQ(to_string(x.type.quant), to_string(input)) << name;
    EXPECT_EQ(x.scale != kNoValue, input.scaled() && !input.dynamic) << name;
    EXPECT_EQ(node(g, "norm1").then.find(StepKind::quantize) != nullptr, input.scaled()) << name;
    if (name == "nvfp4") {
      EXPECT_FLOAT_EQ(static_cast<float>(g.numbers(x.scale2)[0]), 3.0f / (6 * 448));
    }
    if (name == "int8") {
      EXPECT_FLOAT_EQ(static_cast<float>(g.numbers(x.scale)[0]), 3.0f / 127);
    }
    EXPECT_EQ(g.at(node(g, "head").inputs[1]).type.quant, QuantType(p.carrier)) << name;
  }
}

TEST(Quantize, APlainPrecisionBesideTheCarrierIsRealToo) {
  Graph g = parsed(kBlock);
  ASSERT_TRUE(quantize(g, {.precision = "fp16", .allow = {{"mlp.fc2", "fp32"}}}).ok());
  const Node& fc2 = node(g, "mlp.fc2");
  EXPECT_EQ(g.at(fc2.inputs[1]).type.quant, QuantType(Element::f32));
  EXPECT_EQ(g.at(fc2.inputs[0]).type.quant, QuantType(Element::f32));
  EXPECT_EQ(node(g, "h.cast").op, "copy");
  EXPECT_EQ(g.at(fc2.outputs[0]).type.quant, QuantType(Element::f16));
}

// q, k and v are views of one matrix: one rounding in the layer that makes it.
constexpr const char* kAttention = R"(graph a {
  in %image: f32[1,3,16]
  const %we: f32[16,16] = seed(1)
  const %wq: f32[48,16] = seed(2)
  const %wp: f32[16,16] = seed(3)
  %e: f32[1,3,16] = matmul(%image, %we) @"embed"
  %qkv: f32[1,3,48] = matmul(%e, %wq) @"qkv"
  %q: f32[1,3,2,8] = view(%qkv) {offset=0, strides=[144,48,8,1]}
  %k: f32[1,3,2,8] = view(%qkv) {offset=16, strides=[144,48,8,1]}
  %v: f32[1,3,2,8] = view(%qkv) {offset=32, strides=[144,48,8,1]}
  %a: f32[1,3,2,8] = attention(%q, %k, %v) {scale=0.5} @"attn"
  %f: f32[1,3,16] = view(%a) {offset=0, strides=[48,16,1]}
  %y: f32[1,3,16] = matmul(%f, %wp, %e) then residual(2) @"proj"
  out %y
})";

// Weights that keep f32: the layer is fp32, its input is cast, and nothing of the weight is. Whoever names it decides.
TEST(Quantize, ALayerWithAnExactWeightIsFp32) {
  for (const Arch target : {Arch::cpu, Arch::sm90}) {
    for (const char* precision : {"bf16", "fp8"}) {
      Graph g = parsed(kBlock);
      g.at(node(g, "mlp.fc2").inputs[1]).exact = true;
      const Ranges r = ranges();
      QuantizeOptions options{.precision = precision, .ranges = &r, .target = target};
      Graph named = g;
      ASSERT_TRUE(quantize(g, options).ok());
      const Node& fc2 = node(g, "mlp.fc2");
      EXPECT_EQ(fc2.asked, "fp32");
      EXPECT_EQ(g.at(fc2.inputs[0]).type.quant, QuantType(Element::f32));
      EXPECT_EQ(g.at(fc2.inputs[1]).type.quant, QuantType(Element::f32));
      EXPECT_TRUE(g.at(fc2.inputs[1]).constant) << "cast while running";
      EXPECT_EQ(node(g, "mlp.fc1").asked, precision);
      options.allow = {{"mlp.fc2", precision}};
      ASSERT_TRUE(quantize(named, options).ok());
      EXPECT_EQ(node(named, "mlp.fc2").asked, precision);
    }
  }
}

TEST(Quantize, AttentionInFp8) {
  const Ranges r{.values = {{"e", 1}, {"qkv", 2}, {"a", 3}}, .method = {}, .how = "test"};
  Graph g = parsed(kAttention);
  const Status s = quantize(g, {.precision = "fp8", .attention = "fp8", .ranges = &r});
  ASSERT_TRUE(s.ok()) << s.message();
  EXPECT_EQ(node(g, "qkv").role, "block.attention_in");
  EXPECT_EQ(node(g, "proj").role, "block.attention_out");
  const Node& attn = node(g, "attn");
  EXPECT_EQ(attn.asked, "fp8");
  EXPECT_EQ(attn.attrs.word("p"), "e4m3:tensor(f32)");
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(g.at(attn.inputs[i]).type.quant, kE4m3PerTensor);
  EXPECT_TRUE(node(g, "qkv").then.is({StepKind::quantize}));
  EXPECT_TRUE(attn.then.is({StepKind::quantize}));
  EXPECT_EQ(node(g, "e.quantize").op, "copy") << "its result is the residual too";
  Graph none = parsed(kBlock);
  const Ranges of_block = ranges();
  const Status without = quantize(none, {.precision = "fp8", .attention = "fp8", .ranges = &of_block});
  EXPECT_EQ(without.code(), Code::kRefused);
  EXPECT_EQ(without.layers(), nullptr) << "no layer is at fault where there is no attention";
}

// Blocks of scales lie along rows of the storage; a view that cuts rows gets codes of its own.
TEST(Quantize, FineScalesNeedWholeRows) {
  std::string text = kAttention;
  text.replace(text.find("%y: f32[1,3,16] = matmul(%f"), 27,
               "%half: f32[1,3,16] = view(%qkv) {offset=8, strides=[144,48,1]}\n  %y: f32[1,3,16] = matmul(%half");
  Graph g = parsed(text.c_str());
  ASSERT_TRUE(quantize(g, {.precision = "mxfp8"}).ok());
  EXPECT_EQ(node(g, "half.quantize").op, "copy");
}

TEST(Quantize, RecipesAndAllowances) {
  const auto recipe =
      parse_recipe(R"({"tessera_recipe": 1, "precision": "fp8", "rules": [{"role": "block.mlp", "precision": "w4a16"},
    {"layer": "*.fc2", "precision": "fp16"}]})",
                   "test");
  ASSERT_TRUE(recipe.ok()) << recipe.status().message();
  const Ranges r = ranges();
  Graph g = parsed(kBlock);
  ASSERT_TRUE(quantize(g, {.precision = recipe->precision, .rules = recipe->rules, .ranges = &r}).ok());
  EXPECT_EQ(node(g, "mlp.fc1").asked, "w4a16");
  EXPECT_EQ(node(g, "mlp.fc2").asked, "fp16");
  Graph other = parsed(kBlock);
  const Status unused = quantize(other, {.rules = {{.role = "block.attention*", .precision = "fp8"}}, .ranges = &r});
  EXPECT_EQ(unused.code(), Code::kUsage);
  EXPECT_NE(unused.message().find("rule 1"), std::string::npos) << unused.message();
  ASSERT_TRUE(parse_recipe(shipped_recipe("default"), "default").ok());
  for (const char* bad : {"[]", "{}", R"({"tessera_recipe": 2})", R"({"tessera_recipe": 1, "precision": "fp7"})",
                          R"({"tessera_recipe": 1, "rules": [{"precision": "fp8"}]})",
                          R"({"tessera_recipe": 1, "rules": [{"layer": "a"}]})",
                          R"({"tessera_recipe": 1, "attention": "fp4"})", R"({"tessera_recipe": 1, "rulez": []})"}) {
    EXPECT_FALSE(parse_recipe(bad, "bad").ok()) << bad;
  }
}

TEST(Quantize, StatedTypesAreTakenAsTheyAre) {
  Graph g = parsed(kBlock);
  for (Node& n : g.nodes) {
    if (n.name != "mlp.fc1") continue;
    const auto w = quantize_constant(g, n.inputs[1], kE4m3PerTensor, n.name);
    ASSERT_TRUE(w.ok());
    n.inputs[1] = *w;
    n.attrs.set("type.0", std::string("e4m3:tensor(f32)"));
    n.attrs.set("scale.0", 0.25);
  }
  Graph twice = g;
  ASSERT_TRUE(quantize(g, {.precision = "imported"}).ok());
  const Node& fc1 = node(g, "mlp.fc1");
  EXPECT_EQ(fc1.asked, "imported");
  EXPECT_FALSE(fc1.attrs.has("type.0"));
  EXPECT_EQ(g.numbers(g.at(fc1.inputs[0]).scale), std::vector<double>{0.25});
  EXPECT_EQ(node(g, "mlp.fc2").asked, "fp16");
  const Ranges r = ranges();
  const Status s = quantize(twice, {.precision = "nvfp4", .ranges = &r});
  EXPECT_EQ(s.code(), Code::kRefused);
  ASSERT_EQ(layers_of(s).size(), 1u);
  EXPECT_EQ(layers_of(s)[0].find("mlp.fc1 matmul nvfp4: * the model states its types"), 0u) << layers_of(s)[0];
}

TEST(Quantize, PatternsMatchInLinearTime) {
  EXPECT_TRUE(matches("blocks.*.mlp.fc?", "blocks.11.mlp.fc1"));
  EXPECT_FALSE(matches("blocks.*.mlp", "blocks.11.mlp.fc1"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_FALSE(matches("a*a*a*a*a*a*a*a*a*a*b", std::string(5000, 'a').c_str()));
}

TEST(Quantize, RefusesBadNumbers) {
  Graph g = parsed(kBlock);
  Ranges r = ranges();
  r.values["h"] = std::numeric_limits<float>::infinity();
  EXPECT_NE(quantize(g, {.precision = "fp8", .ranges = &r}).message().find("mlp.fc2"), std::string::npos);
  Graph missing = parsed(kBlock);
  Ranges none;
  EXPECT_FALSE(quantize(missing, {.precision = "fp8", .ranges = &none}).ok());
  Graph unknown = parsed(kBlock);
  EXPECT_EQ(quantize(unknown, {.precision = "fp7"}).code(), Code::kUsage);
}

}  // namespace
}  // namespace tessera
