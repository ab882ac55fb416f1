// SPDX-License-Identifier: Apache-2.0
// TopK, GridSample and Col2Im from files that are damaged or hostile.
#include "testing/hostile_models.h"

namespace tessera {
namespace {

using namespace testing;  // NOLINT: every name of hostile_models.h

onnx::ModelProto top_k(const Ints& k, int64_t axis) {
  auto m = model_of({2, 6});
  add_ints(m, "k", k);
  set_int(add_node(m, "TopK", {"x", "k"}, "z"), "axis", axis);
  return m;
}

TEST(HostileReads, TopK) {
  EXPECT_EQ(error_of(top_k({6}, 1)), "");
  EXPECT_EQ(error_of(top_k({0}, 1)), "");
  expect_error(top_k({7}, 1), {"node_z", "[7]", "axis of 6"});
  expect_error(top_k({INT64_MAX}, 1), {"node_z"});
  expect_error(top_k({-1}, 1), {"node_z", "[-1]"});
  expect_error(top_k({}, 1), {"node_z"});
  expect_error(top_k({1, 1}, 1), {"node_z"});
  expect_error(top_k({1}, 2), {"node_z", "axis"});
}

onnx::ModelProto sample(const Ints& x, const Ints& grid, const std::string& mode, const std::string& padding) {
  auto m = model_of(x, 20);
  add_floats(m, "g", grid);
  auto* n = add_node(m, "GridSample", {"x", "g"}, "z");
  set_word(n, "mode", mode);
  set_word(n, "padding_mode", padding);
  return m;
}

TEST(HostileReads, GridSample) {
  const Ints x = {1, 2, 4, 4}, grid = {1, 3, 3, 2};
  EXPECT_EQ(error_of(sample(x, grid, "linear", "zeros")), "");
  expect_error(sample(x, grid, "spline", "zeros"), {"node_z", "spline"});
  expect_error(sample(x, grid, "linear", "mirror"), {"node_z", "mirror"});
  expect_error(sample(x, {1, 3, 3, 3}, "linear", "zeros"), {"node_z", "[1,3,3,3]"});
  expect_error(sample(x, {2, 3, 3, 2}, "linear", "zeros"), {"node_z", "[2,3,3,2]"});
  expect_error(sample(x, {1, 3, 2}, "linear", "zeros"), {"node_z"});
  expect_error(sample({1, 2}, {1, 2}, "linear", "zeros"), {"node_z"});
  expect_error(sample({1, 2, 4, 4, 4}, {1, 3, 3, 3, 3}, "cubic", "zeros"), {"node_z", "two axes"});
  expect_error(sample({1, 2, 1, 1 << 24}, grid, "linear", "zeros"), {"node_z"});
}

// Places that the input chooses are compared with all others, one by one.
onnx::ModelProto write(const std::string& op, int64_t size, const std::string& reduction) {
  auto m = model_of({1, size});
  add_ints(m, "k", {size});
  add_node(m, "TopK", {"x", "k"}, "v")->add_output("i");
  auto* n = add_node(m, op, {"x", "i", "v"}, "z");
  set_word(n, "reduction", reduction);
  if (op == "ScatterElements") set_int(n, "axis", 1);
  return m;
}

TEST(HostileReads, WritesByTheInput) {
  EXPECT_EQ(error_of(write("ScatterElements", 64, "none")), "");
  expect_error(write("ScatterElements", 8192, "none"), {"node_z", "too many"});
  expect_error(write("ScatterElements", 64, "add"), {"node_z", "'add'"});
  expect_error(write("ScatterND", 64, "none"), {"node_z"});
}

onnx::ModelProto fold(const Ints& image, const Ints& block, const Ints& strides, const Ints& x = {1, 8, 4}) {
  auto m = model_of(x);
  add_ints(m, "i", image);
  add_ints(m, "k", block);
  set_ints(add_node(m, "Col2Im", {"x", "i", "k"}, "z"), "strides", strides);
  return m;
}

TEST(HostileReads, Col2Im) {
  EXPECT_EQ(error_of(fold({4, 4}, {2, 2}, {2, 2})), "");
  expect_error(fold({4, 4}, {3, 2}, {2, 2}), {"node_z"});
  expect_error(fold({4, 4}, {2, 2}, {1, 1}), {"node_z", "4 columns for 9"});
  expect_error(fold({4}, {2, 2}, {2, 2}), {"node_z"});
  expect_error(fold({INT64_MAX, 4}, {2, 2}, {2, 2}), {"node_z"});
  expect_error(fold({0, 4}, {2, 2}, {2, 2}), {"node_z"});
  expect_error(fold({4, 4}, {INT64_MAX, 2}, {2, 2}), {"node_z"});
  expect_error(fold({4, 4}, {0, 2}, {2, 2}), {"node_z"});
  expect_error(fold({4, 4}, {2, 2}, {0, 2}), {"node_z", "strides"});
  expect_error(fold({1 << 19}, {1 << 18}, {1}, {1, 1 << 18, (1 << 18) + 1}), {"node_z", "too many"});
  expect_error(fold({129}, {65}, {1}, {1, 65, 65}), {"node_z", "overlap"});
}

}  // namespace
}  // namespace tessera
