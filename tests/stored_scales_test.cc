// SPDX-License-Identifier: Apache-2.0
// Scales of weights and activations that are ignored, transposed, too large, too small or none at all, planted after
// quantize: the build fails and says which layer's, or, where the calibration may be at fault, warns.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <span>

#include "plan/engine_file.h"
#include "testing/faulty_build.h"
#include "verify/verify.h"

namespace tessera {
namespace {

using namespace testing;

const char* const kLayer = "blocks.1.mlp.fc1";

TEST(StoredScales, IgnoredScale) {
  for (const std::string& precision : known({"fp8", "fp8_tensor", "int8"})) {
    const Made m = made(precision, {.in_quantize = [](Graph& g) {
                          Value& w = weight_of(g, kLayer);
                          change(g.at(w.scale), [](uint8_t* bytes, size_t size) {
                            const float one = 1;
                            for (size_t i = 0; i < size; i += 4) std::memcpy(bytes + i, &one, 4);
                          });
                        }});
    expect_caught(m, {"layer blocks.1.mlp.fc1", "its stored weight is off"});
  }
}

TEST(StoredScales, IgnoredScaleInAKernel) {
  // Only the plan that runs reads ones: the golden plan has the scales, so the arithmetic is to blame.
  Made m = made("fp8", {});
  ASSERT_TRUE(m.status.ok()) << m.status.message();
  Plan& plan = m.engine.plans[0];
  for (PlanStep& s : plan.steps) {
    if (s.layer != kLayer) continue;
    PlanTensor& scale = plan.tensors[static_cast<size_t>(plan.tensors[static_cast<size_t>(s.in[1])].scale)];
    std::vector<float> ones(static_cast<size_t>(elements(scale.desc.shape)), 1.0f);
    Buffer b(ones.size() * 4);
    std::memcpy(b.data(), ones.data(), b.size());
    scale.index = static_cast<int64_t>(m.engine.constants.size());
    m.engine.constants.push_back({"ones", Bytes::own(std::move(b))});
  }
  const auto report = verify_engine(m.engine);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_FALSE(report->ok);
  EXPECT_NE(report->sentence.find("layer blocks.1.mlp.fc1 "), std::string::npos) << report->sentence;
}

TEST(StoredScales, SwappedNibbles) {
  for (const std::string& precision : known({"nvfp4", "w4a16", "w4a8"})) {
    const Made m = made(precision, {.in_quantize = [](Graph& g) {
                          change(weight_of(g, kLayer), [](uint8_t* bytes, size_t size) {
                            for (uint8_t& b : std::span(bytes, size)) b = static_cast<uint8_t>(b << 4 | b >> 4);
                          });
                        }});
    expect_caught(m, {"layer blocks.1.mlp.fc1", "the two codes of each byte are swapped"});
  }
}

TEST(StoredScales, TransposedScaleLayout) {
  for (const std::string& precision : known({"nvfp4", "w4a16", "w4a8", "mxfp8"})) {
    const Made m = made(precision, {.in_quantize = [](Graph& g) {
                          Value& w = weight_of(g, "blocks.1.attn.qkv");
                          const size_t rows = static_cast<size_t>(w.type.shape[0]);
                          change(g.at(w.scale), [&](uint8_t* bytes, size_t size) {
                            const std::vector<uint8_t> old(bytes, bytes + size);
                            const size_t blocks = size / rows;
                            for (size_t r = 0; r < rows; ++r) {
                              for (size_t b = 0; b < blocks; ++b) bytes[b * rows + r] = old[r * blocks + b];
                            }
                          });
                        }});
    expect_caught(m, {"layer blocks.1.attn.qkv", "its stored weight is off"});
  }
}

TEST(StoredScales, WrongGlobalScale) {
  for (const std::string& precision : known({"nvfp4", "w4a16", "w4a8"})) {
    const Made m = made(precision, {.in_quantize = [](Graph& g) { multiply(g, weight_of(g, kLayer).scale2, 4); }});
    expect_caught(m, {"layer blocks.1.mlp.fc1", "its scales are 4x too large"});
  }
}

TEST(StoredScales, BlocksAlongAxis0) {
  for (const std::string& precision : known({"nvfp4", "w4a16", "w4a8"})) {
    const Made m = made(precision, {.in_quantize = [](Graph& g) {
                          // The scale of the block above each number in place of the one beside it.
                          Value& w = weight_of(g, kLayer);
                          const int64_t rows = w.type.shape[0], cols = w.type.shape[1], blocks = cols / 16;
                          change(g.at(w.scale), [&](uint8_t* bytes, size_t size) {
                            const std::vector<uint8_t> old(bytes, bytes + size);
                            for (int64_t i = 0; i < rows * blocks; ++i)
                              bytes[i] = old[static_cast<size_t>(i / 16 / cols * cols + i % cols)];
                          });
                        }});
    expect_caught(m, {"layer blocks.1.mlp.fc1", "its stored weight is off"});
  }
}

TEST(StoredScales, ScalesThatAreNone) {
  const float zero = 0, nan = std::nanf(""), inf = INFINITY, negative = -1;
  const std::pair<float, const char*> bad[] = {
      {zero, "is zero"}, {nan, "is NaN"}, {inf, "is infinite"}, {negative, "is negative"}};
  for (const auto& [value, words] : bad) {
    const auto put = [value = value](uint8_t* bytes, size_t) { std::memcpy(bytes + 4 * 5, &value, 4); };
    const Made weight = made("fp8", {.in_quantize = [&](Graph& g) { change(g.at(weight_of(g, kLayer).scale), put); }});
    expect_caught(weight, {"layer blocks.1.mlp.fc1: scale 5 of", words, "positive and finite"});
    const Made activation = made("fp8", {.in_quantize = [&, value = value](Graph& g) {
                                   const ValueId scale = g.at(node_of(g, kLayer).inputs[0]).scale;
                                   change(g.at(scale), [&](uint8_t* bytes, size_t) { std::memcpy(bytes, &value, 4); });
                                 }});
    expect_caught(activation, {"layer blocks.1.", words, "positive and finite"});
  }
}

TEST(StoredScales, ScalesOfAWrongShapeOrUnused) {
  const Made m = made("fp8", {});
  ASSERT_TRUE(m.status.ok()) << m.status.message();
  Engine longer = m.engine;
  Plan& plan = longer.plans[0];
  for (PlanStep& s : plan.steps) {
    if (s.layer != kLayer) continue;
    const int scale = plan.tensors[static_cast<size_t>(s.in[1])].scale;
    --plan.tensors[static_cast<size_t>(scale)].desc.shape[0];
  }
  const std::string said = check_engine(longer).message();
  EXPECT_NE(said.find("blocks.1.mlp.fc1"), std::string::npos) << said;
  EXPECT_NE(said.find("are not 128 dense numbers of f32"), std::string::npos) << said;
  Engine unused = m.engine;
  unused.constants.push_back({"left.scale", unused.constants[0].data});
  EXPECT_NE(check_engine(unused).message().find("'left.scale'"), std::string::npos) << check_engine(unused).message();
  EXPECT_NE(check_engine(unused).message().find("is used by no layer"), std::string::npos);
}

TEST(StoredScales, SaturatingCalibration) {
  for (const std::string& precision : known({"fp8", "int8", "w4a8"})) {
    const Made m = made(precision, {.in_quantize = [](Graph& g) {
                          std::set<ValueId> scales;
                          for (const Value& v : g.values) {
                            if (!v.constant && v.type.quant.scaled() && !v.type.quant.dynamic) scales.insert(v.scale);
                          }
                          for (const ValueId s : scales) multiply(g, s, 1.0f / 40);
                        }});
    // 40 times too small for the calibration data; the golden inputs reach a little less far.
    expect_caught(m, {"layer blocks.", "activation scale ", "x too small, ", "% of codes saturate"});
  }
}

TEST(StoredScales, OneScaleThatSaturates) {
  // One layer of the second block; the outputs barely notice, the codes do.
  const Made m =
      made("fp8", {.in_quantize = [](Graph& g) { multiply(g, g.at(node_of(g, kLayer).inputs[0]).scale, 1.0f / 40); }});
  expect_caught(m, {"layer blocks.1.mlp.fc1: activation scale ", "x too small, "});
}

TEST(StoredScales, OneGlobalScaleThatIsTooLarge) {
  // The second level of one layer's input; the outputs keep the cosine that fp4 is allowed.
  for (const float factor : {1e8f, 1e30f}) {
    const Made m =
        made("nvfp4",
             {.in_quantize = [factor](Graph& g) { multiply(g, g.at(node_of(g, kLayer).inputs[0]).scale2, factor); }});
    expect_caught(m, {"layer blocks.1.mlp.fc1: global activation scale ", "x too large, ", " of block scales underflow",
                      "activation scales were taken from random inputs (--calib FILE brings data)"});
  }
}

TEST(StoredScales, AScaleThatIsALittleTooSmallIsAWarning) {
  // Inputs that reach 1.5 times as far as those of the calibration do so; those of the zoo's model reach 1.2 times.
  for (const std::string& precision : known({"nvfp4", "fp8", "int8"})) {
    const Made m = made(precision, {.in_quantize = [](Graph& g) {
                          const Value& x = g.at(node_of(g, kLayer).inputs[0]);
                          multiply(g, x.scale2 != kNoValue ? x.scale2 : x.scale, 1 / 1.5f);
                        }});
    EXPECT_TRUE(m.status.ok()) << precision << ": " << m.status.message();
    if (precision != "nvfp4") continue;  // of codes under one scale fewer than a hundredth saturate
    std::string said;
    for (const std::string& w : m.report.warnings) said += w + "\n";
    EXPECT_NE(said.find("global activation scale 1."), std::string::npos) << said;
    EXPECT_NE(said.find("(--calib FILE brings data)"), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace tessera
