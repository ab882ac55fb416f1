// SPDX-License-Identifier: Apache-2.0
// Planted faults. Each test builds a small model as `tessera build` does, plants one fault where a program could have
// it (the importer, a pass, the quantizer), and expects the build's own checks to fail with a sentence that names the
// layer or the cause. The same build without a fault passes. Stored scales: stored_scales_test.cc; plans alone, in
// every precision: planted_*_test.cc.
#include <gtest/gtest.h>

#include <filesystem>

#include "assemble/build_engine.h"
#include "io/npz.h"
#include "testing/engine_from.h"
#include "testing/faulty_build.h"
#include "types/precisions/precision.h"

namespace tessera {
namespace {

using namespace testing;

const std::string kDigits = TS_SOURCE_DIR "/assets/digits/vit.onnx";

TEST(Faults, NoneIsFoundWhereNoneIs) {
  for (const std::string& precision : precision_names()) {
    for (const std::string& model : {tiny_vit(), kDigits}) {
      const Made m = made(precision, {.model = model});
      EXPECT_TRUE(m.status.ok()) << precision << ", " << model << ": " << m.status.message();
      ASSERT_EQ(m.report.outputs.size(), 1u);
      const double cosine = m.report.outputs[0].closeness.cosine_mean;
      EXPECT_GE(cosine, m.report.min_cosine) << precision;
      EXPECT_EQ(m.engine.golden.original.size(), 1u);
      ::testing::Test::RecordProperty(precision + (model == kDigits ? "_digits" : "_vit"), std::to_string(cosine));
      std::printf("%-10s %s: cosine %.6f, gate %.4g; passes %.1e of %.1e\n", precision.c_str(),
                  model == kDigits ? "digits" : "vit", cosine, m.report.min_cosine,
                  m.report.passes[0].closeness.relative_l2, m.report.pass_bounds[0]);
    }
  }
}

TEST(Faults, AllLayersShareTheFirstLayersWeights) {
  const auto share = [](Graph& g) {
    for (const char* part : {"attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2"})
      node_of(g, cat("blocks.1.", part)).inputs[1] = node_of(g, cat("blocks.0.", part)).inputs[1];
  };
  for (const std::string& precision : known({"fp32", "fp16", "fp8", "nvfp4"})) {
    expect_caught(made(precision, {.in_passes = share}), {"the passes changed the model", "output 'logits'"});
    if (precision != "fp32")
      expect_caught(made(precision, {.in_quantize = share}), {"layer blocks.1.", "it is not this layer's weight"});
  }
}

TEST(Faults, AnMlpLeftOutOfTheResidual) {
  const auto leave_out = [](Graph& g) {
    Node& fc2 = node_of(g, "blocks.1.mlp.fc2");
    const Step* residual = fc2.then.find(StepKind::residual);
    ASSERT_NE(residual, nullptr);
    const ValueId stream = fc2.inputs[static_cast<size_t>(residual->operand)], out = fc2.outputs[0];
    fc2.op = "copy", fc2.then = {}, fc2.inputs = {stream}, fc2.outputs = {out};
  };
  for (const std::string& precision : known({"fp32", "fp8"}))
    expect_caught(made(precision, {.in_passes = leave_out}), {"the passes changed the model", "output 'logits'"});
  const auto drop_step = [](Graph& g) {
    Node& fc2 = node_of(g, "blocks.1.mlp.fc2");
    std::erase_if(fc2.then.steps, [](const Step& s) { return s.kind == StepKind::residual; });
  };
  expect_caught(made("fp16", {.in_quantize = drop_step}),
                {"layer blocks.1.mlp.fc2: it computes matmul then bias where the model has"});
}

TEST(Faults, OneGeluForTheOther) {
  const auto tanh = [](Graph& g) {
    int changed = 0;
    for (Node& n : g.nodes) {
      for (Step& s : n.then.steps) {
        if (s.kind == StepKind::act && s.fn == Unary::gelu_erf) s.fn = Unary::gelu_tanh, ++changed;
      }
    }
    ASSERT_GT(changed, 0);
  };
  for (const std::string& precision : known({"fp32", "fp16", "fp8", "nvfp4"})) {
    for (const std::string& model : {tiny_vit(), kDigits}) {
      expect_caught(made(precision, {.in_passes = tanh, .model = model}),
                    {"the passes changed the model: layer ", "computes gelu_tanh"});
      expect_caught(made(precision, {.in_quantize = tanh, .model = model}),
                    {"it computes matmul then bias gelu_tanh where the model has"});
    }
  }
}

TEST(Faults, OneGeluForTheOtherShowsInTheNumbers) {
  // The model as written has a tanh elsewhere, so only its outputs can tell.
  const auto tanh_elsewhere = [](Graph& g) {
    Value v = g.at(g.nodes.back().outputs[0]);
    v.name = "elsewhere";
    Node n{.name = "elsewhere", .op = "map", .inputs = {g.nodes.back().outputs[0]}, .outputs = {g.add_value(v)}};
    n.attrs.set("fn", std::string("tanh"));
    g.nodes.push_back(n);
  };
  const auto one_tanh = [](Graph& g) {
    for (Node& n : g.nodes) {
      for (Step& s : n.then.steps) {
        if (s.kind != StepKind::act || s.fn != Unary::gelu_erf) continue;
        s.fn = Unary::gelu_tanh;
        return;
      }
    }
  };
  expect_caught(made("fp16", {.in_import = tanh_elsewhere, .in_passes = one_tanh, .model = kDigits}),
                {"the passes changed the model: in f32, output 'logits'", "where roundings of f32 explain"});
}

// Models as exporters write them: no pass is blamed, and fp16 keeps them.
TEST(Faults, NoneIsFoundInExportedModels) {
  const std::string folder = TS_SOURCE_DIR "/tests/data/models/";
  int built = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".onnx") continue;
    const std::string name = entry.path().stem();
    const auto arrays = read_npz(folder + name + ".npz");
    ASSERT_TRUE(arrays.ok()) << arrays.status().message();
    BuildOptions o{.model_path = entry.path(), .precision = "fp16", .quiet = true};
    for (const Array& a : *arrays) {
      if (!a.name.starts_with("expected_")) o.shapes[a.name] = a.shape;
    }
    const auto engine = engine_from(o);
    EXPECT_TRUE(engine.ok()) << name << ": " << engine.status().message();
    ++built;
  }
  EXPECT_GT(built, 50);
}

TEST(Faults, TheGateIsTheUsers) {
  BuildOptions o{.model_path = tiny_vit(), .precision = "fp8", .batches = {2}, .quiet = true};
  const auto built = build_engine(o);
  ASSERT_TRUE(built.ok()) << built.status().message();
  const ModelReport& report = built->reports[0];
  ASSERT_EQ(report.outputs.size(), 1u);
  o.min_cosine = 1;
  const auto strict = engine_from(o);
  ASSERT_FALSE(strict.ok());
  EXPECT_EQ(strict.status().code(), Code::kVerifyFailed);
  const std::string& said = strict.status().message();
  EXPECT_NE(said.find("where 1 is the least (--min-cosine)"), std::string::npos) << said;
  EXPECT_NE(said.find("the layers that add most error: "), std::string::npos) << said;
  o.min_cosine = report.outputs[0].closeness.cosine_mean - 1e-6;
  EXPECT_TRUE(engine_from(o).ok());
}

}  // namespace
}  // namespace tessera
