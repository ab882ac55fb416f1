// SPDX-License-Identifier: Apache-2.0
#include "profile/step_facts.h"

#include <gtest/gtest.h>

#include "ops/ops.h"
#include "types/element.h"

namespace tessera {
namespace {

PlanTensor tensor(const Shape& shape, const QuantType& type, Storage storage) {
  PlanTensor t;
  t.desc = dense_operand(shape, type, storage == Storage::kConstant);
  t.storage = storage;
  return t;
}

// x[6,16] f16 times w[24,16] with e4m3 codes and a scale per channel, to f16.
Plan one_matmul() {
  Plan p{.name = "batch6", .arch = Arch::cpu, .batch = 6};
  p.tensors = {tensor({6, 16}, kE4m3PerTensor, Storage::kArena), tensor({24, 16}, kE4m3PerChannel, Storage::kConstant),
               tensor({6, 24}, Element::f16, Storage::kArena)};
  p.steps = {{.layer = "fc1", .op = "matmul", .variant = "matmul/cpu", .in = {0, 1}, .out = {2}}};
  p.steps[0].asked = "fp8", p.steps[0].computed = "fp32", p.steps[0].config = "tall";
  p.steps[0].arithmetic = "FMA, 24-bit sums";
  return p;
}

// Of 3 queries and 5 keys, 2 heads of 8, in the carrier.
Plan one_attention() {
  Plan p{.name = "batch1", .arch = Arch::cpu, .batch = 1};
  p.tensors = {tensor({1, 3, 2, 8}, Element::f16, Storage::kArena), tensor({1, 5, 2, 8}, Element::f16, Storage::kArena),
               tensor({1, 5, 2, 8}, Element::f16, Storage::kArena),
               tensor({1, 3, 2, 8}, Element::f16, Storage::kArena)};
  p.steps = {{.layer = "attn", .op = "attention", .variant = "attention/cpu", .in = {0, 1, 2}, .out = {3}}};
  p.steps[0].computed = "fp32";
  return p;
}

TEST(StepFacts, OfAMatmul) {
  const Plan plan = one_matmul();
  const KernelTime k = facts_of(plan, plan.steps[0]);
  EXPECT_EQ(k.name, "matmul/cpu tall");
  EXPECT_EQ(k.layer, "fc1");
  EXPECT_EQ(k.kernel_class, KernelClass::kGemm);
  EXPECT_EQ(k.precision, "fp32") << "what is multiplied";
  EXPECT_EQ(k.asked, "fp8");
  EXPECT_EQ(k.arithmetic, "FMA, 24-bit sums");
  EXPECT_DOUBLE_EQ(*k.flops, 2.0 * 6 * 24 * 16);
  EXPECT_DOUBLE_EQ(*k.bytes, 6 * 16 + 4 + 24 * 16 + 24 * 4 + 6 * 24 * 2) << "codes, their scales, and the result";
}

TEST(StepFacts, WhatIsAskedIsThePrecisionOfTheProducts) {
  Plan plan = one_matmul();
  const auto asked = [&](const char* words) {
    plan.steps[0].asked = words;
    return facts_of(plan, plan.steps[0]).asked;
  };
  EXPECT_EQ(asked("w4a8"), "fp8");
  EXPECT_EQ(asked("nvfp4"), "fp4");
  EXPECT_EQ(asked("int8"), "int8");
  EXPECT_EQ(asked("fp8 2:4"), "fp8");
  EXPECT_EQ(asked(""), "");
  EXPECT_EQ(asked("imported"), "fp8") << "as the operand has it";
  plan.tensors[0].desc.type = Element::bf16;
  EXPECT_EQ(asked("w4a16"), "bf16") << "a plain input is multiplied in the carrier";
}

TEST(StepFacts, AttentionIsAskedToKeepTheCarrierUnlessTold) {
  Plan plan = one_attention();
  const auto asked = [&](const char* words) {
    plan.steps[0].asked = words;
    return facts_of(plan, plan.steps[0]).asked;
  };
  EXPECT_EQ(asked(""), "fp16");
  EXPECT_EQ(asked("fp8"), "fp8");
}

TEST(StepFacts, PrecisionsHaveOneWordEach) {
  for (const auto& [computed, word] : {std::pair{"fp32", "fp32"},
                                       {"f32", "fp32"},
                                       {"fp16", "fp16"},
                                       {"f16", "fp16"},
                                       {"bf16", "bf16"},
                                       {"e4m3", "fp8"},
                                       {"e5m2", "fp8"},
                                       {"e2m1", "fp4"},
                                       {"int8", "int8"},
                                       {"i8", "int8"}})
    EXPECT_EQ(precision_word(computed), word);
}

Problem problem_of_op(const char* op, std::vector<Operand> in, std::vector<Operand> out) {
  return {.op = op, .in = std::move(in), .out = std::move(out), .attrs = {}, .then = {}};
}

TEST(StepFacts, EveryOpHasAClass) {
  const Operand x = dense_operand({4, 4}, Element::f16);
  for (const OpInfo* op : all_ops())
    EXPECT_NE(class_of(problem_of_op(op->name, {x, x, x}, {x})), KernelClass::kOther) << op->name;
  EXPECT_EQ(class_of(problem_of_op("copy", {x}, {x})), KernelClass::kCopy);
  EXPECT_EQ(class_of(problem_of_op("copy", {x}, {dense_operand({4, 4}, Element::f32)})), KernelClass::kConversion);
  Operand turned = x;
  turned.strides = {1, 4};
  EXPECT_EQ(class_of(problem_of_op("copy", {turned}, {x})), KernelClass::kConversion) << "a transpose";
  EXPECT_EQ(class_of(problem_of_op("new_op", {x}, {x})), KernelClass::kOther);
}

TEST(StepFacts, BytesAreThoseThatMove) {
  const Operand table = dense_operand({1000, 8}, Element::f16, true), ids = dense_operand({4}, Element::i32),
                rows = dense_operand({4, 8}, Element::f16);
  EXPECT_DOUBLE_EQ(moved_bytes(problem_of_op("gather", {table, ids}, {rows})), 4 * 4 + 2 * 4 * 8 * 2)
      << "rows that are read, not the table";
  const Operand cache = dense_operand({1, 512, 8}, Element::f16), fresh = dense_operand({1, 1, 8}, Element::f16);
  EXPECT_DOUBLE_EQ(moved_bytes(problem_of_op("write", {cache, fresh}, {cache})), 2 * 8 * 2) << "the new row, twice";
  Operand mask = dense_operand({4, 8}, Element::f16);
  mask.strides = {0, 1};
  EXPECT_DOUBLE_EQ(moved_bytes(problem_of_op("map", {rows, mask}, {rows})), (32 + 8 + 32) * 2)
      << "a row that repeats lies there once";
}

}  // namespace
}  // namespace tessera
