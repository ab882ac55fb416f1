// SPDX-License-Identifier: Apache-2.0
#include "report/compare.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "report/test_input.h"

namespace tessera {
namespace {

ComparedEngine engine(const std::string& name, std::optional<double> ms, std::optional<double> cosine,
                      std::optional<int64_t> bytes, int64_t batch = 1) {
  ComparedEngine e;
  e.name = name;
  e.batch = batch;
  e.latency_ms = ms, e.cosine = cosine, e.bytes = bytes;
  return e;
}

std::vector<std::string> front(std::vector<ComparedEngine> engines) {
  mark_front(engines);
  std::vector<std::string> names;
  for (const ComparedEngine& e : engines) {
    if (e.on_front) names.push_back(e.name);
  }
  return names;
}

TEST(Front, HoldsWhatNoOtherBeatsInAllThree) {
  EXPECT_EQ(front({engine("exact", 4, 1, 100), engine("fast", 2, 0.999, 50), engine("worse", 3, 0.998, 60),
                   engine("small", 5, 0.99, 20)}),
            (std::vector<std::string>{"exact", "fast", "small"}));
  // Equal in all: neither beats the other.
  EXPECT_EQ(front({engine("a", 1, 1, 1), engine("b", 1, 1, 1)}).size(), 2u);
  // Equal in two and better in one is enough.
  EXPECT_EQ(front({engine("a", 1, 1, 1), engine("b", 1, 1, 2)}), std::vector<std::string>{"a"});
}

TEST(Front, IsOfOneBatchAndOfKnownNumbers) {
  EXPECT_EQ(front({engine("one", 1, 0.9, 10, 1), engine("many", 9, 0.9, 10, 64)}).size(), 2u);
  EXPECT_EQ(front({engine("no size", 1, 1, {}), engine("no cosine", 1, {}, 1), engine("no time", {}, 1, 1),
                   engine("all", 9, 0.5, 99)}),
            std::vector<std::string>{"all"});
}

TEST(ChangedSteps, AreMatchedByLayerAndTurn) {
  Profile before = test_profile("fp8", 2, 1), after = test_profile("fp8", 2, 1);
  after.kernels[1].name = "matmul/sm90_fp8 256x128";
  after.kernels[1].us = 50;
  // A layer with two kernels of a class: first is held against first.
  before.kernels.push_back(test_kernel("copy/a", "tail", KernelClass::kCopy, "", 5, 0, 0));
  before.kernels.push_back(test_kernel("copy/b", "tail", KernelClass::kCopy, "", 7, 0, 0));
  after.kernels.push_back(test_kernel("copy/a", "tail", KernelClass::kCopy, "", 6, 0, 0));
  after.kernels.push_back(test_kernel("softmax/x", "fresh", KernelClass::kSoftmax, "", 2, 0, 0));
  const std::vector<StepChange> steps = changed_steps(before, after);
  ASSERT_EQ(steps.size(), before.kernels.size() + 1);
  EXPECT_EQ(steps[0].layer, "blocks.0.attn.qkv");
  EXPECT_DOUBLE_EQ(steps[0].change_us(), -20);
  EXPECT_EQ(steps[0].kernel_after, "matmul/sm90_fp8 256x128");
  const auto find = [&](const std::string& before_name, const std::string& after_name) {
    return std::find_if(steps.begin(), steps.end(), [&](const StepChange& s) {
      return s.kernel_before == before_name && s.kernel_after == after_name;
    });
  };
  ASSERT_NE(find("copy/a", "copy/a"), steps.end());
  EXPECT_DOUBLE_EQ(find("copy/a", "copy/a")->change_us(), 1);
  ASSERT_NE(find("copy/b", ""), steps.end());
  EXPECT_FALSE(find("copy/b", "")->us_after);
  ASSERT_NE(find("", "softmax/x"), steps.end());
  EXPECT_FALSE(find("", "softmax/x")->us_before);
}

TEST(KernelWords, SayWhetherKernelsDiffer) {
  VersionPair v{.before = "a", .after = "b", .ms_before = 1, .ms_after = 1, .steps = {{"x", "k", "k", 1, 1}}};
  EXPECT_EQ(kernel_words(v), "every step has the same kernel");
  v.same_program = true;
  EXPECT_NE(kernel_words(v).find("noise"), std::string::npos);
  v.steps.push_back({"y", "k", "l", 1, 1});
  EXPECT_EQ(kernel_words(v), "1 of 2 steps has another kernel");
}

TEST(VerdictWords, TellRefusedFromNotRun) {
  ComparedEngine e = engine("a", {}, {}, {});
  EXPECT_EQ(verdict_words(e), "");
  e.refused = "no kernel";
  EXPECT_EQ(verdict_words(e), "refused");
  e.bytes = 5;
  EXPECT_EQ(verdict_words(e), "not run");
}

}  // namespace
}  // namespace tessera
