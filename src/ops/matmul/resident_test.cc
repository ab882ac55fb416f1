// SPDX-License-Identifier: Apache-2.0
// Blocks that keep their rows of w (sm90_contract.h, kResidentConfig): where they may, and that they compute what
// others do.
#include <algorithm>
#include <set>

#include "ops/matmul/sm90_contract.h"
#include "ops/matmul/test_problems.h"
#include "ops/ops.h"

namespace tessera {
namespace {

const Types kCodes[] = {{kE4m3PerTensor, kE4m3PerChannel, kE4m3PerTensor},
                        {kE4m3PerTensor, kE4m3PerTensor, kE4m3PerTensor},
                        {kInt8PerTensor, kInt8PerChannel, kInt8PerTensor},
                        {kInt8PerTensor, kInt8PerTensor, kInt8PerTensor}};

bool keeps(const Variant& v, const Problem& p) {
  if (v.configs == nullptr || !v.accepts(p)) return false;
  const std::vector<std::string> names = configs_of(v, p);
  return std::find(names.begin(), names.end(), kResidentConfig) != names.end();
}

// k of one block of 128 bytes, of six, of all with tails; rows of less than a tile, of tiles with a tail; columns of
// less than a tile, of whole tiles, with tails; every program.
std::vector<Problem> small_problems() {
  std::vector<Problem> all;
  for (const Types& t : kCodes) {
    for (const int64_t k : {16, 128, 144, 256, 272, 384, 528, 640, 752, 768}) {
      for (const int64_t m : {1, 127, 128, 129, 300})
        all.push_back(problem(t, {m, k},
                              m == 128   ? 192
                              : m == 129 ? 400
                                         : 176,
                              k % 256 == 0 ? "b" : "bg", Element::f16));
    }
    for (const char* program : {"", "b", "s", "bs", "g", "bg", "bt", "bq", "bi"})
      all.push_back(problem(t, {300, 400}, 208, program, Element::f16));
    Problem gaps = problem(t, {300, 272}, 208, "b", Element::f16);
    gaps.in[0] = gapped({300, 272}, t.x, 48);
    all.push_back(gaps);
  }
  return all;
}

// On 132 SMs: two tiles for a few blocks; two blocks for each column with five or six; one with eight, both
// consumers' rings and tables gone round, and with all of k; a column for each SM.
std::vector<Problem> large_problems() {
  std::vector<Problem> all;
  for (const Types& t : kCodes) {
    all.push_back(problem(t, {9001, 144}, 400, "b", Element::f16));
    all.push_back(problem(t, {1300, 272}, 192 * 66 - 16, "bs", Element::f16));
    all.push_back(problem(t, {1000, 16}, 192 * 67 - 32, "bg", Element::f16));
    all.push_back(problem(t, {385, 752}, 192 * 67 - 192 + 16, "b", Element::f16));
    all.push_back(problem(t, {200, 64}, 192 * 132, "b", Element::f16));
  }
  return all;
}

class ResidentMatmul : public ::testing::TestWithParam<const Variant*> {
 protected:
  void run(const std::vector<Problem>& problems, Values values) {
    TS_SKIP_WITHOUT_DEVICE(*GetParam());
    uint64_t seed = 1;
    for (const Problem& p : problems) {
      if (keeps(*GetParam(), p)) check_variant(*GetParam(), p, seed, values);
      ++seed;
    }
  }
};

TEST_P(ResidentMatmul, AgreesOnRandom) { run(small_problems(), Values::kRandom); }
TEST_P(ResidentMatmul, AgreesOnExtremes) { run(small_problems(), Values::kExtremes); }
TEST_P(ResidentMatmul, AgreesOverManyTiles) { run(large_problems(), Values::kRandom); }

// Where w lies changes nothing: the same products in the same order, forward and backward.
TEST_P(ResidentMatmul, GivesTheBitsOfTheOthers) {
  TS_SKIP_WITHOUT_DEVICE(*GetParam());
  for (const Types& t : kCodes) {
    for (const Shape& s : {Shape{300, 768, 400}, Shape{1400, 272, 192 * 34 + 16}}) {
      const Problem p = problem(t, {s[0], s[1]}, s[2], "b", Element::f16);
      if (!keeps(*GetParam(), p)) continue;
      Case c = make_case(p, 7);
      c.problem.config = "128x192";
      const auto want = run_on(*GetParam(), c);
      ASSERT_TRUE(want.ok()) << want.status().message();
      c.problem.config = kResidentConfig;
      for (const bool backward : {false, true}) {
        c.problem.backward = backward;
        const auto got = run_on(*GetParam(), c);
        ASSERT_TRUE(got.ok()) << got.status().message();
        const Buffer &a = (*want)[0].data, &b = (*got)[0].data;
        EXPECT_TRUE(std::equal(a.data(), a.data() + a.size(), b.data())) << c.text();
      }
    }
  }
}

std::vector<const Variant*> variants_that_keep() {
  std::vector<const Variant*> some;
  for (const Variant* v : op().variants) {
    if (std::any_of(std::begin(kCodes), std::end(kCodes), [&](const Types& t) {
          return keeps(*v, problem(t, {64, 64}, 64, "", Element::f16));
        }))
      some.push_back(v);
  }
  return some;
}
INSTANTIATE_TEST_SUITE_P(Variants, ResidentMatmul, ::testing::ValuesIn(variants_that_keep()), short_name);

TEST(ResidentContract, TestsMeetThem) {
  EXPECT_EQ(variants_that_keep(),
            (std::vector<const Variant*>{find_variant("matmul/sm90_fp8"), find_variant("matmul/sm90_int8")}));
  for (const auto& problems : {small_problems(), large_problems()}) {
    for (const Problem& p : problems)
      EXPECT_TRUE(
          keeps(*find_variant(p.in[0].type.element == Element::i8 ? "matmul/sm90_int8" : "matmul/sm90_fp8"), p));
  }
}

// Weights are kept where they fit, with a block for each column of tiles, and codes become codes; first where blocks
// have tiles enough to gain by it.
TEST(ResidentContract, WeightsAreKeptWhereTheyFit) {
  const Types &fp8 = kCodes[0], &int8 = kCodes[3];
  const Types wide{kE4m3PerTensor, kE4m3PerChannel, kF16}, wide8{kInt8PerTensor, kInt8PerChannel, kF16},
      f16{kF16, kF16, kF16};
  // The config's place among the variant's, from 0; -1: it has none.
  const auto place = [](const char* variant, const Types& t, int64_t m, int64_t k, int64_t n, const char* program) {
    const Problem p = problem(t, {m, k}, n, program, Element::f16);
    EXPECT_TRUE(static_cast<bool>(find_variant(variant)->accepts(p)))
        << variant << " " << m << " " << k << " " << n << " " << program;
    const std::vector<std::string> names = configs_of(*find_variant(variant), p);
    EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
    const auto at = std::find(names.begin(), names.end(), "128x192 w");
    return at == names.end() ? -1 : static_cast<int>(at - names.begin());
  };
  const char *const kFp8 = "matmul/sm90_fp8", *const kInt8 = "matmul/sm90_int8";
  EXPECT_EQ(place(kFp8, fp8, 12608, 768, 2304, "b"), 0);
  EXPECT_EQ(place(kFp8, fp8, 16384, 768, 2304, "b"), 0);
  EXPECT_EQ(place(kInt8, int8, 12608, 768, 2304, ""), 0);
  EXPECT_EQ(place(kFp8, fp8, 12608, 768, 3072, "bg"), 2) << "an activation is as long as the products";
  EXPECT_EQ(place(kFp8, fp8, 197, 768, 2304, "b"), 2) << "a tile each";
  EXPECT_EQ(place(kFp8, fp8, 12608, 64, 192 * 67, "b"), 2) << "half of the SMs idle";
  EXPECT_EQ(place(kFp8, fp8, 0, 768, 2304, "b"), 2);
  EXPECT_EQ(place(kFp8, fp8, 64, 768, 0, "b"), 2);
  EXPECT_EQ(place(kInt8, int8, 64, 768, 192 * 132, ""), 2);
  EXPECT_EQ(place(kFp8, fp8, 12608, 784, 2304, "b"), -1) << "seven blocks of k";
  EXPECT_EQ(place(kFp8, fp8, 12608, 768, 192 * 132 + 16, "b"), -1) << "a column without an SM";
  EXPECT_EQ(place(kFp8, fp8, 12608, 768, 2304, "bI"), -1) << "a gate";
  EXPECT_EQ(place(kFp8, fp8, 12608, 768, 2304, "bgs"), -1) << "runs in 128x128 only";
  EXPECT_EQ(place(kFp8, wide, 12608, 768, 2304, "b"), -1);
  EXPECT_EQ(place(kInt8, wide8, 12608, 768, 2304, "b"), -1);
  EXPECT_EQ(place("matmul/sm90_f16", f16, 12608, 384, 2304, "b"), -1);
}

}  // namespace
}  // namespace tessera
