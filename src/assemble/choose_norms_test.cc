// SPDX-License-Identifier: Apache-2.0
// What all plans of an engine can share of folded and pooled norms: everything where they agree, nothing where their
// graphs would differ, none folded where a layer then has no kernel.
#include "assemble/choose_norms.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ir/text.h"
#include "rewrite/canonicalise.h"

namespace tessera {
namespace {

// norm1 stands between linear layers; norm2's rows are averaged before the head. `more`: a map that nothing absorbs.
std::string model(int64_t batch, bool more) {
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
             " = reduce(%v) {fn=\"mean\"} @\"pool\"\n  %y: ", one(16), " = matmul(%p, %wh) @\"head\"\n",
             more ? cat("  %s: ", one(16), " = softmax(%y)\n  out %s\n}\n") : std::string("  out %y\n}\n"));
}

class ChooseNormsTest : public ::testing::Test {
 protected:
  ChooseNormsTest() {
    lowering_.types.precision = "fp16";
    lowering_.types.target = lowering_.plan.target = Arch::sm90;
    plans_.batches = {1, 2};
    plans_.graph = [this](int64_t batch) -> Result<Graph> {
      asked_.push_back(batch);
      TS_ASSIGN(Graph graph, parse_graph(model(batch, more_at_ == batch)));
      TS_TRY(canonicalise(graph));
      return graph;
    };
  }
  NormChoice chosen(std::set<std::string> folded) {
    auto choice = choose_norms(plans_, std::move(folded), lowering_);
    EXPECT_TRUE(choice.ok()) << choice.status().message();
    return choice.ok() ? *choice : NormChoice{};
  }
  // Kernels of the plan at batch 2, by op.
  int64_t kernels(const NormChoice& choice, const std::string& op) {
    LowerOptions lowering = lowering_;
    lowering.types.folded_norms = choice.folded;
    lowering.types.pooled_norms = choice.pooled;
    const auto lowered = lower_graph(*plans_.graph(2), lowering);
    EXPECT_TRUE(lowered.ok()) << lowered.status().message();
    return std::count_if(lowered->nodes.begin(), lowered->nodes.end(), [&](const Node& n) { return n.op == op; });
  }

  LowerOptions lowering_;
  GraphsToPlan plans_;
  int64_t more_at_ = 0;         // a batch whose graph has one step more
  std::vector<int64_t> asked_;  // batches whose graph was looked at
};

TEST_F(ChooseNormsTest, KeepsWhatAllPlansRun) {
  const NormChoice both = chosen({"norm1"});
  EXPECT_EQ(both.folded, std::set<std::string>{"norm1"});
  EXPECT_TRUE(both.pooled);
  EXPECT_EQ(both.why_kept, "");
  EXPECT_EQ(asked_, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(kernels(both, "norm"), 1) << "the pooled one";
  EXPECT_EQ(kernels(both, "reduce"), 0);
  const NormChoice pooled = chosen({});
  EXPECT_TRUE(pooled.folded.empty() && pooled.pooled);
  EXPECT_EQ(kernels(pooled, "norm"), 2);
}

TEST_F(ChooseNormsTest, OnePlanHasNothingToAgreeOn) {
  plans_.batches = {2};
  const NormChoice choice = chosen({});
  EXPECT_TRUE(choice.pooled);
  EXPECT_TRUE(asked_.empty()) << "no graph is made for it";
}

TEST_F(ChooseNormsTest, GraphsThatDifferShareNothing) {
  more_at_ = 2;
  for (const std::set<std::string>& folded : {std::set<std::string>{"norm1"}, {}}) {
    const NormChoice choice = chosen(folded);
    EXPECT_TRUE(choice.folded.empty());
    EXPECT_FALSE(choice.pooled);
    EXPECT_EQ(choice.why_kept, "the target has a kernel for it at some of the batches only");
    EXPECT_EQ(kernels(choice, "norm"), 2);
    EXPECT_EQ(kernels(choice, "reduce"), 1);
  }
}

TEST_F(ChooseNormsTest, NormsStayWhereALayerWouldHaveNoKernel) {
  plans_.batches = {1, 2048};  // 32768 rows: no kernel takes a norm's moments of so many
  const NormChoice choice = chosen({"norm1"});
  EXPECT_TRUE(choice.folded.empty());
  EXPECT_TRUE(choice.pooled) << "asked again without folded norms";
  EXPECT_NE(choice.why_kept.find(" at batch 2048"), std::string::npos) << choice.why_kept;
  EXPECT_EQ(asked_, (std::vector<int64_t>{1, 2048, 1, 2048}));
}

TEST_F(ChooseNormsTest, AModelThatCannotBeReadIsAnError) {
  plans_.graph = [](int64_t) -> Result<Graph> { return bad_input("no such model"); };
  const auto choice = choose_norms(plans_, {"norm1"}, lowering_);
  EXPECT_EQ(choice.status().message(), "no such model");
}

}  // namespace
}  // namespace tessera
