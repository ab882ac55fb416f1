// SPDX-License-Identifier: Apache-2.0
// Planted faults. Each test builds a small model as `tessera build` does, plants one fault where a program could have
// it (a pass, the quantizer, stored codes and scales, a kernel), and expects the build's own checks to fail with a
// sentence that names the layer or the cause. The same build without a fault passes.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <span>

#include "compile/compile.h"
#include "forge/forge.h"
#include "io/npz.h"
#include "models/zoo.h"
#include "passes/canonicalise.h"
#include "plan/engine_file.h"
#include "study/calibrate.h"
#include "study/golden.h"
#include "study/verify.h"

namespace tessera {
namespace {

const std::string kDigits = TS_SOURCE_DIR "/assets/digits/vit.onnx";

std::string tiny_vit() {
  static const std::string path = [] {
    const std::string name = testing::TempDir() + "/faults_vit.onnx";
    std::ofstream(name, std::ios::binary) << zoo_onnx("vit-tiny-test", 3).value();
    return name;
  }();
  return path;
}

using Plant = std::function<void(Graph&)>;
const Plant kNothing = [](Graph&) {};

struct Faults {
  Plant in_import = kNothing;    // of the model as written
  Plant in_passes = kNothing;    // of the canonical graph, in f32
  Plant in_quantize = kNothing;  // of the graph with types
  std::string model = tiny_vit();
};

// Precisions that this program has, of those wanted.
std::vector<std::string> known(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  for (const std::string& n : names) {
    if (find_precision(n) != nullptr) out.push_back(n);
  }
  return out;
}

struct Made {
  Status status;  // of the whole
  Engine engine;
  ModelReport report;
};

// What build_engine does, with a fault in the middle.
Made made(const std::string& precision, const Faults& faults) {
  Made m;
  const auto run = [&]() -> Status {
    TS_ASSIGN(Graph written, import_model(faults.model, 2, {.exact = false}));
    Graph canonical = written;
    faults.in_import(written);
    TS_TRY(canonicalise(canonical));
    TS_ASSIGN(const Ranges ranges, calibrate(canonical, {}));
    faults.in_passes(canonical);
    Graph typed = canonical;
    QuantizeOptions types;
    types.precision = precision;
    types.ranges = &ranges;
    types.target = Arch::cpu;
    TS_TRY(quantize(typed, types));
    faults.in_quantize(typed);
    ConstantPool pool(m.engine.constants);
    m.engine.precision = precision;
    m.engine.target = Arch::cpu;
    for (const bool reference : {false, true}) {
      const PlanOptions plan{
          .name = reference ? "golden" : "batch2", .target = Arch::cpu, .batch = 2, .as_reference = reference};
      TS_ASSIGN(Plan made, make_plan(typed, plan, pool));
      m.engine.plans.push_back(std::move(made));
    }
    TS_TRY(check_engine(m.engine));
    const ModelGraphs graphs{.written = &written, .canonical = &canonical, .prepared = &canonical};
    TS_ASSIGN(m.engine.golden, make_golden(m.engine, {.random_scales = true}, &graphs, &m.report));
    TS_ASSIGN(const VerifyReport report, check_golden(m.engine, m.engine.plans[0]));
    return report.ok ? Status() : Status(Code::kVerifyFailed, report.sentence);
  };
  m.status = run();
  return m;
}

void expect_caught(const Made& m, const std::vector<std::string>& words) {
  EXPECT_FALSE(m.status.ok()) << "nothing was found; looked for: " << words[0];
  for (const std::string& w : words)
    EXPECT_NE(m.status.message().find(w), std::string::npos) << "'" << w << "' is not in: " << m.status.message();
}

Node& node_of(Graph& graph, const std::string& name) {
  for (Node& n : graph.nodes) {
    if (n.name == name) return n;
  }
  ADD_FAILURE() << "no layer " << name;
  return graph.nodes[0];
}

// A changed copy of a constant's bytes: the same bytes may be another layer's too.
void change(Value& v, const std::function<void(uint8_t* bytes, size_t size)>& body) {
  Buffer b(v.data.size());
  std::memcpy(b.data(), v.data.data(), b.size());
  body(b.data(), b.size());
  v.data = Bytes::own(std::move(b));
}

void multiply(Graph& graph, ValueId scales, float factor) {
  ASSERT_NE(scales, kNoValue);
  ASSERT_EQ(graph.at(scales).type.quant, QuantType(Element::f32));
  change(graph.at(scales), [&](uint8_t* bytes, size_t size) {
    for (size_t i = 0; i + 4 <= size; i += 4) {
      float x;
      std::memcpy(&x, bytes + i, 4);
      x *= factor;
      std::memcpy(bytes + i, &x, 4);
    }
  });
}

const char* const kLayer = "blocks.1.mlp.fc1";
Value& weight_of(Graph& graph, const std::string& layer) { return graph.at(node_of(graph, layer).inputs[1]); }

TEST(Faults, NoneIsFoundWhereNoneIs) {
  for (const std::string& precision :
       known({"fp32", "fp16", "bf16", "fp8", "fp8_tensor", "fp8_token", "mxfp8", "nvfp4", "w4a16", "w4a8", "int8"})) {
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

TEST(Faults, IgnoredScale) {
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

TEST(Faults, IgnoredScaleInAKernel) {
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

TEST(Faults, SwappedNibbles) {
  for (const std::string& precision : known({"nvfp4", "w4a16", "w4a8"})) {
    const Made m = made(precision, {.in_quantize = [](Graph& g) {
                          change(weight_of(g, kLayer), [](uint8_t* bytes, size_t size) {
                            for (uint8_t& b : std::span(bytes, size)) b = static_cast<uint8_t>(b << 4 | b >> 4);
                          });
                        }});
    expect_caught(m, {"layer blocks.1.mlp.fc1", "the two codes of each byte are swapped"});
  }
}

TEST(Faults, TransposedScaleLayout) {
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

TEST(Faults, WrongGlobalScale) {
  for (const std::string& precision : known({"nvfp4", "w4a16", "w4a8"})) {
    const Made m = made(precision, {.in_quantize = [](Graph& g) { multiply(g, weight_of(g, kLayer).scale2, 4); }});
    expect_caught(m, {"layer blocks.1.mlp.fc1", "its scales are 4x too large"});
  }
}

TEST(Faults, BlocksAlongAxis0) {
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

TEST(Faults, ScalesThatAreNone) {
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

TEST(Faults, ScalesOfAWrongShapeOrUnused) {
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

TEST(Faults, SaturatingCalibration) {
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

TEST(Faults, OneScaleThatSaturates) {
  // One layer of the second block; the outputs barely notice, the codes do.
  const Made m =
      made("fp8", {.in_quantize = [](Graph& g) { multiply(g, g.at(node_of(g, kLayer).inputs[0]).scale, 1.0f / 40); }});
  expect_caught(m, {"layer blocks.1.mlp.fc1: activation scale ", "x too small, "});
}

TEST(Faults, OneGlobalScaleThatIsTooLarge) {
  // The second level of one layer's input; the outputs keep the cosine that fp4 is allowed.
  for (const float factor : {1e8f, 1e30f}) {
    const Made m = made("nvfp4", {.in_quantize = [factor](Graph& g) {
                          multiply(g, g.at(node_of(g, kLayer).inputs[0]).scale2, factor);
                        }});
    expect_caught(m, {"layer blocks.1.mlp.fc1: global activation scale ", "x too large, ", " of block scales underflow",
                      "activation scales were taken from random inputs (--calib FILE brings data)"});
  }
}

TEST(Faults, AScaleThatIsALittleTooSmallIsAWarning) {
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
    const auto engine = build_engine(o);
    EXPECT_TRUE(engine.ok()) << name << ": " << engine.status().message();
    ++built;
  }
  EXPECT_GT(built, 50);
}

TEST(Faults, TheGateIsTheUsers) {
  BuildOptions o{.model_path = tiny_vit(), .precision = "fp8", .batches = {2}, .quiet = true};
  ModelReport report;
  ASSERT_TRUE(build_engine(o, nullptr, nullptr, &report).ok());
  ASSERT_EQ(report.outputs.size(), 1u);
  o.min_cosine = 1;
  const auto strict = build_engine(o);
  ASSERT_FALSE(strict.ok());
  EXPECT_EQ(strict.status().code(), Code::kVerifyFailed);
  const std::string& said = strict.status().message();
  EXPECT_NE(said.find("where 1 is the least (--min-cosine)"), std::string::npos) << said;
  EXPECT_NE(said.find("the layers that add most error: "), std::string::npos) << said;
  o.min_cosine = report.outputs[0].closeness.cosine_mean - 1e-6;
  EXPECT_TRUE(build_engine(o).ok());
}

}  // namespace
}  // namespace tessera
