// SPDX-License-Identifier: Apache-2.0
// 2:4 sparse weights on Hopper (matmul/sm90_*_sparse, tiles/sm90/sparse.cuh): who takes them, and that they compute
// what dense ones with zeros do.
#include <algorithm>

#include "ops/matmul/test_problems.h"
#include "ops/ops.h"
#include "testing/mutations.h"

namespace tessera {
namespace {

const Types kSparseTypes[] = {{kF16, kF16, kF16},
                              {kBf16, kBf16, kBf16},
                              {kE4m3PerTensor, kE4m3PerChannel, kF16},
                              {kE4m3PerTensor, kE4m3PerTensor, kBf16},
                              {kE4m3PerTensor, kE4m3PerChannel, kE4m3PerTensor},
                              {kInt8PerTensor, kInt8PerChannel, kF16},
                              {kInt8PerTensor, kInt8PerTensor, kBf16},
                              {kInt8PerTensor, kInt8PerChannel, kInt8PerTensor}};

Element side_of(const Types& t) { return t.y.scaled() ? Element::f16 : t.y.element; }
Problem sparse(Problem p) {
  p.attrs.set(kSparse24, int64_t{1});
  return p;
}

// Tokens and channels around a tile of 128 by 256; k of one instruction, of a block of 128 bytes, of tails of both, and
// of more blocks than the ring has stages; each program.
std::vector<Problem> small_sparse_problems() {
  std::vector<Problem> all;
  for (const Types& t : kSparseTypes) {
    for (const Shape& s : {Shape{1, 16, 16}, Shape{7, 64, 128}, Shape{127, 80, 144}, Shape{128, 128, 256},
                           Shape{129, 208, 272}, Shape{300, 640, 400}, Shape{40, 2064, 64}})
      all.push_back(sparse(problem(t, {s[0], s[1]}, s[2], "b", side_of(t))));
    const bool wide = !t.y.scaled();  // adds a residual
    for (const char* program :
         {"", "s", "bs", "g", "bg", "bt", "bq", "bi", "bu", "bgs", "r", "br", "bsr", "bgr", "bgsr", "bSr"}) {
      if (!wide && std::string(program).find('r') != std::string::npos) continue;
      all.push_back(sparse(problem(t, {150, 192}, 336, program, side_of(t))));
    }
    Problem gaps = sparse(problem(t, {200, 256}, 208, "b", side_of(t)));
    gaps.in[0] = gapped({200, 256}, t.x, 64);
    all.push_back(gaps);
  }
  return all;
}

// Several tiles for each block of the grid: of an even number of 128 channels, and of an odd one, where a warpgroup has
// none in some of its block's tiles.
std::vector<Problem> large_sparse_problems() {
  std::vector<Problem> all;
  for (const Types& t : kSparseTypes) {
    all.push_back(sparse(problem(t, {2500, 768}, 2304, "b", side_of(t))));
    for (const char* program : {"b", "br", "bg", "bgr"}) {
      if (t.y.scaled() && std::string(program).find('r') != std::string::npos) continue;
      all.push_back(sparse(problem(t, {9001, 768}, 1152, program, side_of(t))));
    }
  }
  return all;
}

std::vector<const Variant*> sparse_variants() {
  std::vector<const Variant*> some;
  for (const Variant* v : op().variants) {
    if (std::string(v->name).ends_with("_sparse")) some.push_back(v);
  }
  return some;
}

class SparseMatmul : public ::testing::TestWithParam<const Variant*> {
 protected:
  void run(const std::vector<Problem>& problems, Values values) {
    TS_SKIP_WITHOUT_DEVICE(*GetParam());
    uint64_t seed = 1;
    for (const Problem& p : problems) check_variant(*GetParam(), p, ++seed, values, prune);
  }
};

TEST_P(SparseMatmul, AgreesOnRandom) { run(small_sparse_problems(), Values::kRandom); }
TEST_P(SparseMatmul, AgreesOnZeros) { run(small_sparse_problems(), Values::kZeros); }
TEST_P(SparseMatmul, AgreesOnExtremes) { run(small_sparse_problems(), Values::kExtremes); }
TEST_P(SparseMatmul, AgreesOverManyTiles) { run(large_sparse_problems(), Values::kRandom); }

INSTANTIATE_TEST_SUITE_P(Variants, SparseMatmul, ::testing::ValuesIn(sparse_variants()), short_name);

TEST(SparsePower, MutationsAreCaught) { expect_power_of_all(op(), small_sparse_problems(), prune); }

// Where 2:4 was asked for nothing else is stored, and only there; on Hopper by one variant for each of its types.
TEST(SparseContract, IsStoredWhereItWasAskedFor) {
  EXPECT_EQ(sparse_variants().size(), 3u);
  for (const Types& t : kSparseTypes) {
    Problem p = problem(t, {64, 64}, 64, "b", side_of(t));
    int hopper = 0;
    for (const Variant* v : op().variants) {
      const bool dense = static_cast<bool>(v->accepts(p)), own = std::string(v->name).ends_with("_sparse");
      const Problem asked = sparse(p);
      const bool takes = static_cast<bool>(v->accepts(asked));
      EXPECT_FALSE(own && dense) << v->name;
      if (v->arch == Arch::cpu) {
        EXPECT_EQ(takes, dense) << v->name;
      } else {
        EXPECT_TRUE(own || !takes) << v->name;
        if (takes) {
          ++hopper;
          EXPECT_EQ(v->layouts(asked)[1].codes, Layout::kSparse24Tiles);
        }
      }
      Problem variable = asked;
      variable.in[1].constant = false;
      EXPECT_FALSE(v->accepts(variable)) << v->name;
    }
    EXPECT_EQ(hopper, 1);
  }
}

TEST(SparseContract, TestsMeetEachVariant) {
  for (const Variant* v : sparse_variants()) {
    int64_t accepted = 0;
    for (const Problem& p : small_sparse_problems()) accepted += v->accepts(p) ? 1 : 0;
    EXPECT_GE(accepted, 30) << v->name;
  }
}

}  // namespace
}  // namespace tessera
