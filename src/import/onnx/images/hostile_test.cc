// SPDX-License-Identifier: Apache-2.0
// Windows, pools, Resize and If from files that are damaged or hostile: one clear error each, and no work or memory
// out of proportion to the file.
#include "testing/hostile_models.h"

namespace tessera {
namespace {

using namespace testing;  // NOLINT: every name of hostile_models.h

struct ConvCase {
  Ints x = {1, 4, 8, 8}, w = {4, 4, 3, 3};
  Ints strides = {1, 1}, pads = {1, 1, 1, 1}, dilations = {1, 1};
  int64_t group = 1;
};

onnx::ModelProto convolution(const ConvCase& c, const std::string& op = "Conv") {
  auto m = model_of(c.x);
  add_floats(m, "w", c.w);
  auto* n = add_node(m, op, {"x", "w"}, "z");
  set_ints(n, "strides", c.strides);
  set_ints(n, "pads", c.pads);
  set_ints(n, "dilations", c.dilations);
  set_int(n, "group", c.group);
  return m;
}

TEST(HostileImages, Convolutions) {
  EXPECT_EQ(error_of(convolution({})), "");
  expect_error(convolution({.group = 3}), {"node_z", "3 groups"});
  expect_error(convolution({.group = 0}), {"node_z", "0 groups"});
  expect_error(convolution({.group = INT64_MIN}), {"node_z"});
  expect_error(convolution({.strides = {0, 1}}), {"node_z", "strides"});
  expect_error(convolution({.strides = {1}}), {"node_z", "strides"});
  expect_error(convolution({.strides = {int64_t{1} << 62, 1}}), {"node_z", "strides"});
  expect_error(convolution({.pads = {-1, 0, 0, 0}}), {"node_z", "pads"});
  expect_error(convolution({.pads = {INT64_MAX, 0, INT64_MAX, 0}}), {"node_z", "pads"});
  expect_error(convolution({.dilations = {INT64_MAX, 1}}), {"node_z", "dilations"});
  expect_error(convolution({.dilations = {8, 8}}), {"node_z", "does not fit"});
  expect_error(convolution({.w = {4, 3, 3, 3}}), {"node_z", "[4,3,3,3]"});
  expect_error(convolution({.x = {1, 4, 8}, .w = {4, 4, 3, 3}}), {"node_z"});
  ConvCase volume{.x = {1, 2, 4, 4, 4},
                  .w = {2, 2, 3, 3, 3},
                  .strides = {1, 1, 1},
                  .pads = {1, 1, 1, 1, 1, 1},
                  .dilations = {1, 1, 1}};
  EXPECT_EQ(error_of(convolution(volume)), "");
  volume.x = {1, 1, 66, 66, 66}, volume.w = {1, 1, 65, 65, 65};
  expect_error(convolution(volume), {"node_z", "shortest kernel has 65"});
}

TEST(HostileImages, TransposedConvolutions) {
  EXPECT_EQ(error_of(convolution({}, "ConvTranspose")), "");
  expect_error(convolution({.w = {3, 4, 3, 3}}, "ConvTranspose"), {"node_z", "[3,4,3,3]"});
  expect_error(convolution({.pads = {3, 3, 3, 3}}, "ConvTranspose"), {"node_z", "pads"});
  auto wide = convolution({}, "ConvTranspose");
  set_ints(wide.mutable_graph()->mutable_node(0), "output_shape", {INT64_MAX, 8});
  expect_error(wide, {"node_z"});
  auto padded = convolution({}, "ConvTranspose");
  set_ints(padded.mutable_graph()->mutable_node(0), "output_padding", {INT64_MIN, 0});
  expect_error(padded, {"node_z", "output_padding"});
}

// Between two pixels lie as many zeros as the file likes: a few pixels would become terabytes.
TEST(HostileImages, SpreadPixels) {
  const int64_t most = (1 << 20) - 1;
  EXPECT_EQ(error_of(convolution({.x = {1, 4, 1000, 2}, .strides = {1000, 1}}, "ConvTranspose")), "");
  expect_error(convolution({.x = {1, 4, 1000, 2}, .strides = {1001, 1}}, "ConvTranspose"),
               {"node_z", "an axis of 1000 with stride 1001", "at most 1000000"});
  expect_error(convolution({.strides = {most, 1}}, "ConvTranspose"), {"node_z", "an axis of 8 with stride 1048575"});
  expect_error(convolution({.strides = {most, most}}, "ConvTranspose"), {"node_z", "at most 1000000"});
  // Pixels without neighbours have nothing between them.
  EXPECT_EQ(error_of(convolution({.x = {1, 4, 1, 8}, .strides = {most, 1}}, "ConvTranspose")), "");
}

onnx::ModelProto pool(const std::string& op, const Ints& kernel, const Ints& pads, const Ints& dilations = {1, 1}) {
  auto m = model_of({1, 2, 8, 8});
  auto* n = add_node(m, op, {"x"}, "z");
  set_ints(n, "kernel_shape", kernel);
  set_ints(n, "pads", pads);
  set_ints(n, "dilations", dilations);
  return m;
}

TEST(HostileImages, Pools) {
  for (const char* op : {"MaxPool", "AveragePool"}) {
    EXPECT_EQ(error_of(pool(op, {3, 3}, {1, 1, 1, 1})), "");
    expect_error(pool(op, {9, 9}, {0, 0, 0, 0}), {"node_z", "does not fit"});
    expect_error(pool(op, {3, 3}, {3, 3, 3, 3}), {"node_z", "pads 3 and 3"});
    expect_error(pool(op, {1 << 19, 3}, {(1 << 19) - 1, 0, (1 << 19) - 1, 0}), {"node_z"});
    expect_error(pool(op, {0, 3}, {0, 0, 0, 0}), {"node_z", "kernel"});
    expect_error(pool(op, {}, {0, 0, 0, 0}), {"node_z", "kernel"});
    expect_error(pool(op, {2, 2}, {1, 1, 1, 1}, {9, 9}), {"node_z", "nothing but pads"});
  }
}

onnx::ModelProto resize(const Ints& x, const std::vector<float>& scales, const Ints& sizes, const std::string& mode) {
  auto m = model_of(x);
  if (!scales.empty()) {
    auto* t = add_tensor(m, "s", onnx::TensorProto::FLOAT, {static_cast<int64_t>(scales.size())});
    for (const float s : scales) t->add_float_data(s);
  }
  if (!sizes.empty()) {
    auto* t = add_tensor(m, "n", onnx::TensorProto::INT64, {static_cast<int64_t>(sizes.size())});
    for (const int64_t s : sizes) t->add_int64_data(s);
  }
  auto* n = add_node(m, "Resize", {"x", "", scales.empty() ? "" : "s", sizes.empty() ? "" : "n"}, "z");
  set_word(n, "mode", mode);
  return m;
}

TEST(HostileImages, Resize) {
  const Ints x = {1, 2, 4, 4};
  EXPECT_EQ(error_of(resize(x, {1, 1, 2, 2}, {}, "linear")), "");
  expect_error(resize(x, {1, 1, 1e30f, 2}, {}, "linear"), {"node_z", "1 to 1000000"});
  expect_error(resize(x, {1, 1, -2, 2}, {}, "linear"), {"node_z"});
  expect_error(resize(x, {1, 1, NAN, 2}, {}, "nearest"), {"node_z"});
  expect_error(resize(x, {1, 1, 0.01f, 2}, {}, "nearest"), {"node_z", "to 0"});
  expect_error(resize(x, {1, 2, 2}, {}, "nearest"), {"node_z", "as many scales"});
  expect_error(resize(x, {1, 1, 2, 2}, {1, 2, 8, 8}, "nearest"), {"node_z", "as many scales"});
  expect_error(resize(x, {}, {}, "nearest"), {"node_z", "as many scales"});
  expect_error(resize(x, {}, {1, 2, INT64_MAX, 8}, "nearest"), {"node_z", "1 to 1000000"});
  expect_error(resize(x, {}, {1, 1000000, 1000000, 1000000}, "nearest"), {"node_z", "too large"});
  expect_error(resize(x, {}, {1, 2, 900000, 8}, "cubic"), {"node_z", "too many"});
  expect_error(resize(x, {1, 1, 2, 2}, {}, "spline"), {"node_z", "spline"});
  auto stretched = resize({1, 2, 4, 1 << 22}, {}, {1, 2, 4, 3}, "cubic");
  set_int(stretched.mutable_graph()->mutable_node(0), "antialias", 1);
  expect_error(stretched, {"node_z", "too many"});
}

// A table of a few numbers that would become gigabytes stays a node.
TEST(HostileImages, TablesAreNotFoldedWithoutLimit) {
  auto m = model_of({1});
  add_floats(m, "t", {1, 1, 2, 2});
  auto* n = add_tensor(m, "n", onnx::TensorProto::INT64, {4});
  for (const int64_t s : {1, 1, 100000, 100000}) n->add_int64_data(s);
  auto* r = add_node(m, "Resize", {"t", "", "", "n"}, "r");
  set_word(r, "mode", "linear");
  add_node(m, "Add", {"r", "x"}, "z");
  EXPECT_EQ(error_of(m), "");
}

TEST(HostileImages, PadAndConstantOfShape) {
  auto m = model_of({2, 4});
  auto* pads = add_tensor(m, "p", onnx::TensorProto::INT64, {4});
  for (const int64_t p : {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX}) pads->add_int64_data(p);
  add_node(m, "Pad", {"x", "p"}, "z");
  expect_error(m, {"node_z", "padded by"});
  auto c = model_of({2, 4});
  auto* shape = add_tensor(c, "s", onnx::TensorProto::INT64, {2});
  for (const int64_t s : {int64_t{1} << 32, int64_t{1} << 32}) shape->add_int64_data(s);
  add_node(c, "ConstantOfShape", {"s"}, "f");
  add_node(c, "Add", {"x", "f"}, "z");
  expect_error(c, {"node_f", "repeat"});
}

TEST(HostileImages, NormsByChannels) {
  auto m = model_of({1, 4, 3, 3});
  for (const char* name : {"g", "b", "m"}) add_floats(m, name, {4});
  add_floats(m, "v", {3});
  add_node(m, "BatchNormalization", {"x", "g", "b", "m", "v"}, "z");
  expect_error(m, {"node_z", "[3]"});
  auto g = model_of({1, 4, 3, 3}, 21);
  for (const char* name : {"g", "b"}) add_floats(g, name, {4});
  set_int(add_node(g, "GroupNormalization", {"x", "g", "b"}, "z"), "num_groups", 3);
  expect_error(g, {"node_z", "3 groups"});
}

// An If whose branches are ifs, as deep as asked; the innermost gives x.
void add_branch(onnx::GraphProto* graph, int depth) {
  graph->set_name("branch");
  auto* n = graph->add_node();
  const std::string name = "r" + std::to_string(depth);
  n->add_output(name);
  graph->add_output()->set_name(name);
  if (depth == 0) {
    n->set_op_type("Neg");
    n->add_input("x");
    return;
  }
  n->set_op_type("If");
  n->add_input("c");
  for (const char* key : {"then_branch", "else_branch"}) {
    auto* a = attribute(n, key, onnx::AttributeProto::GRAPH);
    if (std::string(key) == "then_branch" || depth < 3) add_branch(a->mutable_g(), depth - 1);
  }
}

onnx::ModelProto if_model(int depth, bool known) {
  auto m = model_of({1});
  if (known) {
    add_tensor(m, "c", onnx::TensorProto::BOOL, {})->add_int32_data(1);
  } else {
    add_floats(m, "zero", {1}, 0);
    add_node(m, "Greater", {"x", "zero"}, "c");
  }
  auto* n = add_node(m, "If", {"c"}, "z");
  for (const char* key : {"then_branch", "else_branch"})
    add_branch(attribute(n, key, onnx::AttributeProto::GRAPH)->mutable_g(), depth);
  return m;
}

TEST(HostileImages, If) {
  EXPECT_EQ(error_of(if_model(0, true)), "");
  EXPECT_EQ(error_of(if_model(5, true)), "");
  expect_error(if_model(0, false), {"node_z", "'c'", "depends on the model's input"});
  EXPECT_NE(error_of(if_model(60, true)), "") << "deeper than protobuf reads";
  auto unknown = if_model(0, true);
  unknown.mutable_graph()->mutable_node(0)->mutable_attribute(0)->mutable_g()->mutable_node(0)->set_op_type("Magic");
  expect_error(unknown, {"Magic"});
  auto nothing = if_model(0, true);
  nothing.mutable_graph()->mutable_node(0)->mutable_attribute(0)->mutable_g()->clear_output();
  expect_error(nothing, {"node_z", "0 results"});
  auto lost = if_model(0, true);
  lost.mutable_graph()->mutable_node(0)->mutable_attribute(0)->mutable_g()->mutable_output(0)->set_name("lost");
  expect_error(lost, {"node_z", "'lost'"});
  auto none = if_model(0, true);
  none.mutable_graph()->mutable_node(0)->clear_attribute();
  expect_error(none, {"node_z", "no such branch"});
}

}  // namespace
}  // namespace tessera
