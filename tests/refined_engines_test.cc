// SPDX-License-Identifier: Apache-2.0
// Sound engines with refined weights, sparsity or attention in fp8, held against their model as `verify --model` does:
// nothing is reported as a fault, what is not comparable is left out by name, and a planted fault still shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "assemble/build_engine.h"
#include "calibrate/refine.h"
#include "compile/compile.h"
#include "testing/engine_from.h"
#include "verify/verify.h"

namespace tessera {
namespace {

const std::string kModel = TS_SOURCE_DIR "/assets/digits/vit.onnx";
const std::string kData = TS_SOURCE_DIR "/assets/digits/calib.npz";

BuildOptions options(const std::string& precision) {
  return {.model_path = kModel,
          .precision = precision,
          .batches = {2},
          .calib_path = kData,
          .calib_samples = 32,
          .quiet = true};
}

Result<F32Model> f32_model_of(const Engine& engine) {
  TS_ASSIGN(const Graph graph, load_model(kModel, engine.plans.back().batch, {.exact = false}));
  return make_f32_model(graph);
}

QuantizationReport held_against_model(const Engine& engine) {
  const auto f32_model = f32_model_of(engine);
  EXPECT_TRUE(f32_model.ok()) << f32_model.status().message();
  auto report = measure_quantization(engine, &*f32_model, {.inputs = kData, .samples = 4});
  EXPECT_TRUE(report.ok()) << report.status().message();
  return std::move(report).value();
}

struct Case {
  const char* name;
  const char* precision;
  bool divides;  // results of some layers
  void (*ask)(BuildOptions&);
};

const Case kCases[] = {
    {"plain", "fp8", false, [](BuildOptions&) {}},
    {"smooth", "fp8", true, [](BuildOptions& o) { o.refine.smooth = true; }},
    {"smooth int8", "int8", true, [](BuildOptions& o) { o.refine.smooth = true; }},
    {"awq", "w4a16", true, [](BuildOptions& o) { o.refine.awq = true; }},
    {"clip", "nvfp4", false, [](BuildOptions& o) { o.refine.clip = true; }},
    {"compensate", "nvfp4", false, [](BuildOptions& o) { o.refine.compensate = true; }},
    {"smooth and compensate", "fp8", true, [](BuildOptions& o) { o.refine.smooth = o.refine.compensate = true; }},
    {"sparse", "fp16", false,
     [](BuildOptions& o) {
       o.refine.sparsity = {SparsityPattern::k24, SparsityMethod::kHessian};
     }},
    {"attention", "fp8", false, [](BuildOptions& o) { o.attention = "fp8"; }},
};

TEST(RefinedEngines, AreNoFaults) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    BuildOptions o = options(c.precision);
    c.ask(o);
    const auto engine = engine_from(o);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    EXPECT_EQ(!engine->divided_layers.empty(), c.divides);
    const QuantizationReport report = held_against_model(*engine);
    EXPECT_TRUE(report.fitting);
    EXPECT_TRUE(report.faults.empty()) << report.faults.front();
    ASSERT_EQ(report.outputs.size(), 1u);
    EXPECT_EQ(gate_sentence(report.outputs, default_min_cosine(engine->plans.back())), "");
    // Layers are compared with their like: none is farther from the model than its outputs could survive.
    int compared = 0;
    for (const LayerQuality& q : report.layers) {
      if (!q.compared) continue;
      ++compared;
      EXPECT_GT(q.closeness.cosine_mean, 0.8) << q.layer;
    }
    EXPECT_GT(compared, 10);
    const bool said = std::any_of(report.notes.begin(), report.notes.end(), [](const std::string& n) {
      return n.find("(smooth, awq) divided the results of") != std::string::npos;
    });
    EXPECT_EQ(said, c.divides);
  }
}

TEST(RefinedEngines, AFaultStillShows) {
  BuildOptions o = options("fp8");
  o.refine.smooth = true;
  auto engine = engine_from(o);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  // A linear layer of the golden plan that adds no residual any more.
  for (PlanStep& s : engine->plans.back().steps) {
    if (s.op == "matmul" && s.then.find(StepKind::residual) != nullptr) {
      std::erase_if(s.then.steps, [](const Step& step) { return step.kind == StepKind::residual; });
      break;
    }
  }
  const QuantizationReport report = held_against_model(*engine);
  ASSERT_FALSE(report.faults.empty());
  EXPECT_NE(report.faults.front().find("where the model has matmul then"), std::string::npos) << report.faults.front();
}

TEST(RefinedEngines, AnotherModelIsAFaultOfWeights) {
  const auto engine = engine_from(options("fp8"));
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  auto graph = load_model(kModel, engine->plans.back().batch, {.exact = false});
  ASSERT_TRUE(graph.ok());
  for (Node& n : graph->nodes) {  // one layer with its weight negated
    if (n.op != "matmul" || !graph->at(n.inputs[1]).constant) continue;
    std::vector<float> w;
    for (const double x : graph->numbers(n.inputs[1])) w.push_back(static_cast<float>(-x));
    n.inputs[1] = graph->add_constant(graph->at(n.inputs[1]).name, Shape(graph->at(n.inputs[1]).type.shape), w);
    break;
  }
  const auto f32_model = make_f32_model(*graph);
  ASSERT_TRUE(f32_model.ok()) << f32_model.status().message();
  const auto report = measure_quantization(*engine, &*f32_model, {.inputs = kData, .samples = 2});
  ASSERT_TRUE(report.ok()) << report.status().message();
  ASSERT_FALSE(report->faults.empty());
  EXPECT_NE(report->faults.front().find("its stored weight is off"), std::string::npos) << report->faults.front();
}

// Refining changes weights: all other constants are still the model's.
TEST(RefinedEngines, ABiasThatIsNotTheModelsIsNamed) {
  BuildOptions o = options("w4a8");
  o.refine.clip = true;
  auto engine = engine_from(o);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_TRUE(held_against_model(*engine).faults.empty());
  const Plan& golden = engine->plans.back();
  for (const PlanStep& step : golden.steps) {
    const Step* bias =
        step.layer == "blocks.1.mlp.fc1" && step.op == "matmul" ? step.then.find(StepKind::bias) : nullptr;
    if (bias == nullptr) continue;
    const PlanTensor& t = golden.tensors[static_cast<size_t>(step.in[static_cast<size_t>(bias->operand)])];
    Bytes& data = engine->constants[static_cast<size_t>(t.index)].data;
    Buffer changed(data.size());
    std::memcpy(changed.data(), data.data(), data.size());
    const double other = 0.05;
    info(t.desc.type.element).encode_f64(&other, 1, changed.data() + t.offset_bytes, 3);
    data = Bytes::own(std::move(changed));
  }
  const QuantizationReport report = held_against_model(*engine);
  ASSERT_FALSE(report.faults.empty());
  EXPECT_NE(report.faults.front().find("layer blocks.1.mlp.fc1: bias 3 is stored as"), std::string::npos)
      << report.faults.front();
}

TEST(WholeNumbers, AreCountedAndGated) {
  const std::vector<double> want = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
  std::vector<double> got = want;
  got[2] = 7;
  const Agreement one = count_same(got, want);
  EXPECT_EQ(one.same, 9);
  EXPECT_EQ(one.all, 10);
  EXPECT_TRUE(agrees(one, 0.9999)) << "one of several is chance";
  EXPECT_FALSE(agrees(one, 1));
  EXPECT_FALSE(agrees({.same = 0, .all = 1}, 0.95));
  EXPECT_FALSE(agrees({.same = 6, .all = 10}, 0.95));
  EXPECT_TRUE(agrees({.same = 7, .all = 10}, 0.95));
  const OutputQuality q{.name = "label", .closeness = compare(got, want, 1), .whole = Agreement{.same = 2, .all = 10}};
  const std::string said = gate_sentence({q}, 0.95);
  EXPECT_NE(said.find("output 'label' of the quantized model has 2 of 10 whole numbers"), std::string::npos) << said;
}

}  // namespace
}  // namespace tessera
