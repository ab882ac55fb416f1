// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "op/reference.h"
#include "ops/conv2d/conv2d.h"
#include "ops/ops.h"
#include "testing/mutations.h"
#include "testing/variant_harness.h"

namespace tessera {
namespace {

const OpInfo& op() { return *find_op("conv2d"); }
const QuantType kF32 = Element::f32, kF16 = Element::f16, kBf16 = Element::bf16;

struct Types {
  QuantType x, w, y;
};
const Types kTypes[] = {{kF32, kF32, kF32},
                        {kF16, kF16, kF16},
                        {kBf16, kBf16, kBf16},
                        {kE4m3PerTensor, kE4m3PerChannel, kF16},
                        {kE4m3PerTensor, kE4m3PerTensor, kE4m3PerTensor},
                        {kInt8PerTensor, kInt8PerChannel, kF16},
                        {kInt8PerTensor, kInt8PerChannel, kInt8PerTensor},
                        {kF16, kNvfp4, kF16},
                        {kE4m3PerTensor, kNvfp4AsE4m3, kF16},
                        {kF32, kInt8PerChannel, kF32}};

struct Window {
  std::vector<int64_t> kernel = {3, 3}, strides = {1, 1}, pads = {1, 1, 1, 1}, dilations = {1, 1};
  int64_t groups = 1;
};

// Programs by letters: b bias, g gelu, u relu, r residual, s scale.
Problem problem(const Types& t, Operand x, int64_t n, const Window& window, const std::string& program = "") {
  const int64_t k = window.kernel[0] * window.kernel[1] * x.shape[3] / window.groups;
  std::vector<Operand> in = {std::move(x), dense_operand({n, k}, t.w, /*constant=*/true)};
  const Attrs attrs = {{"kernel", window.kernel},
                       {"strides", window.strides},
                       {"pads", window.pads},
                       {"dilations", window.dilations},
                       {"groups", window.groups}};
  const Problem plain{.op = "conv2d", .in = in, .out = {}, .attrs = attrs, .then = {}};
  const Shape y = infer_types(op(), plain).value()[0].shape;
  const Element side = t.y.scaled() || info(t.y.element).bits == 8 ? Element::f16 : t.y.element;
  Program then;
  const auto with = [&](StepKind kind, const Shape& shape) {
    then.steps.push_back({.kind = kind, .operand = static_cast<int>(in.size())});
    in.push_back(dense_operand(shape, side, kind != StepKind::residual));
  };
  for (const char c : program) {
    if (c == 'b') with(StepKind::bias, {n});
    if (c == 's') with(StepKind::scale, {n});
    if (c == 'r') with(StepKind::residual, y);
    if (c == 'g') then.steps.push_back({.kind = StepKind::act, .fn = Unary::gelu_erf});
    if (c == 'u') then.steps.push_back({.kind = StepKind::act, .fn = Unary::relu});
  }
  if (t.y.scaled()) then.steps.push_back({.kind = StepKind::quantize});
  return make_problem("conv2d", std::move(in), attrs, std::move(then), t.y);
}

Problem problem(const Types& t, const Shape& x, int64_t n, const Window& window, const std::string& program = "") {
  return problem(t, dense_operand(x, t.x), n, window, program);
}

// All of them for types that no other stands for: each product's own codes, and numbers that are made of others.
std::vector<Window> windows(const Types& t) {
  const bool all = &t == kTypes || t.x == kBf16 || (t.x == kInt8PerTensor && t.y == kF16);
  if (!all) return {{}, {.kernel = {5, 2}, .strides = {3, 1}, .pads = {4, 1, 4, 0}, .dilations = {2, 3}}};
  return {{},
          {.kernel = {1, 1}, .pads = {0, 0, 0, 0}},
          {.strides = {2, 2}},
          {.pads = {0, 0, 0, 0}},
          {.pads = {2, 0, 1, 3}},
          {.pads = {2, 2, 2, 2}, .dilations = {2, 2}},
          {.kernel = {1, 5}, .strides = {1, 2}, .pads = {0, 2, 0, 2}, .dilations = {1, 1}},
          {.kernel = {5, 2}, .strides = {3, 1}, .pads = {4, 1, 4, 0}, .dilations = {2, 3}},
          {.kernel = {7, 7}, .strides = {4, 4}, .pads = {3, 3, 3, 3}}};
}

// Images of one pixel, odd ones, with a tail of each side; channels around panels of 16 and groups of 4 and 8.
std::vector<Problem> small_problems() {
  std::vector<Problem> all;
  for (const Types& t : kTypes) {
    if (t.w.scale.granularity != Granularity::kBlock) {
      all.push_back(problem(t, {1, 1, 1, 1}, 1, {}));
      for (const Window& w : windows(t)) {
        all.push_back(problem(t, {2, 9, 11, 5}, 17, w, "bu"));
        all.push_back(problem(t, {1, 13, 8, 16}, 16, w, "br"));
      }
    }
    for (const Window& w : windows(t)) all.push_back(problem(t, {1, 10, 9, 32}, 48, w, "bgsr"));
    all.push_back(problem(t, swapped({2, 16, 9, 7}, t.x, 1, 2), 32, {}, "b"));  // lines and pixels trade places
    all.push_back(problem(t, gapped({1, 8, 9, 16}, t.x, 8), 32, {}, "b"));      // channels of a wider image
    all.push_back(problem(t, swapped({2, 9, 8, 32}, t.x, 1, 2), 32, {}, "b"));
    // Several images in a tile of windows, and tiles that begin inside one.
    all.push_back(problem(t, {3, 9, 11, 32}, 48, {.strides = {2, 2}, .pads = {0, 2, 3, 1}}, "bu"));
    all.push_back(problem(t, {5, 8, 9, 48}, 32, {}, "b"));
  }
  return all;
}

// Groups whose results end inside panels of 16, and at them; channels that are groups of their own, with tails of 64.
std::vector<Problem> grouped_problems() {
  std::vector<Problem> all;
  for (const Types& t : kTypes) {
    if (t.w.scale.granularity == Granularity::kBlock) continue;
    for (Window w : windows(t)) {
      w.groups = 2;
      all.push_back(problem(t, {1, 9, 10, 6}, 10, w, "b"));
      all.push_back(problem(t, {2, 8, 9, 32}, 64, w, "bgr"));
      w.groups = 7;
      all.push_back(problem(t, {2, 9, 37, 7}, 7, w, "bu"));
      all.push_back(problem(t, {1, 9, 10, 7}, 21, w, ""));  // two more results of each channel
      w.groups = 72;
      all.push_back(problem(t, {1, 9, 8, 72}, 72, w, "br"));
    }
    all.push_back(problem(t, {1, 3, 133, 130}, 130, {.groups = 130}, "b"));
    all.push_back(problem(t, {1, 9, 11, 72}, 72, {.kernel = {5, 5}, .pads = {2, 2, 2, 2}, .groups = 72}, "bu"));
    // More taps than lie in shared memory at a time.
    all.push_back(problem(t, {1, 15, 14, 64}, 64, {.kernel = {13, 13}, .pads = {6, 6, 6, 6}, .groups = 64}, "b"));
  }
  return all;
}

// Corners, taps and strides as far as TMA's walk encodes them.
std::vector<Problem> far_problems() {
  std::vector<Problem> all;
  for (const Types& t : kTypes) {
    all.push_back(problem(t, {2, 3, 260, 16}, 32, {.kernel = {1, 2}, .pads = {0, 100, 0, 7}, .dilations = {1, 254}}));
    all.push_back(problem(t, {2, 17, 19, 16}, 32, {.strides = {8, 8}, .pads = {3, 2, 7, 5}}, "b"));
    all.push_back(problem(t, {1, 5, 6, 32}, 32, {.kernel = {1, 3}, .strides = {5, 7}, .pads = {127, 126, 120, 127}}));
  }
  return all;
}

std::vector<Problem> real_problems() {
  std::vector<Problem> all;
  for (const Types& t : kTypes) {
    all.push_back(problem(t, {1, 28, 28, 64}, 128, {}, "bu"));
    all.push_back(problem(t, {1, 14, 14, 256}, 96, {.strides = {2, 2}}, "b"));
    if (t.w.scale.granularity == Granularity::kBlock) continue;
    all.push_back(problem(t, {1, 32, 32, 3}, 48, {.kernel = {7, 7}, .strides = {2, 2}, .pads = {3, 3, 3, 3}}, "bu"));
    all.push_back(problem(t, {1, 14, 14, 192}, 192, {.kernel = {7, 7}, .pads = {3, 3, 3, 3}, .groups = 192}, "b"));
  }
  return all;
}

class Conv2dVariant : public ::testing::TestWithParam<const Variant*> {
 protected:
  void run(const std::vector<Problem>& list, Values values) {
    TS_SKIP_WITHOUT_DEVICE(*GetParam());
    uint64_t seed = 1;
    for (const Problem& p : list) check_variant(*GetParam(), p, seed++, values);
  }
};

TEST_P(Conv2dVariant, AgreesOnRandom) { run(small_problems(), Values::kRandom); }
TEST_P(Conv2dVariant, AgreesOnZeros) { run(small_problems(), Values::kZeros); }
TEST_P(Conv2dVariant, AgreesOnExtremes) { run(small_problems(), Values::kExtremes); }
TEST_P(Conv2dVariant, AgreesOnGroups) { run(grouped_problems(), Values::kRandom); }
TEST_P(Conv2dVariant, AgreesAtTheLimitsOfWindows) { run(far_problems(), Values::kRandom); }
TEST_P(Conv2dVariant, AgreesOnRealShapes) { run(real_problems(), Values::kRandom); }
INSTANTIATE_TEST_SUITE_P(Variants, Conv2dVariant, ::testing::ValuesIn(op().variants.begin(), op().variants.end()),
                         short_name);

TEST(Conv2dPower, MutationsAreCaught) { expect_power_of_all(op(), small_problems()); }

// A kernel that looks at windows a pixel away is seen in every type.
TEST(Conv2dPower, OtherWindowsAreCaught) {
  const std::pair<const char*, Attr> faults[] = {{"pads", std::vector<int64_t>{0, 1, 2, 1}},
                                                 {"pads", std::vector<int64_t>{1, 0, 1, 2}},
                                                 {"pads", std::vector<int64_t>{0, 0, 2, 2}}};
  for (const Types& t : kTypes) {
    for (const int64_t groups : {1, 16}) {
      if (groups > 1 && t.w.scale.granularity == Granularity::kBlock) continue;
      const Problem p = problem(t, {1, 9, 10, 16}, 16, {.groups = groups}, "b");
      for (const Variant* v : op().variants) {
        if (v->arch != Arch::cpu || !v->accepts(p)) continue;
        Case c = make_case(p, 7);
        c.problem.config = configs_of(*v, p)[0];
        const Judge judge = judge_of(*v, c);
        const auto right = run_on(*v, c);
        ASSERT_TRUE(right.ok() && judge.of(views_of(*right)).ok()) << v->name << " " << c.text();
        for (const auto& [key, value] : faults) {
          const Attr before = c.problem.attrs.all().at(key);
          c.problem.attrs.set(key, value);
          const auto wrong = run_on(*v, c);
          c.problem.attrs.set(key, before);
          ASSERT_TRUE(wrong.ok()) << v->name;
          EXPECT_FALSE(judge.of(views_of(*wrong)).ok()) << v->name << " " << c.text();
        }
      }
    }
  }
}

TEST(Conv2dContract, EveryVariantAcceptsSomething) { expect_each_accepts(op(), grouped_problems()); }

// By what the numbers allow, as matmul: int8 by int8, what bf16 holds by bf16, the rest in fp32; single channels by the
// kernel that is made for them.
TEST(Conv2dContract, TheCpuRunsEveryPairOfTypes) {
  for (const std::vector<Problem>& list : {small_problems(), grouped_problems()}) {
    for (const Problem& p : list) {
      const Variant* first = nullptr;
      for (const Variant* v : op().variants) {
        if (first == nullptr && v->arch == Arch::cpu && v->accepts(p)) first = v;
      }
      ASSERT_NE(first, nullptr) << to_string(p.in[0].type) << " x " << to_string(p.in[1].type);
      const bool single = p.attrs.integer("groups") == p.in[0].shape[3] && p.in[1].shape[0] == p.in[0].shape[3];
      const auto long_digits = [](Element e) { return e == Element::f32 || e == Element::f16; };
      const Element x = p.in[0].type.element, w = p.in[1].type.element;
      EXPECT_EQ(std::string(first->name), single                                 ? "conv2d/cpu_depthwise"
                                          : x == Element::i8 && w == Element::i8 ? "conv2d/cpu_int8"
                                          : long_digits(x) || long_digits(w)     ? "conv2d/cpu"
                                                                                 : "conv2d/cpu_bf16")
          << to_string(p.in[0].type) << " x " << to_string(p.in[1].type);
    }
  }
}

TEST(Conv2dReference, SmallNumbersByHand) {
  // A line of three pixels of two channels, a kernel of two pixels, one pixel of padding before.
  const Window w{.kernel = {1, 2}, .strides = {1, 1}, .pads = {0, 1, 0, 0}};
  const Problem p = problem(kTypes[0], {1, 1, 3, 2}, 1, w);
  const std::vector<Dense> in = {{{1, 1, 3, 2}, {1, 2, 3, 4, 5, 6}}, {{1, 4}, {1, 10, 100, 1000}}};
  EXPECT_EQ(compute_reference(op(), p, in)[0].v, (std::vector<double>{2100, 4321, 6543}));
  // Two groups: each sees its own channel.
  Window grouped = w;
  grouped.groups = 2;
  const Problem g = problem(kTypes[0], {1, 1, 3, 2}, 2, grouped);
  const std::vector<Dense> of_groups = {in[0], {{2, 2}, {1, 10, 100, 1000}}};
  EXPECT_EQ(compute_reference(op(), g, of_groups)[0].v, (std::vector<double>{10, 2000, 31, 4200, 53, 6400}));
}

TEST(Conv2dRule, RefusesWhatDoesNotFit) {
  const auto result = [](const Window& w, const Shape& x, const Shape& weight) {
    return infer_types(op(), Problem{.op = "conv2d",
                                     .in = {dense_operand(x, kF16), dense_operand(weight, kF16)},
                                     .out = {},
                                     .attrs = {{"kernel", w.kernel},
                                               {"strides", w.strides},
                                               {"pads", w.pads},
                                               {"dilations", w.dilations},
                                               {"groups", w.groups}},
                                     .then = {}});
  };
  EXPECT_EQ((*result({}, {2, 8, 8, 4}, {6, 36}))[0], (Type{{2, 8, 8, 6}, kF16}));
  EXPECT_EQ((*result({.strides = {2, 3}}, {2, 8, 8, 4}, {6, 36}))[0].shape, (Shape{2, 4, 3, 6}));
  EXPECT_FALSE(result({}, {2, 8, 8, 4}, {6, 35}).ok());
  EXPECT_FALSE(result({.groups = 3}, {2, 8, 8, 4}, {6, 12}).ok());
  EXPECT_FALSE(result({.strides = {0, 1}}, {2, 8, 8, 4}, {6, 36}).ok());
  EXPECT_FALSE(result({.strides = {1}}, {2, 8, 8, 4}, {6, 36}).ok());
  EXPECT_FALSE(result({.pads = {-1, 0, 0, 0}}, {2, 8, 8, 4}, {6, 36}).ok());
  EXPECT_FALSE(result({.pads = {int64_t{1} << 40, 0, 0, 0}}, {2, 8, 8, 4}, {6, 36}).ok());
  EXPECT_FALSE(result({.dilations = {8, 8}}, {2, 8, 8, 4}, {6, 36}).ok());
  EXPECT_FALSE(result({}, {2, 8, 4}, {6, 36}).ok());
}

}  // namespace
}  // namespace tessera
