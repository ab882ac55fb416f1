// SPDX-License-Identifier: Apache-2.0
// Each tests/data/passes/<pass>_<case>.ir holds a graph before and after its pass; and both compute the same numbers.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir/check.h"
#include "ir/text.h"
#include "lower/drop_port_copies.h"
#include "lower/finish_heads.h"
#include "lower/fuse_gate.h"
#include "lower/join_gathers.h"
#include "lower/join_layers.h"
#include "lower/merge_groups.h"
#include "lower/pad_heads.h"
#include "lower/pad_products.h"
#include "lower/pool_norms.h"
#include "ops/builder.h"
#include "rewrite/canonicalise.h"
#include "rewrite/concat_before_matmul.h"
#include "rewrite/drop_casts.h"
#include "rewrite/drop_dead.h"
#include "rewrite/drop_rows.h"
#include "rewrite/fold_constants.h"
#include "rewrite/fuse.h"
#include "rewrite/materialise.h"
#include "rewrite/recognise/recognise.h"
#include "rewrite/shape_outputs.h"
#include "rewrite/share_equal.h"
#include "rewrite/simplify_views.h"
#include "rewrite/sink_row_orders.h"
#include "rewrite/unfuse.h"
#include "testing/run_graph.h"

namespace tessera {
namespace {

struct Pass {
  const char* name;
  std::vector<Status (*)(Graph&)> steps;
};

// With what each pass leaves for others to clean up.
const std::vector<Pass>& passes() {
  static const std::vector<Pass> kAll = {
      {"fold_constants", {fold_constants, drop_dead}},
      {"drop_dead", {drop_dead}},
      {"drop_rows", {drop_rows, simplify_views, drop_dead}},
      {"concat_before_matmul", {concat_before_matmul, drop_dead}},
      {"drop_casts", {drop_casts, simplify_views, drop_dead}},
      {"share_equal", {share_equal, drop_dead}},
      {"simplify_views", {simplify_views, drop_dead}},
      {"recognise_qdq", {recognise_qdq, drop_dead}},
      {"recognise_norm", {recognise_norm, drop_dead}},
      {"recognise_modulation", {recognise_modulation, drop_dead}},
      {"recognise_gelu", {recognise_gelu, drop_dead}},
      {"recognise_rotary", {recognise_rotary, simplify_views, drop_dead}},
      {"recognise_attention", {recognise_attention, simplify_views, drop_dead}},
      {"fuse", {fuse, drop_dead}},
      {"fuse_gate", {[](Graph& graph) { return fuse_gate(graph, Arch::sm90); }}},
      {"pad_heads", {[](Graph& graph) { return pad_heads(graph, Arch::sm90); }}},
      {"drop_port_copies", {[](Graph& graph) -> Status {
         drop_port_copies(graph);
         return {};
       }}},
      {"merge_groups", {[](Graph& graph) { return merge_groups(graph, Arch::sm90, Element::f16); }}},
      {"merge_groups_cpu", {[](Graph& graph) { return merge_groups(graph, Arch::cpu, Element::f32); }}},
      {"pad_products", {[](Graph& graph) { return pad_products(graph, Arch::sm90, Element::f16); }}},
      {"join_gathers", {join_gathers}},
      {"join_layers", {[](Graph& graph) { return join_layers(graph, Arch::sm90); }}},
      {"finish_heads", {[](Graph& graph) { return finish_heads(graph, Arch::sm90); }}},
      {"pool_norms", {[](Graph& graph) { return pool_norms(graph, Arch::sm90); }}},
      {"unfuse", {[](Graph& graph) {
         unfuse(graph, Arch::sm90, Element::f16);
         return Status();
       }}},
      {"shape_outputs", {shape_outputs, simplify_views, drop_dead}},
      {"materialise", {materialise}},
      {"sink_row_orders", {sink_row_orders, simplify_views, drop_dead}},
  };
  return kAll;
}

// The pass that a file is about: the longest name that the file's begins with.
const Pass* pass_of(const std::string& file) {
  const Pass* pass = nullptr;
  for (const Pass& p : passes()) {
    if (file.starts_with(p.name) && (pass == nullptr || std::string(p.name).size() > std::string(pass->name).size()))
      pass = &p;
  }
  return pass;
}

std::vector<std::string> files() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(TS_SOURCE_DIR "/tests/data/passes")) {
    if (entry.path().extension() == ".ir") out.push_back(entry.path().stem().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

Result<std::vector<Graph>> read(const std::string& name) {
  std::ifstream file(TS_SOURCE_DIR "/tests/data/passes/" + name + ".ir");
  std::stringstream text;
  text << file.rdbuf();
  return parse_graphs(text.str());
}

class PassTest : public ::testing::TestWithParam<std::string> {};

TEST_P(PassTest, TurnsBeforeIntoAfter) {
  const auto graphs = read(GetParam());
  ASSERT_TRUE(graphs.ok()) << graphs.status().message();
  ASSERT_EQ(graphs->size(), 2u);
  const Graph before = (*graphs)[0];
  Graph after = (*graphs)[1], got = before;
  const Pass* pass = pass_of(GetParam());
  ASSERT_NE(pass, nullptr) << "the file's name must begin with a pass";
  ASSERT_TRUE(check_ops(before).ok()) << check_ops(before).message();
  for (const auto step : pass->steps) {
    const Status status = step(got);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  ASSERT_TRUE(check(got).ok()) << check(got).message();
  ASSERT_TRUE(check_ops(got).ok()) << check_ops(got).message();
  after.name = got.name;
  EXPECT_EQ(print_graph(got), print_graph(after));

  const std::vector<testing::Numbers> in = testing::random_inputs(before, 11);
  const auto want = testing::run_graph(before, in), have = testing::run_graph(got, in);
  ASSERT_TRUE(want.ok() && have.ok()) << want.status().message() << have.status().message();
  ASSERT_EQ(want->size(), have->size());
  // Each stored f32 is off by at most 2^-24 of itself, in either graph; a step amplifies what came before it by at most
  // 4 here (a square, and its root's slope). *_f16: values are stored in f16, each off by at most 2^-11.
  // *_half: constants are rounded to f16, and what is recognised computes with the number that was meant.
  const double constants = GetParam().ends_with("_half") ? 0x1p-11 : 0;
  const double unit = GetParam().ends_with("_f16") ? 0x1p-11 : 0x1p-24;
  const double bound = 2 * 4 * static_cast<double>(before.nodes.size()) * unit + constants;
  for (size_t i = 0; i < want->size(); ++i)
    EXPECT_LE(testing::relative_error((*have)[i], (*want)[i]), bound) << "output " << i;
}

// Running a pass once more changes nothing.
TEST_P(PassTest, IsDoneAfterOneRun) {
  auto graphs = read(GetParam());
  ASSERT_TRUE(graphs.ok());
  Graph graph = (*graphs)[1];
  for (const auto step : pass_of(GetParam())->steps) ASSERT_TRUE(step(graph).ok());
  EXPECT_EQ(print_graph(graph), print_graph((*graphs)[1]));
}

INSTANTIATE_TEST_SUITE_P(Files, PassTest, ::testing::ValuesIn(files()), [](const auto& info) { return info.param; });

TEST(Canonicalise, RefusesAGraphThatIsWrong) {
  auto g = parse_graph("graph g { in %x: f32[2,3] const %w: f32[4,3] %y: f32[2,5] = matmul(%x, %w) out %y }");
  ASSERT_TRUE(g.ok()) << g.status().message();
  const Status status = canonicalise(*g);
  EXPECT_EQ(status.code(), Code::kBadInput);
  EXPECT_NE(status.message().find("[2,4]"), std::string::npos) << status.message();
}

TEST(Canonicalise, GivesEveryLayerAndValueItsOwnName) {
  auto g = parse_graph(R"(graph g {
    in %x: f32[2,3]
    const %w: f32[3,3] = seed(1)
    %a: f32[2,3] = matmul(%x, %w) @"fc"
    %b: f32[2,3] = norm(%a) {eps=0.001, kind="layer"}
    %c: f32[2,3] = matmul(%b, %w) @"fc"
    %fc: f32[2,3] = softmax(%c)
    out %fc
  })");
  ASSERT_TRUE(g.ok()) << g.status().message();
  ASSERT_TRUE(canonicalise(*g).ok());
  std::vector<std::string> layers, values;
  for (const Node& n : g->nodes) layers.push_back(n.name);
  for (const Value& v : g->values) values.push_back(v.name);
  EXPECT_EQ(layers, (std::vector<std::string>{"fc", "norm", "fc_2", "softmax"}));
  EXPECT_EQ(values, (std::vector<std::string>{"x", "w", "fc_2", "norm", "fc_2_2", "fc"}))
      << "the caller's name for the result stays";
}

}  // namespace
}  // namespace tessera
