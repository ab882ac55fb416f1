// SPDX-License-Identifier: Apache-2.0
// Every step of ir/steps.inc, by what it says of itself: reference, error rule, functor and unfused form are of one
// function; it prints and reads back; its shape rule refuses what does not fit.
#include "steps/step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "ir/text.h"
#include "steps/row_moments.h"
#include "steps/unary.h"

namespace tessera {
namespace {

constexpr int64_t kCols = 96;

std::vector<StepKind> every_kind() {
  std::vector<StepKind> kinds;
  for (size_t i = 0; i < kStepKinds; ++i) kinds.push_back(static_cast<StepKind>(i));
  return kinds;
}

// A step as a program would have it; its operand, where it has one, is the third.
Step example(StepKind kind) {
  Step step{.kind = kind, .numbers = info(kind).example};
  if (names_function(kind)) step.fn = Unary::silu;
  if (operand_of(kind) != StepOperand::kNone) step.operand = 2;
  return step;
}

Shape operand_shape(StepKind kind, int64_t rows, int64_t cols, int64_t x_cols) {
  switch (operand_of(kind)) {
    case StepOperand::kNone:
      return {};
    case StepOperand::kVector:
      return {cols};
    case StepOperand::kMatrix:
      return {rows, cols};
    case StepOperand::kMoments:
      return {rows, moment_groups(x_cols), 2};
    case StepOperand::kAngles:
      return {rows, 2};
  }
  return {};
}

std::vector<double> draw(size_t n, uint64_t seed, double size = 2) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, size);
  std::vector<double> v(n);
  for (double& x : v) x = static_cast<float>(normal(random));
  return v;
}

// One row before a step, its operand and what the reference makes of it.
struct Row {
  explicit Row(StepKind kind) : step(example(kind)), before(draw(kCols, 1)), operand(draw(kCols, 2)) {
    if (operand_of(kind) == StepOperand::kMoments) take_moments(draw(kCols, 3).data(), kCols, operand.data());
    const bool reads = operand_of(kind) != StepOperand::kNone;
    row = std::make_unique<StepRow>(StepRow{.step = step,
                                            .attrs = attrs,
                                            .cols = kCols,
                                            .operand = reads ? operand.data() : nullptr,
                                            .operand_cols = operand_of(kind) == StepOperand::kAngles ? 2 : kCols,
                                            .x_cols = kCols});
    after = refer(before);
  }
  std::vector<double> refer(std::vector<double> v) const {
    if (info(step.kind).reference != nullptr) info(step.kind).reference(*row, v.data());
    return v;
  }
  Step step;
  Attrs attrs{{kFoldedEps, 1e-6}};
  std::vector<double> before, operand, after;
  std::unique_ptr<StepRow> row;
};

double of_map(const StepMap& map, double v, double operand) {
  const double b = map.with == StepMap::With::kNumber ? map.number : operand;
  if (map.with == StepMap::With::kNothing) return apply(*find_unary(map.fn), v);
  static const std::map<std::string, std::function<double(double, double)>> kBinary = {
      {"add", [](double x, double y) { return x + y; }},
      {"sub", [](double x, double y) { return x - y; }},
      {"mul", [](double x, double y) { return x * y; }},
      {"div", [](double x, double y) { return x / y; }},
      {"min", [](double x, double y) { return std::min(x, y); }},
      {"max", [](double x, double y) { return std::max(x, y); }}};
  return kBinary.at(map.fn)(v, b);
}

TEST(Steps, HaveNamesAndFormsOfTheirOwn) {
  std::set<std::string> names;
  for (const StepKind kind : every_kind()) {
    EXPECT_TRUE(names.insert(name_of(kind)).second) << name_of(kind);
    EXPECT_EQ(find_step(name_of(kind)), kind);
    EXPECT_LE(form_of(kind).numbers, kMaxStepNumbers);
    EXPECT_STRNE(info(kind).meaning, "");
    EXPECT_TRUE(info(kind).rounds || info(kind).reference != nullptr) << name_of(kind) << " does nothing";
    EXPECT_EQ(info(kind).reference == nullptr, info(kind).errors == nullptr) << name_of(kind);
    EXPECT_TRUE(form_of(kind).operand == StepOperand::kNone || info(kind).check != nullptr) << name_of(kind);
    EXPECT_TRUE(info(kind).unfused == nullptr || info(kind).run != nullptr)
        << name_of(kind) << " is maps of numbers, and functors.h does not include it";
  }
  EXPECT_EQ(find_step("softmax"), std::nullopt);
}

TEST(Steps, ReferenceIsTheUnfusedForm) {
  int compared = 0;
  for (const StepKind kind : every_kind()) {
    if (info(kind).unfused == nullptr) continue;
    const Row r(kind);
    for (size_t c = 0; c < kCols; ++c) {
      double v = r.before[c];
      for (const StepMap& map : info(kind).unfused(r.step)) v = of_map(map, v, r.operand[c]);
      EXPECT_NEAR(r.after[c], v, 1e-12 * (1 + std::fabs(v))) << name_of(kind);
      ++compared;
    }
  }
  EXPECT_GE(compared, 4 * kCols);
}

// The maps of a step are found to be that step, its function and numbers read off them; a map more does not matter.
TEST(Steps, AreFoundInTheirUnfusedForm) {
  for (const StepKind kind : every_kind()) {
    if (info(kind).unfused == nullptr) continue;
    const Step step = example(kind);
    std::vector<StepMap> maps = info(kind).unfused(step);
    const size_t count = maps.size();
    maps.push_back({"floor"});
    const auto found = find_fused(maps);
    ASSERT_TRUE(found) << name_of(kind);
    EXPECT_EQ(found->step.kind, kind);
    EXPECT_EQ(found->step.fn, step.fn);
    EXPECT_EQ(found->step.numbers, step.numbers);
    EXPECT_EQ(found->count, count);
    if (operand_of(kind) == StepOperand::kNone) continue;
    EXPECT_TRUE(maps[found->operand].with == StepMap::With::kVector ||
                maps[found->operand].with == StepMap::With::kMatrix);
    maps.erase(maps.begin(), maps.begin() + static_cast<std::ptrdiff_t>(count));
    EXPECT_FALSE(find_fused(maps));
  }
  // Neither GELU stands for the other, and a function that no model has between layers stays a map.
  for (const Unary fn : {Unary::gelu_erf, Unary::gelu_tanh}) {
    const StepMap map{name_of(fn)};
    ASSERT_TRUE(find_fused({&map, 1}));
    EXPECT_EQ(find_fused({&map, 1})->step.fn, fn);
  }
  const StepMap floor{"floor"}, one{"add", StepMap::With::kNumber, 1.0}, product{"mul", StepMap::With::kMatrix};
  EXPECT_FALSE(find_fused({&floor, 1}));
  EXPECT_EQ(find_fused({&one, 1})->step.kind, StepKind::bias);
  EXPECT_FALSE(find_fused({&product, 1}));
}

// What fp32 makes of numbers that are off already stays inside the error rule, which is not much wider than that.
TEST(Steps, ErrorRulesHoldForTheFunctorAndAreSharp) {
  for (const StepKind kind : every_kind()) {
    if (info(kind).run == nullptr) continue;
    for (const double off : {0.0, 1e-3}) {
      const Row r(kind);
      std::vector<float> v, operand(r.operand.begin(), r.operand.end());
      for (size_t c = 0; c < kCols; ++c) v.push_back(static_cast<float>(r.before[c] + (c % 2 == 0 ? off : -off)));
      info(kind).run(args_of(r.step), operand.data(), v.data(), kCols);
      std::vector<double> e(kCols, off == 0 ? 0 : off + 1e-6);  // and the rounding to f32 above
      info(kind).errors(*r.row, r.before.data(), r.after.data(), e.data());
      for (size_t c = 0; c < kCols; ++c) {
        EXPECT_NEAR(v[c], r.after[c], e[c]) << name_of(kind) << " of " << r.before[c];
        EXPECT_LE(e[c], (2 * off + 1e-5) * (2 + std::fabs(r.operand[c]) + std::fabs(r.after[c]))) << name_of(kind);
      }
    }
  }
}

// The reference moved by errors of its input stays inside the rule: gate and normalise too, which have no functor.
TEST(Steps, ErrorRulesHoldForTheReference) {
  for (const StepKind kind : every_kind()) {
    if (info(kind).errors == nullptr) continue;
    const Row r(kind);
    constexpr double kOff = 1e-4;
    std::vector<double> moved = r.before, e(kCols, kOff);
    for (size_t c = 0; c < kCols; ++c) moved[c] += c % 2 == 0 ? kOff : -kOff;
    moved = r.refer(moved);
    info(kind).errors(*r.row, r.before.data(), r.after.data(), e.data());
    bool changed = false;
    for (size_t c = 0; c < static_cast<size_t>(form_of(kind).halves ? kCols / 2 : kCols); ++c) {
      // Columns that a step leaves alone differ by kOff and its own rounding.
      EXPECT_LE(std::fabs(moved[c] - r.after[c]), e[c] + 1e-12) << name_of(kind);
      changed = changed || moved[c] != r.after[c];
    }
    EXPECT_TRUE(changed) << name_of(kind);
  }
}

TEST(Steps, PrintAndReadBack) {
  for (const StepKind kind : every_kind()) {
    const Step step = example(kind);
    const Shape operand = operand_shape(kind, 4, form_of(kind).halves ? 16 : 8, 32);
    const std::string text = cat("graph g {\n  in %x: f32[4,32]\n  in %o: f32", to_string(operand),
                                 "\n  const %w: f32[8,32] = seed(1)\n  %y: f32[4,", form_of(kind).halves ? 4 : 8,
                                 "] = matmul(%x, %w, %o) then ", text_of(step), "\n  out %y\n}\n");
    const auto graph = parse_graph(text);
    ASSERT_TRUE(graph.ok()) << graph.status().message() << "\n" << text;
    ASSERT_EQ(graph->nodes[0].then.steps.size(), 1u);
    EXPECT_EQ(graph->nodes[0].then.steps[0], step) << text;
    EXPECT_NE(print_graph(*graph).find(" then " + text_of(step) + "\n"), std::string::npos);
  }
  EXPECT_EQ(text_of({.kind = StepKind::act, .fn = Unary::gelu_erf}), "act(gelu_erf)");
  EXPECT_EQ(text_of({.kind = StepKind::bias, .operand = 3}), "bias(3)");
  EXPECT_EQ(text_of({.kind = StepKind::bias, .operand = 3}, false), "bias");
}

TEST(Steps, ShapeRulesRefuseWhatDoesNotFit) {
  for (const StepKind kind : every_kind()) {
    if (operand_of(kind) == StepOperand::kNone) continue;
    const Step step = example(kind);
    const Attrs attrs;
    const Shape x{6, 160}, y{6, 8};
    const QuantType f32 = Element::f32;
    const auto check = [&](const Shape& operand) {
      return info(kind).check({.step = step,
                               .attrs = attrs,
                               .x = x,
                               .y = y,
                               .cols = 8,
                               .count = 48,
                               .operand = operand,
                               .operand_type = f32,
                               .operand_dense = true});
    };
    const Shape fits = operand_shape(kind, 6, 8, 160);
    EXPECT_TRUE(check(fits).ok()) << name_of(kind) << ": " << check(fits).message();
    for (size_t axis = 0; axis < fits.size(); ++axis) {
      Shape other = fits;
      other[axis] += 1;
      EXPECT_NE(check(other).message().find("wants"), std::string::npos) << name_of(kind) << to_string(other);
    }
    EXPECT_FALSE(check({}).ok());
  }
}

TEST(Programs, KeepStepsInTheirPlaces) {
  const Step bias{.kind = StepKind::bias, .operand = 2};
  for (const StepKind kind : every_kind()) {
    const Step step = example(kind);
    const StepPlace place = form_of(kind).place;
    EXPECT_EQ(misplaced_step({{step, bias}}).empty(), place != StepPlace::kLast) << name_of(kind);
    EXPECT_EQ(misplaced_step({{bias, step}}).empty(), place != StepPlace::kFirst) << name_of(kind);
    EXPECT_EQ(misplaced_step({{step, step}}).empty(), place == StepPlace::kAny && !form_of(kind).halves);
    EXPECT_EQ(Program{{step}}.gated(), form_of(kind).halves);
    EXPECT_EQ((Program{{bias, step}}).cols_before(0, 12), form_of(kind).halves ? 24 : 12);
  }
}

TEST(StepSets, SayWhatTheyHold) {
  constexpr StepSet kOne = {StepKind::quantize}, kTwo = {StepKind::bias, StepKind::act};
  EXPECT_EQ(kOne.says_in_order(), "runs no program but quantize");
  EXPECT_EQ(kTwo.says_in_order(), "runs bias, act in this order only");
  EXPECT_EQ(kTwo.says_in_any_order(), "runs no steps but bias, act");
  const Step bias{.kind = StepKind::bias, .operand = 2}, act{.kind = StepKind::act, .fn = Unary::silu};
  EXPECT_TRUE((Program{{bias, act}}).is(kTwo) && (Program{{bias, act}}).within(kTwo));
  EXPECT_TRUE((Program{{act}}).within(kTwo) && !(Program{{act}}).is(kTwo));
  EXPECT_TRUE((Program{{act, bias}}).among(kTwo) && !(Program{{act, bias}}).within(kTwo));
  EXPECT_FALSE((Program{{bias, bias}}).within(kTwo));
  EXPECT_FALSE((Program{{bias, {.kind = StepKind::quantize}}}).among(kTwo));
}

}  // namespace
}  // namespace tessera
