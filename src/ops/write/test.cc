// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <limits>

#include "op/reference.h"
#include "ops/ops.h"
#include "ops/write/write.h"
#include "testing/variant_harness.h"

namespace tessera {
namespace {

const OpInfo& op() { return *find_op("write"); }
const QuantType kF32 = Element::f32, kF16 = Element::f16, kBf16 = Element::bf16, kE4m3 = Element::e4m3,
                kI64 = Element::i64, kI32 = Element::i32, kU8 = Element::u8;

// numbers: of `at`, 0: attr `at` = first.
Problem problem(const Shape& x, const QuantType& type, Operand fresh, int64_t axis, int64_t numbers,
                int64_t first = 0) {
  std::vector<Operand> in = {dense_operand(x, type), std::move(fresh)};
  Attrs attrs = {{"axis", axis}};
  if (numbers > 0) {
    in.push_back(dense_operand({numbers}, kI32));
  } else {
    attrs.set("at", first);
  }
  return make_problem("write", std::move(in), std::move(attrs), {}, type);
}

Operand dense(const Shape& shape, const QuantType& type) { return dense_operand(shape, type); }

// A cache [batch, tokens, heads, size] of every type, from every type that may come; then other axes and shapes.
std::vector<Problem> problems() {
  std::vector<Problem> all;
  const QuantType kinds[] = {kF32, kF16, kBf16, kE4m3, kE4m3PerTensor, kInt8PerTensor};
  for (const QuantType& x : kinds) {
    for (const QuantType& fresh : kinds) {
      all.push_back(problem({2, 9, 3, 16}, x, dense({2, 1, 3, 16}, fresh), 1, 2));
      all.push_back(problem({2, 9, 3, 16}, x, dense({2, 4, 3, 16}, fresh), 1, 1));
      all.push_back(problem({3, 5, 2, 7}, x, dense({3, 2, 2, 7}, fresh), 1, 3));       // no eight in a row
      all.push_back(problem({2, 9, 2, 8}, x, gapped({2, 3, 2, 8}, fresh, 24), 1, 2));  // a part of a QKV matrix
    }
    all.push_back(problem({2, 3, 9, 16}, x, swapped({2, 3, 4, 16}, x, 1, 2), 2, 2));  // heads before tokens
    all.push_back(problem({7, 24}, x, dense({2, 24}, x), 0, 1));
    all.push_back(problem({5, 24}, x, dense({5, 6}, x), 1, 5));  // columns: rows of one number
    all.push_back(problem({5, 24}, x, dense({5, 8}, x), 1, 1));
  }
  for (const QuantType& t : {kI64, kI32, kU8}) {
    all.push_back(problem({2, 9, 8}, t, dense({2, 3, 8}, t), 1, 2));
    all.push_back(problem({2, 9, 8}, t, swapped({2, 3, 8}, t, 1, 2), 1, 2));
    all.push_back(problem({2, 9, 8}, t, dense({2, 3, 8}, kF32), 1, 2));
    all.push_back(problem({2, 9, 8}, kF32, dense({2, 3, 8}, t), 1, 2));
  }
  for (const int64_t first : {0, 1, 6}) all.push_back(problem({2, 9, 8}, kF16, dense({2, 3, 8}, kF16), 1, 0, first));
  all.push_back(problem({2, 9, 8}, kF16, dense({2, 9, 8}, kF16), 1, 2));  // all rows
  all.push_back(problem({2, 9, 8}, kF16, dense({2, 0, 8}, kF16), 1, 2));  // none
  all.push_back(problem({0, 9, 8}, kF16, dense({0, 2, 8}, kF16), 1, 1));
  all.push_back(problem({13}, kF32, dense({5}, kF32), 0, 1));
  return all;
}

// Where rows may begin, and numbers that are no such place.
template <int kShift>
void set_at(const Problem&, size_t i, std::vector<double>& numbers) {
  if (i != 2) return;
  const double some[] = {0, 3, 1, 8, -1, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min(), 2};
  for (size_t b = 0; b < numbers.size(); ++b) numbers[b] = some[(b + kShift) % std::size(some)];
}

class WriteVariant : public ::testing::TestWithParam<const Variant*> {
 protected:
  void run(const std::vector<Problem>& list, Values values, Adjust adjust = nullptr) {
    TS_SKIP_WITHOUT_DEVICE(*GetParam());
    uint64_t seed = 1;
    for (const Problem& p : list) check_variant(*GetParam(), p, seed++, values, adjust);
  }
};

TEST_P(WriteVariant, AgreesOnRandom) { run(problems(), Values::kRandom); }  // random places too
TEST_P(WriteVariant, AgreesOnExtremes) { run(problems(), Values::kExtremes); }
TEST_P(WriteVariant, AgreesAtEveryPlace) {
  for (const Adjust adjust : {set_at<0>, set_at<1>, set_at<2>, set_at<3>, set_at<4>, set_at<5>, set_at<6>, set_at<7>})
    run(problems(), Values::kRandom, adjust);
}
TEST_P(WriteVariant, AgreesOnRealShapes) {
  // One token and a prompt of 200 into a cache of 1024, from the QKV matrix of a layer.
  run({problem({4, 1024, 8, 128}, kF16, gapped({4, 1, 8, 128}, kF16, 256), 1, 4),
       problem({1, 1024, 8, 128}, kE4m3PerTensor, gapped({1, 200, 8, 128}, kF16, 256), 1, 1),
       problem({1, 1024, 1, 256}, kBf16, dense({1, 200, 1, 256}, kBf16), 1, 1)},
      Values::kRandom, set_at<1>);
}
TEST_P(WriteVariant, Sanitize) {
  run({problem({2, 9, 3, 16}, kF16, dense({2, 2, 3, 16}, kF16), 1, 2),
       problem({3, 5, 2, 7}, kE4m3PerTensor, dense({3, 2, 2, 7}, kF32), 1, 3)},
      Values::kRandom, set_at<3>);
}

// Memory of the variant's arch with the same bytes, for as long as `kept` lives.
Status put(bool on_device, std::vector<DeviceBuffer>& kept, void*& data, size_t bytes) {
  if (!on_device || data == nullptr) return {};
  DeviceBuffer& there = kept.emplace_back();
  TS_TRY(there.allocate(bytes));
  TS_TRY(copy_to_device(there.data(), data, bytes));
  data = there.data();
  return {};
}

// y in x's memory: only the new rows are written. The others keep their codes, NaN and all.
TEST_P(WriteVariant, InPlaceWritesTheNewRowsAlone) {
  TS_SKIP_WITHOUT_DEVICE(*GetParam());
  const bool on_device = info(GetParam()->arch).device == DeviceKind::kCuda;
  for (const QuantType& t : {kF32, kF16, kE4m3PerTensor}) {
    const Problem p = problem({2, 5, 8}, t, dense({2, 2, 8}, kF16), 1, 2);
    const Case c = make_case(p, 5, Values::kRandom, [](const Problem&, size_t i, std::vector<double>& numbers) {
      if (i == 2) numbers = {1, 3};
      for (double& x : numbers) x = i == 0 ? NAN : x;
    });
    std::vector<TensorView> in = views_of(c.in), out = views_of(c.out);
    const TensorView x{.desc = &p.out[0], .data = in[0].data, .scale = out[0].scale};  // on the host
    std::vector<DeviceBuffer> kept;
    for (size_t i = 0; i < in.size(); ++i) ASSERT_TRUE(put(on_device, kept, in[i].data, c.in[i].data.size()).ok());
    ASSERT_TRUE(put(on_device, kept, out[0].scale, c.out[0].scale.size()).ok());
    out[0].data = in[0].data, in[0].scale = out[0].scale;
    const auto kernel = GetParam()->bind(p);
    ASSERT_TRUE(kernel.ok());
    ASSERT_TRUE((*kernel)->launch(in, out, nullptr, {}).ok());
    if (on_device) {
      ASSERT_TRUE(copy_to_host(x.data, out[0].data, c.in[0].data.size()).ok());
    }
    const Dense y = decode(x);
    for (size_t i = 0; i < y.v.size(); ++i) {
      const size_t item = i / 40, row = i / 8 % 5, first = item == 0 ? 1 : 3;
      ASSERT_EQ(std::isnan(y.v[i]), row < first || row >= first + 2) << to_string(t) << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, WriteVariant, ::testing::ValuesIn(op().variants.begin(), op().variants.end()),
                         short_name);

TEST(WriteContract, EveryVariantAcceptsSomething) { expect_each_accepts(op(), problems()); }

TEST(WriteContract, YHasTheTypeOfX) {
  Problem p = problem({2, 9, 8}, kF16, dense({2, 3, 8}, kF32), 1, 1);
  Problem strided = p;
  strided.in[0] = gapped({2, 9, 8}, kF16, 8);
  p.out[0].type = kF32;
  for (const Variant* v : op().variants) {
    EXPECT_NE(v->accepts(p).refusal.find("type of x"), std::string::npos) << v->name;
    EXPECT_EQ(v->accepts(strided).refusal, "x must be dense") << v->name;
  }
  EXPECT_EQ(op().in_place(p, 0), 0);
}

TEST(WriteRule, ShapesAndPlaces) {
  const auto infer = [](const Shape& x, const Shape& fresh, int64_t axis, std::optional<Shape> at = {},
                        std::optional<int64_t> first = {}, Element element = Element::i32) {
    Problem p{.op = "write",
              .in = {dense_operand(x, kF16), dense_operand(fresh, kF32)},
              .out = {},
              .attrs = {{"axis", axis}}};
    if (at) p.in.push_back(dense_operand(*at, element));
    if (first) p.attrs.set("at", *first);
    return infer_types(op(), p);
  };
  EXPECT_EQ((*infer({2, 9, 8}, {2, 3, 8}, 1, Shape{2}))[0], (Type{{2, 9, 8}, kF16}));
  EXPECT_TRUE(infer({2, 9, 8}, {2, 3, 8}, 1, Shape{1}).ok());
  EXPECT_TRUE(infer({2, 9, 8}, {2, 3, 8}, 1, {}, 6).ok());
  EXPECT_FALSE(infer({2, 9, 8}, {2, 3, 8}, 1, {}, 7).ok());
  EXPECT_FALSE(infer({2, 9, 8}, {2, 3, 8}, 1, {}, -1).ok());
  EXPECT_FALSE(infer({2, 9, 8}, {2, 3, 8}, 1, Shape{1}, 2).ok()) << "two places";
  EXPECT_FALSE(infer({2, 9, 8}, {2, 3, 8}, 1, Shape{3}).ok());
  EXPECT_FALSE(infer({2, 9, 8}, {2, 3, 8}, 1, Shape{2, 1}).ok());
  EXPECT_FALSE(infer({2, 9, 8}, {2, 3, 8}, 1, Shape{}).ok());
  EXPECT_FALSE(infer({2, 9, 8}, {2, 3, 8}, 1, Shape{2}, {}, Element::i64).ok());
  EXPECT_FALSE(infer({2, 9, 8}, {2, 10, 8}, 1).ok());
  EXPECT_FALSE(infer({2, 9, 8}, {2, 3, 7}, 1).ok());
  EXPECT_FALSE(infer({2, 9, 8}, {3, 8}, 1).ok());
  EXPECT_FALSE(infer({2, 9, 8}, {2, 3, 8}, 3).ok());
  EXPECT_FALSE(infer({2, 9, 8}, {2, 3, 8}, -1).ok());
  EXPECT_FALSE(infer({2, 9}, {1, 9}, 0, Shape{2}).ok()) << "the batch itself is written to";
  EXPECT_FALSE(infer({}, {}, 0).ok());
}

TEST(WriteReference, SmallNumbersByHand) {
  const Problem p = problem({2, 3, 1}, kF32, dense({2, 2, 1}, kF32), 1, 2);
  const std::vector<Dense> in = {{{2, 3, 1}, {1, 2, 3, 4, 5, 6}}, {{2, 2, 1}, {10, 20, 30, 40}}, {{2}, {1, -5}}};
  EXPECT_EQ(compute_reference(op(), p, in)[0].v, (std::vector<double>{1, 10, 20, 30, 40, 6}));
  const Problem late = problem({3}, kI32, dense({1}, kF32), 0, 1);
  const std::vector<Dense> numbers = {{{3}, {1, 2, 3}}, {{1}, {-7.9}}, {{1}, {99}}};
  EXPECT_EQ(compute_reference(op(), late, numbers)[0].v, (std::vector<double>{1, 2, -7}));
}

}  // namespace
}  // namespace tessera
