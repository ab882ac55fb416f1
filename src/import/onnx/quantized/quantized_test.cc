// SPDX-License-Identifier: Apache-2.0
// Quantized models in every representation that exporters write (tests/data/quantized/make.py): op by op they compute
// what ml_dtypes does, and in canonical form codes and scales are the file's, bit for bit, as types of the layers.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "compile/compile.h"
#include "import/onnx/onnx.h"
#include "import/onnx/testing_models.h"
#include "io/npz.h"
#include "ir/layer_ops.h"
#include "ir/text.h"
#include "ops/builder.h"
#include "rewrite/canonicalise.h"
#include "runtime/executor.h"
#include "testing/run_graph.h"

namespace tessera {
namespace {

const std::map<std::string, Array>& arrays() {
  static const std::map<std::string, Array> kAll = [] {
    std::map<std::string, Array> all;
    auto read = read_npz(TS_SOURCE_DIR "/tests/data/quantized/cases.npz");
    if (!read.ok()) return all;  // no cases: gtest reports a suite without tests
    for (Array& a : *read) all[a.name] = std::move(a);
    return all;
  }();
  return kAll;
}

std::vector<std::string> cases() {
  std::vector<std::string> out;
  for (const auto& [name, array] : arrays()) {
    if (name.ends_with(".onnx")) out.push_back(name.substr(0, name.size() - 5));
  }
  return out;
}

std::string text_of(const std::string& name) {
  const auto it = arrays().find(name);
  if (it == arrays().end()) return "";
  return {reinterpret_cast<const char*>(it->second.data.data()), it->second.data.size()};
}

class QuantizedTest : public ::testing::TestWithParam<std::string> {
 protected:
  Graph imported() {
    auto graph = import_onnx(arrays().at(GetParam() + ".onnx").data, GetParam());
    EXPECT_TRUE(graph.ok()) << graph.status().message();
    return graph.ok() ? *graph : Graph{};
  }
  Graph canonical() {
    Graph graph = imported();
    const Status status = canonicalise(graph);
    EXPECT_TRUE(status.ok()) << status.message();
    return graph;
  }
  std::vector<testing::Numbers> inputs(const Graph& graph) {
    std::vector<testing::Numbers> in;
    for (size_t i = 0; i < graph.inputs.size(); ++i) in.push_back(numbers_of(arrays().at(cat(GetParam(), ".in", i))));
    return in;
  }
  // An array of the case, or `otherwise` where it has none.
  testing::Numbers numbers(const std::string& name, const testing::Numbers& otherwise) {
    const auto it = arrays().find(GetParam() + name);
    return it == arrays().end() ? otherwise : numbers_of(it->second);
  }
  // What the file computes.
  void expect_file(const testing::Numbers& got, double rounding) {
    const testing::Numbers want = numbers_of(arrays().at(GetParam() + ".out0"));
    expect_near(got, want, testing::Numbers(want.size(), 0), rounding);
  }
  // What its types say: the same, but for probabilities that attention rounds before it normalises them. `slack`: of
  // numbers between layers in f16.
  void expect_types(const testing::Numbers& got, double rounding, bool slack) {
    const testing::Numbers want = numbers_of(arrays().at(GetParam() + ".out0")), none(want.size(), 0);
    const testing::Numbers off = slack ? numbers(".slack0", none) : none;
    expect_near(got, numbers(".own0", want), off, rounding);
    testing::Numbers apart = numbers(".apart0", none);
    for (size_t k = 0; k < apart.size(); ++k) apart[k] += off[k];
    expect_near(got, want, apart, rounding);
  }
  testing::Numbers computed(const Graph& graph) {
    const auto out = testing::run_graph(graph, inputs(graph));
    EXPECT_TRUE(out.ok()) << out.status().message();
    EXPECT_EQ(graph.at(graph.outputs[0]).type.shape, arrays().at(GetParam() + ".out0").shape);
    return out.ok() ? (*out)[0] : testing::Numbers{};
  }

 private:
  static void expect_near(const testing::Numbers& got, const testing::Numbers& want, const testing::Numbers& off,
                          double rounding) {
    ASSERT_EQ(got.size(), want.size());
    ASSERT_EQ(off.size(), want.size());
    for (size_t k = 0; k < want.size(); ++k)
      ASSERT_NEAR(got[k], want[k], off[k] + rounding * std::max(1.0, std::abs(want[k]))) << "at " << k;
  }
};

// At most 64 terms of decoded numbers, each rounded to f32 once more, of magnitudes whose sum stays below 4.
constexpr double kRounding = 4 * 2 * 0x1p-24;

TEST_P(QuantizedTest, ComputesWhatTheEmulationDoes) { expect_file(computed(imported()), kRounding); }

// One scale for all is how Q/DQ began: the operators of every opset that is read take such a model alike.
TEST(QuantizedOpsets, EveryOneThatIsReadGivesTheSameGraph) {
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(text_of("i8_tensor.onnx")));
  ASSERT_EQ(model.opset_import_size(), 1);
  std::string first;
  for (int64_t opset = 11; opset <= 27; ++opset) {
    SCOPED_TRACE(opset);
    model.mutable_opset_import(0)->set_version(opset);
    auto graph = import_onnx(testing::bytes_of(model.SerializeAsString()), "i8_tensor");
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    ASSERT_TRUE(canonicalise(*graph).ok());
    const std::string text = print_graph(*graph);
    EXPECT_NE(text.find("i8:tensor(f32)"), std::string::npos) << text;
    if (first.empty()) first = text;
    EXPECT_EQ(text, first);
  }
  model.mutable_opset_import(0)->set_version(10);
  const auto old = import_onnx(testing::bytes_of(model.SerializeAsString()), "i8_tensor");
  EXPECT_NE(old.status().message().find("opset 10 is not supported: 11 to 27 are"), std::string::npos);
}

// What the types of a canonical graph say, spelt out as copies.
Graph with_types_applied(const Graph& graph) {
  Graph out = graph;
  out.nodes.clear();
  for (Node n : graph.nodes) {
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      const auto type = parse_quant_type(n.attrs.word(cat("type.", i)));
      if (!type) continue;
      Value v;
      v.name = cat(n.name, ".in", i);
      v.type = {out.at(n.inputs[i]).type.shape, *type};
      if (n.attrs.has(cat("scale.", i))) {
        const ValueId scale =
            out.add_constant(v.name + ".scale", {1}, {static_cast<float>(n.attrs.number(cat("scale.", i)))});
        (type->dynamic ? v.scale2 : v.scale) = scale;
      }
      const ValueId id = out.add_value(std::move(v));
      out.nodes.push_back({.name = cat(n.name, ".in", i), .op = "copy", .inputs = {n.inputs[i]}, .outputs = {id}});
      n.inputs[i] = id;
    }
    out.nodes.push_back(std::move(n));
  }
  return out;
}

TEST_P(QuantizedTest, ComputesTheSameFromItsTypes) {
  expect_types(computed(with_types_applied(canonical())), kRounding, false);
}

// The bytes of a constant, as text: easily compared.
std::string bytes_of(const Graph& graph, ValueId id) {
  if (id == kNoValue) return "";
  const Bytes& data = graph.at(id).data;
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}

TEST_P(QuantizedTest, KeepsCodesAndScales) {
  const std::string type = text_of(GetParam() + ".type");
  if (type.empty()) GTEST_SKIP() << "no weight in codes";
  const Graph graph = canonical();
  int layers = 0;
  for (const Node& n : graph.nodes) {
    if (!multiplies_weights(n.op)) continue;
    ++layers;
    const Value& w = graph.at(n.inputs[1]);
    EXPECT_TRUE(w.constant);
    EXPECT_EQ(to_string(w.type.quant), type);
    EXPECT_EQ(n.asked, "imported");
    EXPECT_EQ(bytes_of(graph, n.inputs[1]), text_of(GetParam() + ".codes"));
    EXPECT_EQ(bytes_of(graph, w.scale), text_of(GetParam() + ".scale"));
    EXPECT_EQ(bytes_of(graph, w.scale2), text_of(GetParam() + ".scale2"));
  }
  EXPECT_GE(layers, 1) << print_graph(graph);
}

// Cases where values are rounded beside the products in codes.
bool rounds_beside(const std::string& name) {
  return name == "shared" ||             // its residual keeps the rounded numbers
         name == "attention_i8_partly";  // its probabilities are numbers: so is the product with v
}

// The lines of each layer, one after the other; the last ones are those of all that follow.
std::vector<std::vector<std::string>> lines_of(const std::string& text) {
  std::vector<std::vector<std::string>> layers(1);
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) {
      layers.back().push_back(text.substr(begin, end - begin));
    } else {
      layers.emplace_back();
    }
    begin = end + 1;
  }
  return layers;
}

TEST_P(QuantizedTest, GivesLayersTheTypes) {
  const Graph graph = canonical();
  const std::string text = text_of(GetParam() + ".attrs");
  const auto layers = lines_of(text);
  size_t typed = 0, copies = 0;
  for (const Node& n : graph.nodes) {
    const bool product = multiplies_weights(n.op) || n.op == "attention";
    copies += n.op == "copy" && graph.at(n.outputs[0]).type.quant.scaled();
    if (!product || text.empty()) {
      for (const auto& [key, value] : n.attrs.all()) EXPECT_FALSE(key.starts_with("type.") || key == "p") << key;
      continue;
    }
    std::vector<std::string> wanted;
    for (const std::string& line : layers[std::min(typed++, layers.size() - 1)]) {
      const std::string key = line.substr(0, line.find('=')), value = line.substr(line.find('=') + 1);
      wanted.push_back(key);
      if (key.starts_with("scale.")) {
        EXPECT_EQ(n.attrs.number(key), std::strtod(value.c_str(), nullptr)) << key;
      } else {
        EXPECT_EQ(n.attrs.word(key), value) << key;
      }
    }
    for (const auto& [key, value] : n.attrs.all()) {
      if (key.starts_with("type.") || key.starts_with("scale.") || key == "p") {
        EXPECT_NE(std::find(wanted.begin(), wanted.end(), key), wanted.end()) << key;
      }
    }
  }
  if (!text.empty()) {
    EXPECT_GE(typed, layers.size()) << print_graph(graph);
    EXPECT_EQ(copies, rounds_beside(GetParam()) ? 1u : 0u) << print_graph(graph);
  }
}

class EngineTest : public QuantizedTest {
 protected:
  // Types as imported, everything else in f16.
  Status build(Arch target) {
    LowerOptions options;
    options.plan.target = target;
    options.types.precision = "imported";
    ConstantPool pool(engine_.constants);
    graph_ = canonical();
    TS_ASSIGN(Plan plan, lower(graph_, options, pool));
    engine_.plans.push_back(std::move(plan));
    return {};
  }
  // What a constant of the plan holds.
  std::string bytes(int tensor) const {
    if (tensor < 0) return "";
    const PlanTensor& t = engine_.plans[0].tensors[static_cast<size_t>(tensor)];
    EXPECT_EQ(t.storage, Storage::kConstant);
    const Bytes& data = engine_.constants[static_cast<size_t>(t.index)].data;
    const int64_t size = packed_bytes(t.desc.type.element, elements(t.desc.shape));
    return {reinterpret_cast<const char*>(data.data()) + t.offset_bytes, static_cast<size_t>(size)};
  }
  void expect_run() {
    const auto executor = bind(engine_, engine_.plans[0]);
    ASSERT_TRUE(executor.ok()) << executor.status().message();
    std::vector<std::vector<float>> in;
    std::vector<const void*> ins;
    for (const testing::Numbers& numbers : inputs(graph_)) in.emplace_back(numbers.begin(), numbers.end());
    for (const auto& numbers : in) ins.push_back(numbers.data());
    std::vector<float> out(static_cast<size_t>(elements(arrays().at(GetParam() + ".out0").shape)), NAN);
    std::vector<void*> outs = {out.data()};
    const Status status = (*executor)->run(ins, outs);
    ASSERT_TRUE(status.ok()) << status.message();
    // Inputs that are no codes, and results of products inside, are rounded to f16: 2^-11 of sums of magnitudes
    // below 4.
    expect_types(testing::Numbers(out.begin(), out.end()), 4 * 0x1p-11, true);
  }

  Graph graph_;
  Engine engine_;
};

TEST_P(EngineTest, HoldsTheSameBitsAndRuns) {
  const Status built = build(Arch::ref);
  ASSERT_TRUE(built.ok()) << built.message();
  const std::string type = text_of(GetParam() + ".type");
  for (const PlanStep& step : engine_.plans[0].steps) {
    if (!multiplies_weights(step.op) || type.empty()) continue;
    const PlanTensor& w = engine_.plans[0].tensors[static_cast<size_t>(step.in[1])];
    EXPECT_EQ(to_string(w.desc.type), type);
    EXPECT_EQ(bytes(step.in[1]), text_of(GetParam() + ".codes"));
    EXPECT_EQ(bytes(w.scale), text_of(GetParam() + ".scale"));
    EXPECT_EQ(bytes(w.scale2), text_of(GetParam() + ".scale2"));
    EXPECT_EQ(step.asked, "imported");
  }
  expect_run();
}

TEST_P(EngineTest, RunsOnTheCpu) {
  const Status built = build(Arch::cpu);
  ASSERT_TRUE(built.ok()) << built.message();
  expect_run();
}

INSTANTIATE_TEST_SUITE_P(Cases, EngineTest, ::testing::ValuesIn(cases()), [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Cases, QuantizedTest, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tessera
