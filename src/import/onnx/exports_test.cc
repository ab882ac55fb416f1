// SPDX-License-Identifier: Apache-2.0
// Transformers as PyTorch's two exporters write them (tests/data/models/make.py): numbers as ONNX Runtime's, op by op
// and recognised, on `ref` and on the CPU; structure as tests/data/models/counts.txt says.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "compile/compile.h"
#include "import/onnx/onnx.h"
#include "import/onnx/testing_models.h"
#include "io/mmap.h"
#include "io/npz.h"
#include "ir/text.h"
#include "rewrite/canonicalise.h"
#include "runtime/executor.h"
#include "testing/run_graph.h"

namespace tessera {
namespace {

const std::string kFolder = TS_SOURCE_DIR "/tests/data/models/";

std::vector<std::string> exports() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".onnx") out.push_back(entry.path().stem());
  }
  std::sort(out.begin(), out.end());
  return out;
}

struct Fixture {
  std::map<std::string, Array> arrays;  // inputs by name, outputs as expected_<name>

  explicit Fixture(const std::string& name) {
    auto read = read_npz(kFolder + name + ".npz");
    EXPECT_TRUE(read.ok()) << read.status().message();
    if (!read.ok()) return;
    for (Array& a : *read) arrays[a.name] = std::move(a);
  }

  OnnxOptions options() const {
    OnnxOptions o;
    for (const auto& [name, a] : arrays) {
      if (!name.starts_with("expected_")) o.shapes[name] = a.shape;
    }
    return o;
  }

  std::vector<testing::Numbers> inputs(const Graph& graph) const {
    std::vector<testing::Numbers> out;
    for (ValueId id : graph.inputs) out.push_back(numbers_of(arrays.at(graph.at(id).name)));
    return out;
  }
};

Graph imported(const std::string& name, const OnnxOptions& options) {
  auto graph = import_onnx(kFolder + name + ".onnx", options);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  return graph.ok() ? *graph : Graph{};
}

Graph canonical(Graph graph) {
  const Status status = canonicalise(graph);
  EXPECT_TRUE(status.ok()) << status.message();
  return graph;
}

// One plan, built and run as an engine's would be.
Result<std::vector<testing::Numbers>> run_on(Arch target, const Graph& graph, const std::vector<testing::Numbers>& in) {
  Engine engine;
  ConstantPool pool(engine.constants);
  LowerOptions options;
  options.plan.target = target;
  options.types.precision = "fp32";
  TS_ASSIGN(const Plan plan, lower(graph, options, pool));
  TS_ASSIGN(const auto executor, bind(engine, plan));
  std::vector<Buffer> buffers;
  std::vector<const void*> ins;
  std::vector<void*> outs;
  for (size_t i = 0; i < in.size(); ++i) {
    const Element e = graph.at(graph.inputs[i]).type.quant.element;
    const int64_t n = static_cast<int64_t>(in[i].size());
    buffers.emplace_back(static_cast<size_t>(packed_bytes(e, n)));
    info(e).encode_f64(in[i].data(), n, buffers.back().data(), 0);
    ins.push_back(buffers.back().data());
  }
  for (ValueId id : graph.outputs) {
    buffers.emplace_back(
        static_cast<size_t>(packed_bytes(graph.at(id).type.quant.element, elements(graph.at(id).type.shape))));
    std::fill_n(buffers.back().data(), buffers.back().size(), uint8_t{0xff});
    outs.push_back(buffers.back().data());
  }
  TS_TRY(executor->run(ins, outs));
  std::vector<testing::Numbers> results;
  for (size_t i = 0; i < outs.size(); ++i) {
    const Type& type = graph.at(graph.outputs[i]).type;
    results.emplace_back(static_cast<size_t>(elements(type.shape)));
    info(type.quant.element).decode_f64(outs[i], 0, elements(type.shape), results.back().data());
  }
  return results;
}

// Both sides round every stored value to f32; some 60 roundings deep, with the sums of 64 terms inside ORT, stay under
// 1e-5. A file in 16 bits has its constants rounded to them, a root of 2 of 1.4140625: what is recognised computes with
// the number that was meant, one rounding of that type away.
double bound(const std::string& file, bool recognised) {
  if (recognised && file.find("_half_") != std::string::npos) return 0x1p-11;
  if (recognised && file.find("_bf16_") != std::string::npos) return 0x1p-8;
  return 1e-5;
}

class ExportTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ExportTest, ComputesWhatOnnxRuntimeDoes) {
  const Fixture fixture(GetParam());
  const Graph before = imported(GetParam(), fixture.options()), after = canonical(before);
  ASSERT_FALSE(before.outputs.empty());
  const auto in = fixture.inputs(before);
  const std::pair<const char*, Result<std::vector<testing::Numbers>>> runs[] = {
      {"op by op", testing::run_graph(before, in)},
      {"recognised", testing::run_graph(after, in)},
      {"ref", run_on(Arch::ref, after, in)},
      {"cpu", run_on(Arch::cpu, after, in)},
  };
  for (const auto& [how, results] : runs) {
    ASSERT_TRUE(results.ok()) << how << ": " << results.status().message();
    for (size_t i = 0; i < before.outputs.size(); ++i) {
      const Array& want = fixture.arrays.at("expected_" + before.at(before.outputs[i]).name);
      EXPECT_EQ(before.at(before.outputs[i]).type.shape, want.shape) << how;
      EXPECT_LE(testing::relative_error((*results)[i], numbers_of(want)), bound(GetParam(), how != runs[0].first))
          << how << ", output " << want.name;
    }
  }
}

// counts.txt: a line per file, "vit_ts14 attention=2 norm=5 then.gelu_erf=2 ...": nodes of each op after canonicalise
// and activations that are steps of programs. What a line does not name must not occur.
std::map<std::string, int> counted(const Graph& graph) {
  std::map<std::string, int> counts;
  for (const auto& [op, count] : testing::count_ops(graph)) {
    if (op != "view") counts[op] = count;
  }
  for (const Node& n : graph.nodes) {
    if (const Step* act = n.then.find(StepKind::act)) ++counts[cat("then.", name_of(act->fn))];
  }
  return counts;
}

std::map<std::string, std::map<std::string, int>> wanted_counts() {
  std::map<std::string, std::map<std::string, int>> out;
  std::ifstream file(kFolder + "counts.txt");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, word;
    if (!(words >> name) || name.starts_with("#")) continue;
    auto& counts = out[name];
    while (words >> word) counts[word.substr(0, word.find('='))] = std::stoi(word.substr(word.find('=') + 1));
  }
  return out;
}

std::string shown(const std::map<std::string, int>& counts) {
  std::string out;
  for (const auto& [op, count] : counts) out += cat(" ", op, "=", count);
  return out;
}

TEST_P(ExportTest, HasTheOpsOfTheTable) {
  const Fixture fixture(GetParam());
  const Graph graph = canonical(imported(GetParam(), fixture.options()));
  const auto wanted = wanted_counts();
  const auto line = wanted.find(GetParam());
  EXPECT_EQ(GetParam() + shown(counted(graph)), GetParam() + (line == wanted.end() ? "" : shown(line->second)));
}

TEST_P(ExportTest, ReadsBackFromText) {
  const Fixture fixture(GetParam());
  const Graph graph = canonical(imported(GetParam(), fixture.options()));
  const auto again = parse_graph(print_graph(graph, true));
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(print_graph(*again, true), print_graph(graph, true));
  const auto in = fixture.inputs(graph);
  const auto a = testing::run_graph(graph, in), b = testing::run_graph(*again, in);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ((*a)[0], (*b)[0]);
}

INSTANTIATE_TEST_SUITE_P(Files, ExportTest, ::testing::ValuesIn(exports()),
                         [](const auto& info) { return info.param; });

TEST(Exports, TheTableNamesFilesThatAreThere) {
  const auto names = exports();
  for (const auto& [name, counts] : wanted_counts())
    EXPECT_TRUE(std::find(names.begin(), names.end(), name) != names.end()) << name;
}

// Weights as Constant nodes instead of initialisers: the same graph.
TEST(Exports, WeightsMayBeConstantNodes) {
  for (const char* name : {"vit_dyn18", "llama_ts17"}) {
    const auto file = map_file(kFolder + name + ".onnx");
    ASSERT_TRUE(file.ok());
    onnx::ModelProto model;
    ASSERT_TRUE(model.ParseFromArray(file->data(), static_cast<int>(file->size())));
    onnx::GraphProto& graph = *model.mutable_graph();
    std::vector<onnx::NodeProto> nodes;
    for (const auto& t : graph.initializer()) {
      onnx::NodeProto& n = nodes.emplace_back();
      n.set_op_type("Constant");
      n.add_output(t.name());
      auto* value = n.add_attribute();
      value->set_name("value");
      value->set_type(onnx::AttributeProto::TENSOR);
      *value->mutable_t() = t;
      value->mutable_t()->clear_name();
    }
    nodes.insert(nodes.end(), graph.node().begin(), graph.node().end());
    graph.clear_initializer();
    graph.clear_node();
    for (const onnx::NodeProto& n : nodes) *graph.add_node() = n;
    const OnnxOptions options = Fixture(name).options();
    const auto moved = import_onnx(testing::bytes_of(model.SerializeAsString()), name, options);
    ASSERT_TRUE(moved.ok()) << moved.status().message();
    EXPECT_EQ(print_graph(canonical(*moved)), print_graph(canonical(imported(name, options))));
  }
}

class NamesTest : public ::testing::TestWithParam<const char*> {};

TEST_P(NamesTest, LayersAreCalledAsInTheModel) {
  std::set<std::string> want = {"patch_embed.proj", "norm", "head"};
  for (int i = 0; i < 2; ++i) {
    for (const char* layer : {"norm1", "attn", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2"})
      want.insert(cat("blocks.", i, ".", layer));
  }
  const Graph graph = canonical(imported(GetParam(), {.batch = 1, .shapes = {}}));
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

INSTANTIATE_TEST_SUITE_P(Files, NamesTest,
                         ::testing::Values("vit_ts14", "vit_ts17", "vit_dyn18", "vit_dyn20", "vit_dyn23"),
                         [](const auto& info) { return info.param; });

TEST(Import, FixesTheBatch) {
  const std::string file = kFolder + "vit_ts17.onnx";
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

TEST(Import, FixesTheLengthOfATextByOneOfItsInputs) {
  const std::string file = kFolder + "bert_ts17.onnx";
  const auto open = import_onnx(file, {.batch = 2, .shapes = {}});
  EXPECT_NE(open.status().message().find("axis 1 is open in [batch,sequence]"), std::string::npos);
  for (const int64_t length : {5, 8}) {
    const auto graph = import_onnx(file, {.batch = 0, .shapes = {{"attention_mask", {3, length}}}});
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    for (ValueId id : graph->inputs) EXPECT_EQ(graph->at(id).type.shape, (Shape{3, length}));
    EXPECT_EQ(graph->at(graph->outputs[0]).type.shape, (Shape{3, 5}));
  }
  const auto conflict = import_onnx(file, {.batch = 0, .shapes = {{"attention_mask", {3, 5}}, {"input_ids", {3, 6}}}});
  EXPECT_NE(conflict.status().message().find("does not fit"), std::string::npos);
}

TEST(Import, SaysWhichFileIsMissing) {
  const auto graph = import_onnx(kFolder + "nothing.onnx");
  EXPECT_FALSE(graph.ok());
  EXPECT_NE(graph.status().message().find("nothing.onnx"), std::string::npos);
}

}  // namespace
}  // namespace tessera
