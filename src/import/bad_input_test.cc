// SPDX-License-Identifier: Apache-2.0
// Files that are damaged, hostile or beyond what is supported: one clear error each, and never a crash.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>

#include "import/onnx.h"
#include "io/mmap.h"
#include "onnx.pb.h"
#include "passes/canonicalise.h"
#include "testing/run_graph.h"

namespace tessera {
namespace {

Bytes bytes_of(const std::string& text) {
  Buffer buffer(text.size());
  std::copy(text.begin(), text.end(), buffer.data());
  return Bytes::own(std::move(buffer));
}

// Imports, and where that works brings into canonical form: whatever the file says, both must come back.
Status try_out(const Bytes& file) {
  auto graph = import_onnx(file, "bad", {.batch = 2, .shapes = {}});
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

INSTANTIATE_TEST_SUITE_P(Files, Damage, ::testing::Values("vit_ts14", "siglip_dyn18", "beit_shared_dyn20"),
                         [](const auto& info) { return info.param; });

TEST(BadInput, NotAModel) {
  EXPECT_FALSE(try_out(bytes_of("")).ok());
  EXPECT_FALSE(try_out(bytes_of("hello, this is text")).ok());
  EXPECT_FALSE(try_out(bytes_of(std::string(4096, '\xff'))).ok());
}

// A model with inputs and outputs set up: x [2,4] -> z.
onnx::ModelProto empty_model(int64_t opset = 17) {
  onnx::ModelProto m;
  m.set_ir_version(8);
  m.add_opset_import()->set_version(opset);
  auto* x = m.mutable_graph()->add_input();
  x->set_name("x");
  x->mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT);
  for (int64_t d : {2, 4}) x->mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(d);
  m.mutable_graph()->add_output()->set_name("z");
  return m;
}

onnx::NodeProto* add_node(onnx::ModelProto& m, const std::string& op, const std::vector<std::string>& in,
                          const std::string& out) {
  auto* n = m.mutable_graph()->add_node();
  n->set_op_type(op);
  n->set_name("node_" + out);
  for (const std::string& i : in) n->add_input(i);
  n->add_output(out);
  return n;
}

onnx::TensorProto* add_tensor(onnx::ModelProto& m, const std::string& name, int32_t type,
                              const std::vector<int64_t>& dims) {
  auto* t = m.mutable_graph()->add_initializer();
  t->set_name(name);
  t->set_data_type(type);
  for (int64_t d : dims) t->add_dims(d);
  return t;
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
  add_node(m, "Einsum", {"x"}, "a");
  add_node(m, "Relu", {"a"}, "b");
  add_node(m, "FusedMatMul", {"b"}, "z")->set_domain("com.microsoft");
  expect_error(m, {"2 operators", "Einsum", "node_a", "opset 17", "com.microsoft.FusedMatMul", "node_z"});
}

TEST(BadInput, Opsets) {
  auto old = empty_model(9);
  add_node(old, "Relu", {"x"}, "z");
  expect_error(old, {"opset 9", "11 to 23"});
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
  expect_error(cycle, {"'b'", "no earlier node"});
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

TEST(BadInput, PaddedConvolution) {
  auto m = empty_model();
  auto* dims = m.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
  dims->clear_dim();
  for (int64_t d : {1, 1, 4, 4}) dims->add_dim()->set_dim_value(d);
  auto* w = add_tensor(m, "w", onnx::TensorProto::FLOAT, {1, 1, 3, 3});
  for (int i = 0; i < 9; ++i) w->add_float_data(1);
  add_node(m, "Conv", {"x", "w"}, "z");
  expect_error(m, {"node_z", "stride equals the kernel", "kernel [3,3]"});
}

// Data beside the model: inside its folder only, and only as much as there is.
class ExternalData : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("tessera_external_" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) + "_" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_ / "model" / "data");
    std::vector<float> numbers(16, 0);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
    for (const char* place : {"model/data/w.bin", "outside.bin"}) {
      std::ofstream(folder_ / place, std::ios::binary).write(reinterpret_cast<const char*>(numbers.data()), 64);
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Result<Graph> import_with(const std::string& location, const std::string& offset, const std::string& length = "48") {
    auto m = empty_model();
    auto* t = add_tensor(m, "w", onnx::TensorProto::FLOAT, {4, 3});
    t->set_data_location(onnx::TensorProto::EXTERNAL);
    for (const auto& [key, value] :
         std::map<std::string, std::string>{{"location", location}, {"offset", offset}, {"length", length}}) {
      auto* entry = t->add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    }
    add_node(m, "MatMul", {"x", "w"}, "z");
    const std::string path = folder_ / "model" / "m.onnx";
    std::ofstream(path, std::ios::binary) << m.SerializeAsString();
    bytes_ = bytes_of(m.SerializeAsString());
    return import_onnx(path);
  }

  std::filesystem::path folder_;
  Bytes bytes_;
};

TEST_F(ExternalData, IsReadFromTheModelsFolder) {
  const auto graph = import_with("data/w.bin", "16");
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  const std::vector<testing::Numbers> in = {{1, 0, 0, 0, 0, 0, 0, 1}};
  const auto out = testing::run_graph(*graph, in);
  ASSERT_TRUE(out.ok());
  EXPECT_EQ((*out)[0], (testing::Numbers{4, 5, 6, 13, 14, 15}));
  EXPECT_NE(import_onnx(bytes_, "from memory").status().message().find("not read from a file"), std::string::npos);
}

TEST_F(ExternalData, IsReadFromNowhereElse) {
  const std::vector<std::string> climbing = {
      "../outside.bin", "data/../../outside.bin", "..", (folder_ / "outside.bin").string(), "", "data\\..\\x"};
  for (const std::string& location : climbing) {
    const auto graph = import_with(location, "0");
    ASSERT_FALSE(graph.ok()) << location;
    EXPECT_NE(graph.status().message().find("must lie in the model's folder"), std::string::npos)
        << graph.status().message();
  }
  EXPECT_FALSE(import_with("data", "0").ok()) << "a folder";
  EXPECT_FALSE(import_with("data/none.bin", "0").ok());
}

TEST_F(ExternalData, MustBeAllThere) {
  for (const char* offset : {"17", "64", "65", "-1", "1x", "9223372036854775807", "99999999999999999999"})
    EXPECT_FALSE(import_with("data/w.bin", offset).ok()) << offset;
  EXPECT_FALSE(import_with("data/w.bin", "0", "47").ok());
}

}  // namespace
}  // namespace tessera
