// SPDX-License-Identifier: Apache-2.0
// Files that are damaged, hostile or beyond what is supported: one clear error each, and never a crash.
#include <gtest/gtest.h>

#include <random>

#include "import/onnx/onnx.h"
#include "import/onnx/testing_models.h"
#include "io/mmap.h"
#include "rewrite/canonicalise.h"
#include "testing/run_graph.h"

namespace tessera {
namespace {

using testing::add_node;
using testing::add_tensor;
using testing::bytes_of;
using testing::empty_model;

// Imports, and where that works brings into canonical form: whatever the file says, both must come back.
Status try_out(const Bytes& file) {
  auto graph = import_onnx(file, "bad", {.batch = 1, .shapes = {}});
  if (!graph.ok()) return graph.status();
  return canonicalise(*graph);
}

class Damage : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto map = map_file(std::string(TS_SOURCE_DIR "/tests/data/models/") + GetParam() + ".onnx");
    ASSERT_TRUE(map.ok()) << map.status().message();
    file_ = *map;
    ASSERT_TRUE(try_out(file_).ok());
  }
  Bytes file_;
};

TEST_P(Damage, CutShort) {
  for (int part = 0; part < 50; ++part) {
    const Status status = try_out(file_.slice(0, file_.size() * static_cast<size_t>(part) / 50));
    EXPECT_EQ(status.code(), Code::kBadInput) << part << "/50 of the file";
    EXPECT_FALSE(status.message().empty());
  }
}

TEST_P(Damage, FlippedBits) {
  int accepted = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 random(seed);
    std::string text(file_.span().begin(), file_.span().end());
    // Most of a file is weights, where a flip only changes a number: half of the seeds flip names, shapes and
    // attributes near the ends of the file.
    const size_t edge = text.size() / 8;
    for (int flip = 0; flip < 1 + static_cast<int>(seed % 4); ++flip) {
      const size_t at = seed % 2 == 0       ? random() % text.size()
                        : random() % 2 == 0 ? random() % edge
                                            : text.size() - 1 - random() % edge;
      text[at] = static_cast<char>(text[at] ^ (1 << random() % 8));
    }
    const Status status = try_out(bytes_of(text));
    accepted += status.ok();
    EXPECT_TRUE(status.ok() || status.code() == Code::kBadInput) << status.message();
  }
  EXPECT_GT(accepted, 0) << "flips in weights are not errors";
  EXPECT_LT(accepted, 500) << "flips in structure are";
}

INSTANTIATE_TEST_SUITE_P(Files, Damage, ::testing::Values("vit_ts14", "siglip_dyn18", "clip_text_dyn23", "llama_ts17"),
                         [](const auto& info) { return info.param; });

TEST(BadInput, NotAModel) {
  EXPECT_FALSE(try_out(bytes_of("")).ok());
  EXPECT_FALSE(try_out(bytes_of("hello, this is text")).ok());
  EXPECT_FALSE(try_out(bytes_of(std::string(4096, '\xff'))).ok());
}

std::string error_of(const onnx::ModelProto& m) {
  auto graph = import_onnx(bytes_of(m.SerializeAsString()), "bad");
  EXPECT_EQ(graph.status().code(), Code::kBadInput);
  return graph.status().message();
}

void expect_error(const onnx::ModelProto& m, const std::vector<std::string>& words) {
  const std::string message = error_of(m);
  for (const std::string& w : words)
    EXPECT_NE(message.find(w), std::string::npos) << "'" << w << "' is not in: " << message;
}

TEST(BadInput, ListsEveryUnsupportedOperator) {
  auto m = empty_model();
  add_node(m, "Bernoulli", {"x"}, "a");
  add_node(m, "Relu", {"a"}, "b");
  add_node(m, "FusedMatMul", {"b"}, "z")->set_domain("com.microsoft");
  expect_error(m, {"2 operators", "Bernoulli", "node_a", "opset 17", "com.microsoft.FusedMatMul", "node_z"});
}

TEST(BadInput, ListsAnOperatorOnce) {
  auto m = empty_model();
  for (int i = 0; i < 200; ++i) add_node(m, i % 2 == 0 ? "Bernoulli" : "Multinomial", {"x"}, cat("a", i));
  add_node(m, "Relu", {"x"}, "z");
  expect_error(m, {"2 operators are not supported (200 nodes): Bernoulli (100 times, first node 'node_a0', opset 17), "
                   "Multinomial (100 times, first node 'node_a1', opset 17)"});
  EXPECT_LT(error_of(m).size(), 200u);
  auto many = empty_model();
  for (int i = 0; i < 1000; ++i) add_node(many, cat("Op", i), {"x"}, cat("a", i));
  expect_error(many, {"1000 operators", "and 950 more"});
  EXPECT_LT(error_of(many).size(), 4000u);
}

// What helps stands once, whatever the number of nodes, and only where it does.
TEST(BadInput, SaysWhatHelps) {
  auto m = empty_model();
  add_node(m, "RandomNormalLike", {"x"}, "a");
  add_node(m, "Unique", {"x"}, "b");
  add_node(m, "Loop", {"x"}, "c");
  add_node(m, "FusedMatMul", {"x", "x"}, "d")->set_domain("com.microsoft");
  add_node(m, "Shape", {"x"}, "s");
  add_node(m, "Constant", {}, "k")->add_attribute()->set_name("value_float");
  m.mutable_graph()->mutable_node(5)->mutable_attribute(0)->set_type(onnx::AttributeProto::FLOAT);
  add_node(m, "Det", {"k"}, "e");
  add_node(m, "Relu", {"x"}, "z");
  expect_error(m, {"random numbers come in as an input", "end the export before them", "traced (dynamo=False)",
                   "give the model from before it", "folded by onnxsim (onnxsim MODEL.onnx FOLDED.onnx)"});
  auto other = empty_model();
  add_node(other, "Det", {"x"}, "z");
  EXPECT_EQ(error_of(other).find("onnxsim"), std::string::npos) << error_of(other);
}

// One refusal has the operators that are missing and the nodes that cannot be built.
TEST(BadInput, TellsOperatorsAndNodesAtOnce) {
  auto m = empty_model();
  add_node(m, "Unique", {"x"}, "a");
  add_node(m, "Conv", {"x", "x"}, "b");
  add_node(m, "Cast", {"x"}, "z");
  expect_error(m, {"Unique", "'node_b' (Conv)", "'node_z' (Cast)"});
}

TEST(BadInput, SizesOfInputs) {
  for (const int64_t size : {0, -1, -7}) {
    auto m = empty_model();
    m.mutable_graph()
        ->mutable_input(0)
        ->mutable_type()
        ->mutable_tensor_type()
        ->mutable_shape()
        ->mutable_dim(1)
        ->set_dim_value(size);
    add_node(m, "Relu", {"x"}, "z");
    expect_error(m, {"input 'x'", cat("axis 1 is of size ", size)});
  }
}

TEST(BadInput, NamesThatAreNotUtf8) {
  auto m = empty_model();
  m.mutable_graph()->mutable_input(0)->set_name("x\xff\xc3\xa9\xc3");
  m.mutable_graph()->mutable_output(0)->set_name("z\xed\xa0\x80");
  add_node(m, "Relu", {"x\xff\xc3\xa9\xc3"}, "z\xed\xa0\x80");
  const auto graph = import_onnx(bytes_of(m.SerializeAsString()), "names");
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  EXPECT_EQ(graph->at(graph->inputs[0]).name, "x%FF\xc3\xa9%C3") << "the accented letter is UTF-8";
  EXPECT_EQ(graph->at(graph->outputs[0]).name, "z%ED%A0%80") << "half of a surrogate pair is not";
  auto unknown = empty_model();
  add_node(unknown, "Bad\xfe", {"x"}, std::string(150, 'z') + "\xfe");
  expect_error(unknown, {"Bad%FE"});
  EXPECT_EQ(error_of(unknown).find('\xfe'), std::string::npos);
}

TEST(BadInput, Opsets) {
  auto old = empty_model(9);
  add_node(old, "Relu", {"x"}, "z");
  expect_error(old, {"opset 9", "11 to 27"});
  auto later = empty_model(28);
  add_node(later, "Relu", {"x"}, "z");
  expect_error(later, {"opset 28", "11 to 27"});
  auto none = empty_model();
  none.clear_opset_import();
  add_node(none, "Relu", {"x"}, "z");
  expect_error(none, {"opset"});
}

TEST(BadInput, ValuesThatNobodyMakesOrTwoMake) {
  auto cycle = empty_model();
  add_node(cycle, "Add", {"x", "b"}, "a");
  add_node(cycle, "Relu", {"a"}, "b");
  add_node(cycle, "Relu", {"b"}, "z");
  expect_error(cycle, {"'b'", "no earlier node", "a cycle"});
  auto itself = empty_model();
  add_node(itself, "Add", {"x", "z"}, "z");
  expect_error(itself, {"'z'", "a cycle"});
  auto nobody = empty_model();
  add_node(nobody, "Add", {"x", "y"}, "z");
  expect_error(nobody, {"'y'", "no earlier node"});
  EXPECT_EQ(error_of(nobody).find("cycle"), std::string::npos);
  auto twice = empty_model();
  add_node(twice, "Relu", {"x"}, "z");
  add_node(twice, "Neg", {"x"}, "z");
  expect_error(twice, {"'z'", "twice"});
  auto missing = empty_model();
  add_node(missing, "Relu", {"x"}, "y");
  expect_error(missing, {"output 'z'"});
  auto lacking = empty_model();
  add_node(lacking, "Add", {"x"}, "z");
  expect_error(lacking, {"operand 1 is missing"});
}

TEST(BadInput, Tensors) {
  const auto with = [](auto&& fill) {
    auto m = empty_model();
    fill(add_tensor(m, "w", onnx::TensorProto::FLOAT, {4, 3}));
    add_node(m, "MatMul", {"x", "w"}, "z");
    return m;
  };
  expect_error(with([](auto* t) { t->set_raw_data(std::string(47, 'a')); }), {"'w'", "47 bytes", "takes 48"});
  expect_error(with([](auto* t) { t->add_float_data(1); }), {"'w'", "1 numbers", "takes 12"});
  expect_error(with([](auto*) {}), {"'w'", "0 numbers"});
  expect_error(with([](auto* t) { t->set_data_type(onnx::TensorProto::STRING); }), {"'w'", "STRING"});
  expect_error(with([](auto* t) { t->set_data_type(77); }), {"'w'", "data type 77"});
  expect_error(with([](auto* t) { t->set_dims(0, -4); }), {"'w'", "[-4,3]"});
  expect_error(with([](auto* t) {
                 t->set_dims(0, int64_t{1} << 40);
                 t->set_dims(1, int64_t{1} << 40);
               }),
               {"'w'", "too large"});
  expect_error(with([](auto* t) {
                 t->set_raw_data(std::string(48, 'a'));
                 t->set_dims(0, 3), t->set_dims(1, 4);
               }),
               {"node_z", "[2,4]"});
}

TEST(BadInput, Attributes) {
  auto word = empty_model();
  auto* a = add_node(word, "Transpose", {"x"}, "z")->add_attribute();
  a->set_name("perm");
  a->set_type(onnx::AttributeProto::STRING);
  a->set_s("01");
  expect_error(word, {"node_z", "perm", "list of integers"});
  for (const std::vector<int64_t>& perm : {std::vector<int64_t>{0, 0}, {0, 5}, {0}}) {
    auto m = empty_model();
    auto* p = add_node(m, "Transpose", {"x"}, "z")->add_attribute();
    p->set_name("perm");
    p->set_type(onnx::AttributeProto::INTS);
    for (int64_t axis : perm) p->add_ints(axis);
    expect_error(m, {"node_z"});
  }
}

TEST(BadInput, ShapesThatDependOnTheInput) {
  auto m = empty_model();
  auto* to = add_node(m, "Cast", {"x"}, "i")->add_attribute();
  to->set_name("to");
  to->set_type(onnx::AttributeProto::INT);
  to->set_i(onnx::TensorProto::INT64);
  add_node(m, "Reshape", {"x", "i"}, "z");
  expect_error(m, {"node_z", "known at build"});
}

// What is no mistake: an input whose first axis is fixed beside one whose batch is open; weights that the exporter
// merged.
TEST(Import, FixesTheBatchWhereItIsOpen) {
  auto m = empty_model();
  auto* p = m.mutable_graph()->add_input();
  *p = m.graph().input(0);
  p->set_name("p");
  p->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_value(1);
  m.mutable_graph()
      ->mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->mutable_dim(0)
      ->set_dim_param("batch");
  add_node(m, "Add", {"x", "p"}, "z");
  const auto graph = import_onnx(bytes_of(m.SerializeAsString()), "positions", {.batch = 3, .shapes = {}});
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  EXPECT_EQ(graph->at(graph->inputs[1]).type.shape, (Shape{1, 4}));
  EXPECT_EQ(graph->at(graph->outputs[0]).type.shape, (Shape{3, 4}));
}

TEST(Import, NamesLayersByTheirModuleWhereWeightsAreMerged) {
  auto m = empty_model();
  auto* gain = add_tensor(m, "blocks.0.norm1.weight", onnx::TensorProto::FLOAT, {4});
  for (int i = 0; i < 4; ++i) gain->add_float_data(1);
  // As the TorchScript exporter writes it: by the name of the node, or by an alias; as dynamo does: by its note.
  add_node(m, "LayerNormalization", {"x", "blocks.0.norm1.weight"}, "a")->set_name("/blocks/blocks.0/norm1/LayerNorm");
  add_node(m, "LayerNormalization", {"a", "blocks.0.norm1.weight"}, "b")->set_name("/blocks/blocks.0/norm2/LayerNorm");
  add_node(m, "Identity", {"blocks.0.norm1.weight"}, "blocks.1.norm1.weight");
  add_node(m, "LayerNormalization", {"b", "blocks.1.norm1.weight"}, "c");
  auto* note = add_node(m, "LayerNormalization", {"c", "blocks.0.norm1.weight"}, "z")->add_metadata_props();
  note->set_key("pkg.torch.onnx.name_scopes");
  note->set_value("['', 'blocks', 'blocks.1', 'blocks.1.norm2', 'layer_norm']");
  const auto graph = import_onnx(bytes_of(m.SerializeAsString()), "merged");
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  std::vector<std::string> names;
  for (const Node& n : graph->nodes) names.push_back(n.name);
  EXPECT_EQ(names, (std::vector<std::string>{"blocks.0.norm1", "blocks.0.norm2", "blocks.1.norm1", "blocks.1.norm2"}));
}

TEST(Import, WidensHalvesWhereverTheyStand) {
  const auto model = [](int32_t type, const std::vector<uint16_t>& codes, bool raw) {
    auto m = empty_model();
    m.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(type);
    auto* t = add_tensor(m, "w", type, {4});
    if (raw) t->set_raw_data(codes.data(), codes.size() * sizeof(uint16_t));
    for (const uint16_t code : codes) {
      if (!raw) t->add_int32_data(code);
    }
    add_node(m, "Mul", {"x", "w"}, "z");
    return m;
  };
  const std::vector<uint16_t> f16 = {0x3c00, 0xc000, 0x0001, 0x7bff}, bf16 = {0x3f80, 0xc000, 0x3f00, 0x7f00};
  const std::vector<double> f16_numbers = {1, -2, 0x1p-24, 65504}, bf16_numbers = {1, -2, 0.5, 0x1p127};
  for (const bool raw : {false, true}) {
    for (const auto& [m, numbers] : {std::pair(model(onnx::TensorProto::FLOAT16, f16, raw), f16_numbers),
                                     std::pair(model(onnx::TensorProto::BFLOAT16, bf16, raw), bf16_numbers)}) {
      const auto graph = import_onnx(bytes_of(m.SerializeAsString()), "halves");
      ASSERT_TRUE(graph.ok()) << graph.status().message();
      for (const Value& v : graph->values) EXPECT_EQ(v.type.quant, QuantType(Element::f32)) << v.name;
      EXPECT_EQ(graph->numbers(graph->nodes[0].inputs[1]), numbers);
    }
  }
}

TEST(BadInput, ProductsOfTwoFloatTypes) {
  const auto model = [](int32_t type, bool cast) {
    onnx::ModelProto m = empty_model();
    auto* w = add_tensor(m, "w", type, {4, 3});
    w->set_raw_data(std::string(type == onnx::TensorProto::FLOAT ? 48 : 24, '\0'));
    add_node(m, "Transpose", {"x"}, "t");
    add_node(m, "Transpose", {"t"}, "y");
    if (cast) {
      auto* a = add_node(m, "Cast", {"w"}, "c")->add_attribute();
      a->set_name("to");
      a->set_type(onnx::AttributeProto::INT);
      a->set_i(onnx::TensorProto::FLOAT);
    }
    add_node(m, "MatMul", {"y", cast ? "c" : "w"}, "z");
    return m;
  };
  EXPECT_TRUE(import_onnx(bytes_of(model(onnx::TensorProto::FLOAT, false).SerializeAsString()), "g").ok());
  EXPECT_TRUE(import_onnx(bytes_of(model(onnx::TensorProto::FLOAT16, true).SerializeAsString()), "g").ok());
  expect_error(model(onnx::TensorProto::FLOAT16, false),
               {"node_z", "MatMul", "'y' in FLOAT by 'w' in FLOAT16", "Cast"});
  expect_error(model(onnx::TensorProto::BFLOAT16, false), {"node_z", "'y' in FLOAT by 'w' in BFLOAT16"});
}

TEST(BadInput, HugeShapesCostNothing) {
  for (const int64_t size : {int64_t{1} << 39, int64_t{1} << 62, int64_t{-5}}) {
    auto m = empty_model();
    auto* t = add_tensor(m, "s", onnx::TensorProto::INT64, {2});
    t->add_int64_data(size);
    t->add_int64_data(1);
    add_node(m, "ConstantOfShape", {"s"}, "c");
    add_node(m, "Exp", {"c"}, "e");
    add_node(m, "ReduceSum", {"e"}, "r");
    add_node(m, "Add", {"x", "r"}, "z");
    auto graph = import_onnx(bytes_of(m.SerializeAsString()),
                             "huge");  // 2^39 may stay a node; more is an error; neither may allocate it
    EXPECT_TRUE(!graph.ok() || testing::count_ops(*graph)["map.exp"] == 1);
    EXPECT_TRUE(!graph.ok() || size == int64_t{1} << 39);
  }
}

TEST(BadInput, FunctionsThatCallThemselves) {
  auto m = empty_model();
  auto* f = m.add_functions();
  f->set_name("F"), f->set_domain("local");
  f->add_input("a"), f->add_output("r");
  auto* n = f->add_node();
  n->set_op_type("F"), n->set_domain("local");
  n->add_input("a"), n->add_output("r");
  add_node(m, "F", {"x"}, "z")->set_domain("local");
  expect_error(m, {"F", "calls itself"});
}

}  // namespace
}  // namespace tessera
