// SPDX-License-Identifier: Apache-2.0
// What a layer's own arithmetic excuses: a step that sums nothing is not given the roundings of a sum.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "plan/engine_file.h"
#include "verify/verify.h"

namespace tessera {
namespace {

constexpr int64_t kWidth = 4096;

PlanTensor row(const std::string& name, Storage storage, int64_t index) {
  PlanTensor t;
  t.name = name;
  t.desc = dense_operand({1, kWidth}, Element::f32, storage == Storage::kConstant);
  t.storage = storage;
  t.index = index;
  return t;
}

Plan adding(const std::string& name, Arch arch, const std::string& variant, int64_t constant) {
  Plan p{.name = name, .arch = arch, .batch = 1};
  p.tensors = {row("x", Storage::kInput, 0), row("b", Storage::kConstant, constant), row("y", Storage::kOutput, 0)};
  PlanStep s{.layer = "add", .op = "map", .variant = variant, .in = {0, 1}, .out = {2}};
  s.attrs.set("fn", std::string("add"));
  p.steps = {s};
  p.inputs = {{"x", 0}};
  p.outputs = {{"y", 2}};
  return p;
}

Bytes constant(float all, float one) {
  Buffer b(4 * kWidth);
  for (int64_t i = 0; i < kWidth; ++i) std::memcpy(b.data() + 4 * i, i == 1234 ? &one : &all, 4);
  return Bytes::own(std::move(b));
}

// y = x + b, where the plan's own b differs from the golden plan's in one number.
Result<VerifyReport> verify_with(float one) {
  Engine e;
  e.target = Arch::cpu;
  e.constants = {{"b", constant(100, 100)}, {"other b", constant(100, one)}};
  e.plans = {adding("main", Arch::cpu, "map/cpu", 1), adding("golden", Arch::ref, "map/reference", 0)};
  EXPECT_TRUE(check_engine(e).ok()) << check_engine(e).message();
  return verify_engine(e);
}

TEST(Layers, OneWrongSumIsNotExcusedByTheWidthOfItsRow) {
  const auto right = verify_with(100);
  ASSERT_TRUE(right.ok()) << right.status().message();
  EXPECT_TRUE(right->ok) << right->sentence;
  // An addition errs by one unit, 2^-24; the walk's multiple allows four. 2^-19 would pass as a sum of 4096 terms.
  const auto wrong = verify_with(100 * (1 + 0x1p-19f));
  ASSERT_TRUE(wrong.ok()) << wrong.status().message();
  EXPECT_FALSE(wrong->ok);
  EXPECT_EQ(wrong->first_stray, 0);
}

}  // namespace
}  // namespace tessera
