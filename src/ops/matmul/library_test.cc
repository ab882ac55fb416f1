// SPDX-License-Identifier: Apache-2.0
// What cuBLASLt rounds, and how often: widths whose rows are no units of 16 bytes, operands that start between such
// units, and products that are rounded before a second kernel runs the program.
#include <cmath>

#include "op/reference.h"
#include "ops/matmul/test_problems.h"
#include "testing/mutations.h"

namespace tessera {
namespace {

const Variant& library() { return *find_variant("matmul/cuda_cublaslt"); }

// Rows of 2, 4 and 8 bytes times an odd number; patches of 14 x 14 pixels in three colours with positions that repeat.
std::vector<Problem> odd_widths() {
  std::vector<Problem> all;
  for (const Types& t : kTypes) {
    if (info(t.x.element).bits != 16 || t.x != t.w) continue;
    const Element side = info(t.y.element).bits == 8 ? Element::f16 : t.y.element;
    for (const int64_t k : {45, 90, 588, 1004}) {
      for (const char* program : {"", "b", "r", "br", "bg"})
        all.push_back(problem(t, {50, k}, k == 588 ? 1152 : 72, program, side));
    }
    for (const char* program : {"R", "bR"}) {
      all.push_back(problem(t, {3, 16, 588}, 72, program, side));
      all.push_back(problem(t, {2, 256, 588}, 1152, program, side));
    }
    all.push_back(problem(t, {33, 64}, 20, "br", side));  // rows of y
  }
  return all;
}

TEST(MatmulLibrary, RoundsOnceAtAnyWidth) {
  TS_SKIP_WITHOUT_DEVICE(library());
  uint64_t seed = 1;
  for (const Problem& p : odd_widths()) check_variant(library(), p, seed++, Values::kRandom);
}

TEST(MatmulLibrary, RoundsOnceWhereverOperandsStart) {
  TS_SKIP_WITHOUT_DEVICE(library());
  for (const Element e : {Element::f16, Element::bf16}) {
    for (const char* program : {"", "b", "r", "br", "bR", "bg"}) {
      for (const size_t shift : {2, 8, 16}) {
        const Problem p = problem({e, e, e}, {3, 16, 64}, 72, program, e);
        Case c = make_case(p, shift);
        c.shift = shift;
        const auto got = run_on(library(), c);
        ASSERT_TRUE(got.ok()) << c.text() << ": " << got.status().message();
        expect_close(library(), c, judge_of(library(), c), *got);
      }
    }
  }
}

TEST(MatmulLibrary, MutationsAreCaughtAtAnyWidth) {
  uint64_t seed = 1;
  for (const Problem& p : odd_widths()) {
    if (library().accepts(p)) expect_power(library(), p, seed++);
  }
}

// The product in 16 bits, and a bias added to that, is what older kernels of the library leave (design/0031): it
// differs from what one rounding gives, and is not accepted.
TEST(MatmulLibrary, ARoundingTooManyIsSeen) {
  for (const Element e : {Element::f16, Element::bf16}) {
    const Problem p = problem({e, e, e}, {50, 588}, 72, "b", e);
    const Case c = make_case(p, 7);
    Case plain{.problem = problem({e, e, e}, {50, 588}, 72, "", e), .in = {}, .out = {}, .numbers = {}, .exact = {}};
    plain.problem.config = configs_of(library(), plain.problem)[0];
    const std::vector<TensorView> in = views_of(c.in), out = views_of(c.out);
    const Judge of_product(*find_op("matmul"), library(), plain.problem, {in.data(), 2}, out);
    const Judge judge(*find_op("matmul"), library(), p, in, out);
    HostTensor once{.desc = p.out[0], .data = Buffer(c.exact[0].v.size() * 2), .scale = {}, .scale2 = {}};
    HostTensor twice{.desc = p.out[0], .data = Buffer(once.data.size()), .scale = {}, .scale2 = {}};
    encode_units(e, judge.middle(0), once.data.data());
    std::vector<double> numbers = of_product.middle(0);
    encode_units(e, numbers, twice.data.data());
    info(e).decode_f64(twice.data.data(), 0, static_cast<int64_t>(numbers.size()), numbers.data());
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] += c.numbers[2].v[i % 72];
    encode_units(e, numbers, twice.data.data());
    const TensorView right[] = {once.view()}, wrong[] = {twice.view()};
    EXPECT_TRUE(judge.of(right).ok());
    EXPECT_FALSE(judge.of(wrong).ok());
    EXPECT_GT(judge.of(wrong).relative_l2, 2 * judge.of(right).allowed_l2);
  }
}

// A second kernel's program reads the product as it was rounded, which is known but for ties: no interval of a whole
// rounding around it.
TEST(MatmulLibrary, ARoundedProductIsKnownAsSuch) {
  const Problem p = problem({kBf16, kBf16, kBf16}, {64, 128}, 64, "bu", Element::bf16);
  const Case c = make_case(p, 3);
  const Judge judge = judge_of(library(), c);
  HostTensor y{.desc = p.out[0], .data = Buffer(c.exact[0].v.size() * 2), .scale = {}, .scale2 = {}};
  encode_units(Element::bf16, judge.middle(0), y.data.data());
  const TensorView views[] = {y.view()};
  EXPECT_TRUE(judge.of(views).ok());
  EXPECT_LT(judge.of(views).allowed_l2, 0x1p-9);
}

// Sums of so many FP8 products are known to half a hundredth, and a product in bf16 to one of its codes.
TEST(MatmulLibrary, AHundredthIsSeenOfLongSums) {
  const Variant& fp8 = *find_variant("matmul/sm90_cublaslt_fp8");
  for (const int64_t k : {2048, 4096, 16384}) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      for (const char* program : {"b", "bg", "bt"})
        expect_power(fp8, problem({kE4m3PerTensor, kE4m3PerChannel, kBf16}, {1, k}, 48, program, Element::bf16), seed);
    }
  }
}

}  // namespace
}  // namespace tessera
