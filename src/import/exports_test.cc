// SPDX-License-Identifier: Apache-2.0
// ViTs as PyTorch's two exporters write them (tests/data/export/make.py): numbers as ONNX Runtime's, structure as if
// written by hand.
#include <gtest/gtest.h>

#include <set>

#include "import/onnx.h"
#include "io/npz.h"
#include "ir/text.h"
#include "passes/canonicalise.h"
#include "testing/run_graph.h"

namespace tessera {
namespace {

constexpr int kDepth = 2;
const std::string kFolder = TS_SOURCE_DIR "/tests/data/export/";

struct Export {
  std::string model, exporter;
  std::string file() const { return model + "_" + exporter; }
};

std::vector<Export> exports() {
  std::vector<Export> out;
  for (const char* model : {"timm", "pool", "deit"}) {
    for (const char* exporter : {"ts14", "ts17", "dyn18", "dyn20"}) out.push_back({model, exporter});
  }
  return out;
}

Graph imported(const Export& e, int64_t batch) {
  auto graph = import_onnx(kFolder + e.file() + ".onnx", {.batch = batch, .shapes = {}});
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  return graph.ok() ? *graph : Graph{};
}

Graph canonical(const Export& e, int64_t batch) {
  Graph graph = imported(e, batch);
  const Status status = canonicalise(graph);
  EXPECT_TRUE(status.ok()) << status.message();
  return graph;
}

class ExportTest : public ::testing::TestWithParam<Export> {};

TEST_P(ExportTest, ComputesWhatOnnxRuntimeDoes) {
  const auto arrays = read_npz(kFolder + GetParam().file() + ".npz");
  ASSERT_TRUE(arrays.ok()) << arrays.status().message();
  testing::Numbers image, want;
  int64_t batch = 0;
  for (const Array& a : *arrays) {
    if (a.name == "image") image = numbers_of(a), batch = a.shape[0];
    if (a.name == "expected_logits") want = numbers_of(a);
  }
  const Graph before = imported(GetParam(), batch), after = canonical(GetParam(), batch);
  const std::vector<testing::Numbers> in = {image};
  const auto plain = testing::run_graph(before, in), fused = testing::run_graph(after, in);
  ASSERT_TRUE(plain.ok() && fused.ok()) << plain.status().message() << fused.status().message();
  // Both sides round every stored value to f32; some 60 roundings deep, with the sums of 64 terms inside ORT, stay
  // under 1e-5.
  EXPECT_LE(testing::relative_error((*plain)[0], want), 1e-5);
  EXPECT_LE(testing::relative_error((*fused)[0], want), 1e-5);
  EXPECT_LE(testing::relative_error((*fused)[0], (*plain)[0]), 1e-5);
}

TEST_P(ExportTest, HasOneNodePerLayer) {
  const Graph graph = canonical(GetParam(), 3);
  auto counts = testing::count_ops(graph);
  const bool fused_qkv = GetParam().model == "timm", pooled = GetParam().model == "pool";
  EXPECT_EQ(counts["attention"], kDepth);
  EXPECT_EQ(counts["norm"], 2 * kDepth + 1);
  EXPECT_EQ(counts["matmul"], (fused_qkv ? 4 : 6) * kDepth + 2);
  EXPECT_EQ(counts["copy"], 1) << "only the patches are copied";
  EXPECT_EQ(counts["concat"], pooled ? 0 : 1);
  EXPECT_EQ(counts["map.add"], pooled ? 0 : 1)
      << "only the position embedding behind a class token is an addition of its own";
  EXPECT_EQ(counts["reduce.mean"], pooled ? 1 : 0);
  int others = 0;
  for (const auto& [op, count] : counts) {
    if (!std::set<std::string>{"attention", "norm", "matmul", "copy", "concat", "map.add", "reduce.mean", "view"}
             .contains(op))
      others += count;
  }
  EXPECT_EQ(others, 0) << print_graph(graph);
  int activations = 0, residuals = 0, biases = 0;
  for (const Node& n : graph.nodes) {
    activations += n.then.find(StepKind::act) != nullptr;
    residuals += n.then.find(StepKind::residual) != nullptr;
    biases += n.then.find(StepKind::bias) != nullptr;
    const Step* act = n.then.find(StepKind::act);
    EXPECT_TRUE(act == nullptr || act->fn == (pooled ? Unary::gelu_tanh : Unary::gelu_erf)) << n.name;
  }
  EXPECT_EQ(activations, kDepth);
  EXPECT_EQ(residuals, 2 * kDepth + (pooled ? 1 : 0))
      << "without a class token the position embedding is a residual, too";
  EXPECT_EQ(biases, counts["matmul"]);
}

TEST_P(ExportTest, NamesLayersAsTheModelDoes) {
  std::set<std::string> want = {"patch_embed.proj", "norm", "head"};
  for (int i = 0; i < kDepth; ++i) {
    const std::string block = cat("blocks.", i, ".");
    for (const char* layer : {"norm1", "attn", "norm2", "mlp.fc1", "mlp.fc2"}) want.insert(block + layer);
    if (GetParam().model == "timm") want.insert({block + "attn.qkv", block + "attn.proj"});
    if (GetParam().model == "pool")
      want.insert({block + "attn.q", block + "attn.k", block + "attn.v", block + "attn.proj"});
    if (GetParam().model == "deit")
      want.insert({block + "attn.query", block + "attn.key", block + "attn.value", block + "attn.dense"});
  }
  const Graph graph = canonical(GetParam(), 1);
  std::set<std::string> have, weights, wanted_weights;
  for (const Node& n : graph.nodes) {
    if (n.op == "matmul" || n.op == "norm" || n.op == "attention") have.insert(n.name);
    if (n.op != "matmul") continue;
    weights.insert(graph.at(n.inputs[1]).name);
    wanted_weights.insert(n.name + ".weight");
  }
  EXPECT_EQ(have, want);
  EXPECT_EQ(weights, wanted_weights);
  EXPECT_EQ(graph.at(graph.inputs[0]).name, "image");
  EXPECT_EQ(graph.at(graph.outputs[0]).name, "logits");
  EXPECT_EQ(graph.at(graph.outputs[0]).type.shape, (Shape{1, 10}));
}

TEST_P(ExportTest, ReadsBackFromText) {
  const Graph graph = canonical(GetParam(), 2);
  const auto again = parse_graph(print_graph(graph, true));
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(print_graph(*again, true), print_graph(graph, true));
  const auto in = testing::random_inputs(graph, 3);
  const auto a = testing::run_graph(graph, in), b = testing::run_graph(*again, in);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ((*a)[0], (*b)[0]);
}

INSTANTIATE_TEST_SUITE_P(Files, ExportTest, ::testing::ValuesIn(exports()),
                         [](const auto& info) { return info.param.file(); });

TEST(Import, FixesTheBatch) {
  const std::string file = kFolder + "timm_ts17.onnx";
  const auto open = import_onnx(file, {});
  EXPECT_EQ(open.status().code(), Code::kBadInput);
  EXPECT_NE(open.status().message().find("[batch,3,16,16]"), std::string::npos) << open.status().message();
  EXPECT_EQ(import_onnx(file, {.batch = -1, .shapes = {}}).status().code(), Code::kUsage);
  const auto shaped = import_onnx(file, {.batch = 0, .shapes = {{"image", {5, 3, 16, 16}}}});
  ASSERT_TRUE(shaped.ok()) << shaped.status().message();
  EXPECT_EQ(shaped->at(shaped->outputs[0]).type.shape, (Shape{5, 10}));
  EXPECT_FALSE(import_onnx(file, {.batch = 0, .shapes = {{"image", {5, 3, 18, 16}}}}).ok()) << "the model says 16";
  EXPECT_FALSE(import_onnx(file, {.batch = 1, .shapes = {{"picture", {5, 3, 16, 16}}}}).ok()) << "no such input";
}

TEST(Import, SaysWhichFileIsMissing) {
  const auto graph = import_onnx(kFolder + "nothing.onnx");
  EXPECT_FALSE(graph.ok());
  EXPECT_NE(graph.status().message().find("nothing.onnx"), std::string::npos);
}

}  // namespace
}  // namespace tessera
