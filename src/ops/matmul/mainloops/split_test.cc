// SPDX-License-Identifier: Apache-2.0
// Tiles of the normal mainloop whose K is split over a cluster (sm90_contract.h, split_configs): where they are
// offered, and that they compute what others do.
#include <algorithm>
#include <set>

#include "ops/matmul/sm90_contract.h"
#include "ops/matmul/test_problems.h"
#include "ops/ops.h"

namespace tessera {
namespace {

const Types kSplitTypes[] = {{kF16, kF16, kF16},
                             {kBf16, kBf16, kBf16},
                             {kE4m3PerTensor, kE4m3PerChannel, kF16},
                             {kE4m3PerTensor, kE4m3PerTensor, kBf16},
                             {kInt8PerTensor, kInt8PerChannel, kF16},
                             {kInt8PerTensor, kInt8PerTensor, kBf16},
                             {kE4m3PerToken, kE4m3PerChannel, kF16},
                             {kE4m3PerToken, kE4m3PerTensor, kBf16}};

std::vector<std::string> split_shapes(const Variant& v, const Problem& p) {
  if (v.configs == nullptr || !v.accepts(p)) return {};
  std::vector<std::string> names = configs_of(v, p);
  std::erase_if(names, [](const std::string& name) { return name.rfind("128x", 0) != 0 || split_of(name) == 1; });
  return names;
}

// Rows and columns of one tile, of tiles with tails, of many; k of whole slices and of slices that differ; every
// program that has no activation.
std::vector<Problem> split_problems() {
  std::vector<Problem> all;
  for (const Types& t : kSplitTypes) {
    for (const Shape& s : {Shape{1, 4096, 64}, Shape{127, 2064, 192}, Shape{128, 4304, 208}, Shape{129, 1152, 400},
                           Shape{300, 2048, 768}}) {
      for (const char* program : {"b", "br"}) all.push_back(problem(t, {s[0], s[1]}, s[2], program, t.y.element));
    }
    for (const char* program : {"", "s", "bs", "r", "bsr", "bSr"})
      all.push_back(problem(t, {257, 2048}, 336, program, t.y.element));
    Problem gaps = problem(t, {200, 2048}, 208, "br", t.y.element);
    gaps.in[0] = gapped({200, 2048}, t.x, 64);
    all.push_back(gaps);
  }
  return all;
}

class SplitMatmul : public ::testing::TestWithParam<const Variant*> {
 protected:
  // Each split shape of every problem, also where the list of shapes is long.
  void run(Values values) {
    TS_SKIP_WITHOUT_DEVICE(*GetParam());
    uint64_t seed = 1;
    for (const Problem& p : split_problems()) {
      for (const std::string& config : split_shapes(*GetParam(), p)) {
        Case c = make_case(p, ++seed, values);
        c.problem.config = config;
        c.problem.backward = seed % 2 == 1;
        const auto got = run_on(*GetParam(), c);
        ASSERT_TRUE(got.ok()) << c.text() << ": " << got.status().message();
        expect_close(*GetParam(), c, judge_of(*GetParam(), c), *got);
      }
    }
  }
};

TEST_P(SplitMatmul, AgreesOnRandom) { run(Values::kRandom); }
TEST_P(SplitMatmul, AgreesOnExtremes) { run(Values::kExtremes); }

TEST_P(SplitMatmul, GivesTheSameBitsEachTime) {
  TS_SKIP_WITHOUT_DEVICE(*GetParam());
  for (const Types& t : kSplitTypes) {
    const Problem p = problem(t, {512, 4304}, 1152, "br", t.y.element);
    for (const std::string& config : split_shapes(*GetParam(), p)) {
      Case c = make_case(p, 3);
      c.problem.config = config;
      const auto want = run_on(*GetParam(), c), got = run_on(*GetParam(), c);
      ASSERT_TRUE(want.ok() && got.ok());
      const Buffer &a = (*want)[0].data, &b = (*got)[0].data;
      EXPECT_TRUE(std::equal(a.data(), a.data() + a.size(), b.data())) << c.text();
    }
  }
}

std::vector<const Variant*> variants_that_split() {
  std::vector<const Variant*> some;
  for (const Variant* v : op().variants) {
    const std::vector<Problem> all = split_problems();
    if (std::any_of(all.begin(), all.end(), [&](const Problem& p) { return !split_shapes(*v, p).empty(); }))
      some.push_back(v);
  }
  return some;
}
INSTANTIATE_TEST_SUITE_P(Variants, SplitMatmul, ::testing::ValuesIn(variants_that_split()), short_name);

TEST(SplitContract, TestsMeetThem) {
  EXPECT_EQ(variants_that_split(),
            (std::vector<const Variant*>{find_variant("matmul/sm90_fp8"), find_variant("matmul/sm90_fp8_token"),
                                         find_variant("matmul/sm90_f16"), find_variant("matmul/sm90_int8")}));
  std::set<std::string> met;
  for (const Problem& p : split_problems()) {
    for (const Variant* v : variants_that_split()) {
      for (const std::string& name : split_shapes(*v, p)) met.insert(name);
    }
  }
  EXPECT_EQ(met, (std::set<std::string>{"128x128/2", "128x128/3", "128x128/4", "128x192/2"}));
}

TEST(SplitContract, TilesAreSplitWhereSmsWouldIdle) {
  const auto shapes = [](int64_t m, int64_t k, int64_t n, const char* program) {
    return split_shapes(*find_variant("matmul/sm90_f16"), problem(kSplitTypes[1], {m, k}, n, program, Element::bf16));
  };
  const auto first = [](int64_t m, int64_t k, int64_t n) {
    return gemm_configs(problem(kSplitTypes[1], {m, k}, n, "br", Element::bf16))[0];
  };
  EXPECT_EQ(first(712, 16384, 2048), "128x192/2") << "66 tiles: one block for each of 132 SMs";
  EXPECT_EQ(split_of(first(512, 4304, 1152)), 3) << "36 tiles";
  EXPECT_TRUE(shapes(12608, 768, 3072, "b").empty()) << "tiles enough";
  EXPECT_EQ(split_of(first(712, 2048, 2048)), 1) << "13.4 us whole, 14.3 as 128x192/2 on an H200";
  EXPECT_EQ(split_of(first(512, 592, 1152)), 1) << "6.2 us whole, 7.5 as 128x128/2";
  EXPECT_TRUE(shapes(512, 4304, 1152, "bg").empty()) << "an activation";
  EXPECT_TRUE(shapes(512, 128, 1152, "br").empty()) << "two blocks of k";
  EXPECT_FALSE(checked_config(*find_variant("matmul/sm90_f16"),
                              [] {
                                Problem p = problem(kSplitTypes[1], {12608, 768}, 3072, "b", Element::bf16);
                                p.config = "128x192/2";
                                return p;
                              }())
                   .ok())
      << "a shape that is not offered";
}

// A cluster lies in one group of 16 or 18 SMs: 43 clusters of three would be 129 blocks, and one of them would wait for
// the others to end.
TEST(SplitContract, AllClustersRunAtOnce) {
  EXPECT_EQ(sm90::clusters_at_once(1), sm90::kSms);
  EXPECT_EQ(sm90::clusters_at_once(2), 66);
  EXPECT_EQ(sm90::clusters_at_once(8), 16);
  for (const int64_t rows : {128, 256, 384, 512}) {
    for (int64_t n = 64; n <= 6144; n += 64) {
      const Problem p = problem(kSplitTypes[1], {rows, 4096}, n, "br", Element::bf16);
      for (const std::string& name : split_shapes(*find_variant("matmul/sm90_f16"), p)) {
        const int cols = name.rfind(gemm_name(128, 1), 0) == 0 ? 128 : 192;
        EXPECT_LE(rows / 128 * divide_up(n, cols), sm90::clusters_at_once(split_of(name)))
            << rows << " " << n << " " << name;
      }
    }
  }
}

// Few rows stay with the swapped mainloop, which reads weights ahead; some hundred go to split tiles.
TEST(SplitContract, FewRowsAreTheSwappedMainloops) {
  const auto slow = [](int64_t m, int64_t k, int64_t n) {
    return !find_variant("matmul/sm90_f16")->worthwhile(problem(kSplitTypes[1], {m, k}, n, "br", Element::bf16));
  };
  for (const int64_t m : {1, 10, 50, 64, 197}) EXPECT_TRUE(slow(m, 3072, 768)) << m;
  EXPECT_FALSE(slow(512, 4304, 1152));
  EXPECT_FALSE(slow(712, 2048, 2048));
}

}  // namespace
}  // namespace tessera
