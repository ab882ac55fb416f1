// SPDX-License-Identifier: Apache-2.0
// Problems that the tests of matmul are about: types of operands and result, and programs by letters.
#pragma once

#include <string>

#include "op/extra_results.h"
#include "ops/matmul/matmul.h"
#include "ops/ops.h"
#include "testing/variant_harness.h"

namespace tessera {

inline const OpInfo& op() { return *find_op("matmul"); }

struct Types {
  QuantType x, w, y;
};
inline const QuantType kF32 = Element::f32, kF16 = Element::f16, kBf16 = Element::bf16;
inline QuantType running(QuantType type) {
  type.dynamic = true;
  return type;
}
inline const Types kTypes[] = {
    {kF32, kF32, kF32},
    {kF16, kF16, kF16},
    {kF16, kF16, kF32},
    {kBf16, kBf16, kBf16},
    {kE4m3PerTensor, kE4m3PerChannel, kF16},
    {kE4m3PerTensor, kE4m3PerTensor, kF16},
    {kE4m3PerTensor, kE4m3PerChannel, kF32},
    {kE4m3PerTensor, kE4m3PerChannel, kE4m3PerTensor},
    {kE4m3PerTensor, kE4m3PerTensor, kE4m3PerTensor},
    {kF16, kF16, kE4m3PerTensor},
    {kInt8PerTensor, kInt8PerChannel, kF16},
    {kInt8PerTensor, kInt8PerChannel, kF32},
    {kE4m3PerTensor, kE4m3PerChannel, kBf16},
    {kInt8PerTensor, kInt8PerTensor, kInt8PerTensor},
    {kInt8PerTensor, kInt8PerChannel, kInt8PerTensor},
    {kE4m3PerToken, kE4m3PerChannel, kF16},
    {running(kMxfp8), kMxfp8, kF16},
    {running(kNvfp4), kNvfp4, kF16},
    {kF16, kNvfp4, kF16},
    {kE4m3PerTensor, kNvfp4AsE4m3, kF16},
};

// Programs by name: the operands that they need are appended to the inputs. b bias, s scale, S one that is no constant,
// r residual, R residual of `few` rows, n normalise; c codes and m moments beside the result, C codes that a
// vector of f32 multiplies, which is no constant; else an activation, or in
// capitals a gate, which leaves n / 2 columns.
inline Problem problem(const Types& t, const Shape& x, int64_t n, const std::string& program, Element side) {
  const int64_t k = x.back();
  std::vector<Operand> in = {dense_operand(x, t.x), dense_operand({n, k}, t.w, /*constant=*/true)};
  Program then;
  Attrs attrs;
  const auto with = [&](StepKind kind, const Shape& shape, Element e) {
    then.steps.push_back({.kind = kind, .operand = static_cast<int>(in.size())});
    in.push_back(dense_operand(shape, e, operand_of(kind) == StepOperand::kVector));
  };
  const auto with_computed = [&](StepKind kind, const Shape& shape, Element e) {
    with(kind, shape, e);
    in.back().constant = false;
  };
  Shape y = x;
  y.back() = n;
  for (char c : program) {
    if (c == 'n') {
      with(StepKind::normalise, {elements(x) / k, moment_groups(k), 2}, Element::f32);
      attrs.set(kFoldedEps, 1e-6);
    }
    if (c == 'c') attrs.set(kCodesResult, int64_t{1});
    if (c == 'C') {
      attrs.set(kCodesResult, int64_t{1});
      attrs.set(kCodesGain, static_cast<int64_t>(in.size()));
      in.push_back(dense_operand({n}, Element::f32));
    }
    if (c == 'm') attrs.set(kMomentsResult, int64_t{1});
    if (c == 'b') with(StepKind::bias, {n}, side);
    if (c == 's') with(StepKind::scale, {n}, side);
    if (c == 'S') with_computed(StepKind::scale, {n}, side);
    if (c == 'r') with(StepKind::residual, y, side);
    if (c == 'R') with(StepKind::residual, {x[x.size() - 2], n}, side);
    if (c == 'g') then.steps.push_back({.kind = StepKind::act, .fn = Unary::gelu_erf});
    if (c == 't') then.steps.push_back({.kind = StepKind::act, .fn = Unary::gelu_tanh});
    if (c == 'q') then.steps.push_back({.kind = StepKind::act, .fn = Unary::gelu_quick});
    if (c == 'i') then.steps.push_back({.kind = StepKind::act, .fn = Unary::silu});
    if (c == 'u') then.steps.push_back({.kind = StepKind::act, .fn = Unary::relu});
    if (c == 'G') then.steps.push_back({.kind = StepKind::gate, .fn = Unary::gelu_erf});
    if (c == 'T') then.steps.push_back({.kind = StepKind::gate, .fn = Unary::gelu_tanh});
    if (c == 'Q') then.steps.push_back({.kind = StepKind::gate, .fn = Unary::gelu_quick});
    if (c == 'I') then.steps.push_back({.kind = StepKind::gate, .fn = Unary::silu});
    if (c == 'U') then.steps.push_back({.kind = StepKind::gate, .fn = Unary::relu});
    if (c == 'H') then.steps.push_back({.kind = StepKind::gate, .fn = Unary::tanh});
  }
  if (t.y.scaled()) then.steps.push_back({.kind = StepKind::quantize});
  return make_problem("matmul", std::move(in), std::move(attrs), std::move(then), t.y);
}

// Drops two numbers of each four of a weight that is to be 2:4 sparse, at places that differ from group to group and
// from row to row.
inline void prune(const Problem& p, size_t i, std::vector<double>& v) {
  if (i != 1 || !is_sparse24(p)) return;
  const size_t cols = static_cast<size_t>(p.in[1].shape.back());
  for (size_t at = 0; at < v.size(); ++at) {
    uint64_t mixed = (at / cols * 0x9e3779b97f4a7c15u) ^ ((at % cols / 4 + 1) * 0xc2b2ae3d27d4eb4fu);
    mixed ^= mixed >> 29;
    const size_t first = mixed % 4, second = (first + 1 + mixed / 4 % 3) % 4, col = at % cols % 4;
    if (col == first || col == second) v[at] = 0;
  }
}

}  // namespace tessera
