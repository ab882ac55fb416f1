// SPDX-License-Identifier: Apache-2.0
// Each plan folds what its own batch allows; where a layer then has no kernel, or the others a norm without a range,
// the norm stays.
#include "assemble/choose_norms.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ir/text.h"
#include "rewrite/canonicalise.h"

namespace tessera {
namespace {

// norm1 stands between linear layers; norm2's rows are averaged before the head.
std::string model(int64_t batch) {
  const auto rows = [&](int64_t cols) { return cat("f32[", batch, ",16,", cols, "]"); };
  const auto one = [&](int64_t cols) { return cat("f32[", batch, ",", cols, "]"); };
  return cat("graph g {\n  in %image: ", rows(64), R"(
  const %we: f32[128,64] = seed(1)
  const %gain: f32[128] = seed(2)
  const %w1: f32[128,128] = seed(3)
  const %wh: f32[16,128] = seed(4)
  %x: )",
             rows(128), " = matmul(%image, %we) @\"embed\"\n  %n: ", rows(128),
             " = norm(%x, %gain) {eps=0.00001, kind=\"layer\"} @\"norm1\"\n  %h: ", rows(128),
             " = matmul(%n, %w1) @\"fc\"\n  %m: ", rows(128),
             " = norm(%h, %gain) {eps=0.00001, kind=\"layer\"} @\"norm2\"\n  %v: f32[", batch,
             ",128,16] = view(%m) {offset=0, strides=[2048,1,128]}\n  %p: ", one(128),
             " = reduce(%v) {fn=\"mean\"} @\"pool\"\n  %y: ", one(16), " = matmul(%p, %wh) @\"head\"\n  out %y\n}\n");
}

class ChooseNormsTest : public ::testing::Test {
 protected:
  ChooseNormsTest() {
    lowering_.types.precision = "fp16";
    lowering_.types.target = lowering_.plan.target = Arch::sm90;
    plans_.cases = {{1}, {2}};
    plans_.graph = [this](const PlanCase& of) -> Result<Graph> {
      asked_.push_back(of.batch);
      TS_ASSIGN(Graph graph, parse_graph(model(of.batch)));
      TS_TRY(canonicalise(graph));
      return graph;
    };
  }
  NormChoice chosen(FoldedNorms folded) {
    auto choice = choose_norms(plans_, std::move(folded), lowering_);
    EXPECT_TRUE(choice.ok()) << choice.status().message();
    return choice.ok() ? *choice : NormChoice{};
  }
  Graph lowered(const NormChoice& choice, int64_t batch) {
    LowerOptions lowering = lowering_;
    choice.folded.apply({batch}, lowering.types);
    auto made = lower_graph(*plans_.graph({batch}), lowering);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.ok() ? *made : Graph{};
  }
  static int64_t kernels(const Graph& graph, const std::string& op) {
    return std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) { return n.op == op; });
  }
  static FoldedNorms at(std::vector<int64_t> batches) {
    FoldedNorms folded;
    for (const int64_t batch : batches) folded.at({batch}) = {"norm1"};
    return folded;
  }

  LowerOptions lowering_;
  GraphsToPlan plans_;
  std::vector<int64_t> asked_;  // batches whose graph was looked at
};

TEST_F(ChooseNormsTest, EachPlanFoldsForItself) {
  plans_.cases = {{1}, {64}};
  NormChoice choice = chosen(at({1}));
  EXPECT_EQ(choice.folded.at({1}), std::set<std::string>{"norm1"});
  EXPECT_TRUE(choice.folded.at({64}).empty());
  EXPECT_TRUE(choice.why_kept.empty());
  EXPECT_EQ(asked_, (std::vector<int64_t>{1, 64})) << "each once";
  const Graph few = lowered(choice, 1), many = lowered(choice, 64);
  EXPECT_EQ(kernels(few, "norm"), 1) << "the pooled one";
  EXPECT_EQ(kernels(many, "norm"), 2);
  // The one that is a kernel only divides: its gain is in the next layer's weight, the same as at batch 1.
  const auto weight = [](const Graph& g) {
    for (const Node& n : g.nodes) {
      if (n.name == "fc") return g.numbers(n.inputs[1]);
    }
    return std::vector<double>();
  };
  EXPECT_EQ(weight(few), weight(many));
  for (const Node& n : many.nodes) {
    if (n.name == "norm1") {
      EXPECT_EQ(n.inputs.size(), 1u);
    }
    if (n.name == "norm2") {
      EXPECT_EQ(n.inputs.size(), 2u) << "no plan folds it";
    }
  }
  EXPECT_NE(weight(few), weight(lowered({}, 64))) << "as the model has it, where none is folded";
}

TEST_F(ChooseNormsTest, NothingToFoldNeedsNoGraph) {
  EXPECT_TRUE(chosen({}).folded.none());
  EXPECT_TRUE(asked_.empty());
}

TEST_F(ChooseNormsTest, NormsStayWhereALayerWouldHaveNoKernel) {
  plans_.cases = {{1}, {2048}};  // 32768 rows: no kernel takes a norm's moments of so many
  NormChoice choice = chosen(at({1, 2048}));
  EXPECT_EQ(choice.folded.at({1}), std::set<std::string>{"norm1"}) << "batch 1 loses nothing by it";
  EXPECT_TRUE(choice.folded.at({2048}).empty());
  ASSERT_EQ(choice.why_kept.size(), 1u);
  EXPECT_NE(choice.why_kept[0].find(" in plan batch2048"), std::string::npos) << choice.why_kept[0];
}

// A plan that does not fold the norm rounds its result before gain and shift, which needs a range.
TEST_F(ChooseNormsTest, NormsStayWhereThePlainOneHasNoRange) {
  plans_.cases = {{1}, {64}};
  lowering_.types.precision = "fp8";
  Ranges ranges;
  for (const char* value : {"image", "x", "embed", "n", "norm1", "h", "fc", "m", "norm2", "p", "pool", "y"})
    ranges.values[value] = 4.0f;
  ranges.how = "by hand";
  lowering_.types.ranges = &ranges;
  const NormChoice none = chosen(at({1}));
  EXPECT_TRUE(none.folded.none());
  ASSERT_EQ(none.why_kept.size(), 1u);
  EXPECT_NE(none.why_kept[0].find("(by hand) has no range of norm norm1 without its gain"), std::string::npos)
      << none.why_kept[0];
  EXPECT_FALSE(chosen(at({1, 64})).folded.none()) << "where all plans fold it none reads it plain";
  const Graph graph = *plans_.graph({1});
  for (const std::string& norm : norms_between_layers(graph)) ranges.values[plain_value(norm)] = 4.0f;
  EXPECT_FALSE(chosen(at({1})).folded.none());
}

TEST_F(ChooseNormsTest, AModelThatCannotBeReadIsAnError) {
  plans_.graph = [](const PlanCase&) -> Result<Graph> { return bad_input("no such model"); };
  const auto choice = choose_norms(plans_, at({1}), lowering_);
  EXPECT_EQ(choice.status().message(), "no such model");
}

}  // namespace
}  // namespace tessera
