// SPDX-License-Identifier: Apache-2.0
// Scales and codes that cannot be meant, each refused in one sentence that names the node or the initialiser.
#include <gtest/gtest.h>

#include <cmath>

#include "import/onnx/onnx.h"
#include "import/onnx/testing_models.h"
#include "rewrite/canonicalise.h"

namespace tessera {
namespace {

using testing::add_node;
using testing::add_tensor;
using testing::bytes_of;
using testing::empty_model;

void set_integer(onnx::NodeProto* n, const char* key, int64_t value) {
  auto* a = n->add_attribute();
  a->set_name(key);
  a->set_type(onnx::AttributeProto::INT);
  a->set_i(value);
}

// z = x w^T for x [2,4] and codes w [4,3] in FLOAT8E4M3FN with one scale per output.
struct Model {
  onnx::ModelProto m = empty_model(23);
  onnx::TensorProto *codes, *scale;
  onnx::NodeProto* dequantize;

  Model() {
    codes = add_tensor(m, "w", 17, {4, 3});
    codes->set_raw_data(std::string(12, '\x38'));
    scale = add_tensor(m, "s", onnx::TensorProto::FLOAT, {3});
    for (float s : {0.5f, 1.0f, 2.0f}) scale->add_float_data(s);
    dequantize = add_node(m, "DequantizeLinear", {"w", "s"}, "d");
    set_integer(dequantize, "axis", 1);
    add_node(m, "MatMul", {"x", "d"}, "z");
  }

  std::string error() const {
    auto graph = import_onnx(bytes_of(m.SerializeAsString()), "g");
    if (!graph.ok()) return graph.status().message();
    const Status status = canonicalise(*graph);
    return status.ok() ? "" : status.message();
  }
};

void expect_error(const Model& model, std::initializer_list<const char*> parts) {
  const std::string error = model.error();
  for (const char* part : parts) EXPECT_NE(error.find(part), std::string::npos) << "'" << part << "' not in: " << error;
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
}

TEST(BadScales, TheModelItselfIsFine) { EXPECT_EQ(Model().error(), ""); }

TEST(BadScales, NumbersThatAreNoScale) {
  for (const float bad : {0.0f, -1.0f, NAN, INFINITY}) {
    Model model;
    model.scale->set_float_data(1, bad);
    expect_error(model, {"node_d", "scale 's'", "number 1 of 3", "positive and finite"});
  }
}

TEST(BadScales, Shapes) {
  Model model;
  model.scale->set_dims(0, 2);
  model.scale->mutable_float_data()->Truncate(2);
  expect_error(model, {"node_d", "scale 's'", "[2]", "[4,3]"});
  Model blocks;
  set_integer(blocks.dequantize, "block_size", 2);
  expect_error(blocks, {"node_d", "blocks of 2"});
}

// As NVFP4 is written in the standard's words, but for shorter blocks: codes in FLOAT4E2M1, one scale for each two.
TEST(BadScales, BlocksWithoutTheirSize) {
  const auto nvfp4 = [](int64_t block) {
    Model model;
    model.m = empty_model(23);
    add_tensor(model.m, "w", 23, {3, 4})->set_raw_data(std::string(6, '\x22'));
    add_tensor(model.m, "s", onnx::TensorProto::FLOAT8E4M3FN, {3, 2})->set_raw_data(std::string(6, '\x38'));
    auto* dequantize = add_node(model.m, "DequantizeLinear", {"w", "s"}, "d");
    set_integer(dequantize, "axis", 1);
    set_integer(dequantize, "block_size", block);
    add_node(model.m, "Transpose", {"d"}, "t");
    add_node(model.m, "MatMul", {"x", "t"}, "z");
    return model;
  };
  EXPECT_EQ(nvfp4(2).error(), "");
  expect_error(nvfp4(0), {"node_d", "scale 's'", "[3,2]", "[3,4]", "block_size is 0"});
}

TEST(BadScales, NobodyReads) {
  Model model;
  add_node(model.m, "DequantizeLinear", {"w", "s"}, "unread")->CopyFrom(*model.dequantize);
  model.m.mutable_graph()->mutable_node(2)->set_output(0, "unread");
  expect_error(model, {"is not read", "'s'"});
}

TEST(BadScales, NotKnownAtBuild) {
  Model model;
  model.dequantize->set_input(1, "x");
  expect_error(model, {"node_d", "scale 'x'", "known at build"});
}

TEST(BadScales, CodesThatAreNoNumbers) {
  Model model;
  (*model.codes->mutable_raw_data())[5] = '\x7f';
  expect_error(model, {"codes 'w'", "nan", "finite"});
}

TEST(BadScales, ZeroPoints) {
  Model model;
  model.codes->set_data_type(onnx::TensorProto::INT8);
  auto* zero = add_tensor(model.m, "zero", onnx::TensorProto::INT8, {3});
  zero->set_raw_data(std::string("\x03\x03\x03"));
  model.dequantize->add_input("zero");
  expect_error(model, {"node_d", "zero point 3", "symmetric"});
  zero->set_raw_data(std::string("\x00\x03\x00", 3));
  expect_error(model, {"zero point 'zero'", "differs"});
  // Zero points of floats are floats.
  const struct {
    int type;
    char half, one;
  } floats[] = {{17, '\x30', '\x38'}, {19, '\x38', '\x3c'}};
  for (const auto& [type, half, one] : floats) {
    Model quantized;
    quantized.codes->set_data_type(type);
    auto* point = add_tensor(quantized.m, "zero", type, {3});
    quantized.dequantize->add_input("zero");
    point->set_raw_data(std::string(3, half));
    expect_error(quantized, {"node_d", "zero point 'zero' is 0.5", "symmetric"});
    point->set_raw_data(std::string(3, one));
    expect_error(quantized, {"node_d", "zero point 1", "symmetric"});
    point->set_raw_data(std::string(3, '\0'));
    EXPECT_EQ(quantized.error(), "");
  }
}

TEST(BadScales, BlocksAlongTheOutputs) {
  Model model;  // [4,3] is [k,n]: blocks along axis 1 run along n
  model.scale->clear_dims();
  model.scale->clear_float_data();
  for (int64_t d : {4, 2}) model.scale->add_dims(d);
  for (int i = 0; i < 8; ++i) model.scale->add_float_data(1.0f + static_cast<float>(i));
  set_integer(model.dequantize, "block_size", 2);
  expect_error(model, {"weight 'w'", "blocks of 2", "along the inputs (k)"});
}

TEST(BadScales, ScalesAlongTheInputs) {
  Model model;
  model.dequantize->mutable_attribute(0)->set_i(0);
  model.scale->set_dims(0, 4);
  model.scale->add_float_data(3);
  expect_error(model, {"weight 'w'", "one scale per output"});
}

TEST(BadScales, CodesReadAsNumbers) {
  Model model;
  add_node(model.m, "Relu", {"w"}, "r");
  expect_error(model, {"node_r", "'w'", "holds codes", "DequantizeLinear"});
}

// x through codes to the product: s0 divides, s1 multiplies.
struct Rounded : Model {
  onnx::NodeProto *quantize, *back;
  Rounded() {
    add_tensor(m, "s0", onnx::TensorProto::FLOAT, {})->add_float_data(0.5f);
    add_tensor(m, "s1", onnx::TensorProto::FLOAT, {})->add_float_data(0.25f);
    add_tensor(m, "zero", 17, {})->set_raw_data(std::string(1, '\0'));
    m.mutable_graph()->clear_node();
    quantize = add_node(m, "QuantizeLinear", {"x", "s0", "zero"}, "q");
    back = add_node(m, "DequantizeLinear", {"q", "s0", "zero"}, "y");
    auto* d = add_node(m, "DequantizeLinear", {"w", "s"}, "d");
    set_integer(d, "axis", 1);
    add_node(m, "MatMul", {"y", "d"}, "z");
  }
};

TEST(BadScales, AnotherScaleThanTheOneDividedBy) {
  Rounded model;
  EXPECT_EQ(model.error(), "");
  model.back->set_input(1, "s1");
  expect_error(model, {"node_y", "scale 's1'", "made with"});
}

TEST(BadScales, OverflowToNan) {
  Rounded model;
  set_integer(model.quantize, "saturate", 0);
  expect_error(model, {"node_q", "saturate = 1 is supported"});
}

TEST(BadScales, CodesAsAResult) {
  Rounded model;
  model.m.mutable_graph()->add_output()->set_name("q");
  expect_error(model, {"output 'q'", "codes", "DequantizeLinear"});
}

}  // namespace
}  // namespace tessera
