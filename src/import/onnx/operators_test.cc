// SPDX-License-Identifier: Apache-2.0
// Every operator of the importer against ONNX Runtime (tests/data/onnx/make.py), as imported and after canonicalise.
#include <gtest/gtest.h>

#include <map>

#include "import/onnx/onnx.h"
#include "io/npz.h"
#include "rewrite/canonicalise.h"
#include "testing/run_graph.h"

namespace tessera {
namespace {

const std::map<std::string, Array>& arrays() {
  static const std::map<std::string, Array> kAll = [] {
    std::map<std::string, Array> all;
    for (const char* file : {"cases", "indices", "natives", "images", "detectors"}) {
      auto read = read_npz(cat(TS_SOURCE_DIR "/tests/data/onnx/", file, ".npz"));
      if (!read.ok()) return std::map<std::string, Array>{};  // no cases: gtest reports a suite without tests
      for (Array& a : *read) all[a.name] = std::move(a);
    }
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

class OperatorTest : public ::testing::TestWithParam<std::string> {};

TEST_P(OperatorTest, AgreesWithOnnxRuntime) {
  auto graph = import_onnx(arrays().at(GetParam() + ".onnx").data, GetParam());
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  Graph canonical = *graph;
  const Status status = canonicalise(canonical);
  ASSERT_TRUE(status.ok()) << status.message();
  std::vector<testing::Numbers> in;
  for (size_t i = 0; i < graph->inputs.size(); ++i) in.push_back(numbers_of(arrays().at(cat(GetParam(), ".in", i))));
  for (const Graph* g : {&*graph, &canonical}) {
    const auto out = testing::run_graph(*g, in);
    ASSERT_TRUE(out.ok()) << out.status().message();
    ASSERT_TRUE(arrays().contains(cat(GetParam(), ".out", out->size() - 1)) &&
                !arrays().contains(cat(GetParam(), ".out", out->size())));
    for (size_t i = 0; i < out->size(); ++i) {
      const Array& want = arrays().at(cat(GetParam(), ".out", i));
      EXPECT_EQ(g->at(g->outputs[i]).type.shape, want.shape);
      const testing::Numbers numbers = numbers_of(want);
      ASSERT_EQ((*out)[i].size(), numbers.size());
      // Sums here have at most 24 terms, of numbers near 1: ORT's f32 sums are off by at most 24 steps of 2^-24, ours
      // by one, and functions by a few steps.
      for (size_t k = 0; k < numbers.size(); ++k)
        EXPECT_NEAR((*out)[i][k], numbers[k], 32 * 0x1p-23 * std::max(1.0, std::abs(numbers[k])))
            << "output " << i << " at " << k;
    }
  }
}

TEST_P(OperatorTest, KeepsTheNamesOfInputsAndOutputs) {
  auto graph = import_onnx(arrays().at(GetParam() + ".onnx").data, GetParam());
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  ASSERT_TRUE(canonicalise(*graph).ok());
  EXPECT_EQ(graph->at(graph->inputs[0]).name, "x");
  EXPECT_EQ(graph->at(graph->outputs[0]).name, "z");
}

TEST(Operators, AnInputThatIsAnOutputKeepsItsName) {
  auto graph = import_onnx(arrays().at("input_is_output.onnx").data, "same");
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  ASSERT_TRUE(canonicalise(*graph).ok());
  ASSERT_EQ(graph->outputs.size(), 2u);
  EXPECT_EQ(graph->at(graph->inputs[0]).name, "x");
  EXPECT_EQ(graph->at(graph->outputs[1]).name, "x");
  EXPECT_NE(graph->outputs[1], graph->inputs[0]) << "a plan's inputs and outputs are different memory";
}

INSTANTIATE_TEST_SUITE_P(Cases, OperatorTest, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param; });

// Native operators are one node each; a soft cap and scores as a result are written out.
TEST(Operators, NativesBecomeOps) {
  for (const std::string& name : cases()) {
    const bool attention = name.starts_with("attention_") && name != "attention_div" && name != "attention_mul" &&
                           name != "attention_plain";
    const std::string op = attention                                                       ? "attention"
                           : name.starts_with("rotary_")                                   ? "rotary"
                           : name.starts_with("rms_norm") || name.starts_with("layernorm") ? "norm"
                                                                                           : "";
    if (op.empty()) continue;
    auto graph = import_onnx(arrays().at(name + ".onnx").data, name);
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    const bool written_out = name.find("softcap") != std::string::npos || name.find("scores") != std::string::npos;
    EXPECT_EQ(testing::count_ops(*graph)[op], written_out ? 0 : 1) << name;
    EXPECT_EQ(testing::count_ops(*graph)["softmax"], written_out ? 1 : 0) << name;
  }
}

// The larger of x and its part, where that is no more than x's own; a comparison and a choice else.
TEST(Operators, LeakyReluIsTwoMaps) {
  auto graph = import_onnx(arrays().at("leakyrelu.onnx").data, "leakyrelu");
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  EXPECT_EQ(testing::count_ops(*graph)["map.mul"], 1);
  EXPECT_EQ(testing::count_ops(*graph)["map.max"], 1);
  EXPECT_EQ(graph->nodes.size(), 2u);
}

TEST(Operators, EvenIndicesAreViews) {
  for (const char* name : {"gather_scalar", "gather_range", "gather_strided", "gather_nd_grid"}) {
    auto graph = import_onnx(arrays().at(std::string(name) + ".onnx").data, name);
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    EXPECT_EQ(testing::count_ops(*graph)["gather"], 0) << name;
  }
}

TEST(Operators, FloatsOfAnyWidthBecomeF32) {
  for (const char* name : {"half_weights", "half_model", "cast_half"}) {
    auto graph = import_onnx(arrays().at(std::string(name) + ".onnx").data, name);
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    for (const Value& v : graph->values) EXPECT_EQ(v.type.quant, QuantType(Element::f32)) << name << ": " << v.name;
  }
}

TEST(Operators, AllAttentionSpellingsAreRecognised) {
  for (const char* name : {"attention_div", "attention_mul", "attention_plain"}) {
    auto graph = import_onnx(arrays().at(std::string(name) + ".onnx").data, name);
    ASSERT_TRUE(graph.ok() && canonicalise(*graph).ok());
    EXPECT_EQ(testing::count_ops(*graph)["attention"], 1) << name;
    EXPECT_EQ(testing::count_ops(*graph)["softmax"], 0) << name;
  }
}

}  // namespace
}  // namespace tessera
