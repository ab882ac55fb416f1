// SPDX-License-Identifier: Apache-2.0
// What the tests of all variants share. A Case is a problem with operands and the exact results (f64, before the last
// rounding). run_on runs a variant on it, host or GPU, results poisoned and guarded; expect_close holds what came out
// against what the variant may give (op/judge.h), and mutations.h shows that wrong results would have been seen.
// CUDA variants without a device are skipped; those that ran leave a receipt (receipts.h).
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "archs/cuda/device_memory.h"
#include "base/buffer.h"
#include "op/judge.h"

namespace tessera {

enum class Values : uint8_t {
  kRandom,
  kZeros,
  kExtremes,  // zeros of both signs, subnormals, the smallest and large magnitudes side by side
};

struct HostTensor {
  Operand desc;
  Buffer data, scale, scale2;
  TensorView view() const;
  double number(int64_t i) const;  // i-th in row order of a dense tensor, scales applied
};

struct Case {
  Problem problem;
  std::vector<HostTensor> in;
  std::vector<HostTensor> out;  // scales only: data is empty, scales that are made while running are poison
  std::vector<Dense> numbers;   // the operands, decoded
  std::vector<Dense> exact;     // results before rounding
  size_t shift = 0;             // bytes from a multiple of 256 to where operands and results begin
  std::string text() const;     // the problem in a line
};

// The problem with its results' types filled in: by the op's rule, or `y` where given. Fails the test where the op
// refuses the operands.
Problem make_problem(std::string op, std::vector<Operand> in, Attrs attrs = {}, Program then = {},
                     std::optional<QuantType> y = {});
// An operand whose rows (last axis) are `gap` elements further apart than they are long, as in a slice of a wider
// matrix.
Operand gapped(const Shape& shape, const QuantType& type, int64_t gap);
// The same elements with two axes exchanged: a view of a dense tensor.
Operand swapped(const Shape& shape, const QuantType& type, size_t axis, size_t other);

// Operands for any problem. Gaps between strided elements hold NaN; scales are positive and random; a result's
// static scale lets a few numbers saturate. `adjust` may replace the drawn numbers of operand i (ids, masks).
using Adjust = void (*)(const Problem& problem, size_t i, std::vector<double>& numbers);
Case make_case(const Problem& problem, uint64_t seed, Values values = Values::kRandom, Adjust adjust = nullptr);

// Runs the variant as the executor would: weights in its layouts, workspace, memory of its arch. Checks that nothing
// outside the results was written.
Result<std::vector<HostTensor>> run_on(const Variant& variant, const Case& c);

// What the variant may give for the case, whose problem names a config.
Judge judge_of(const Variant& variant, const Case& c);
std::vector<TensorView> views_of(const std::vector<HostTensor>& tensors);
// Compares and records the worst result, as a share of what is allowed.
void expect_close(const Variant& variant, const Case& c, const Judge& judge, const std::vector<HostTensor>& got);

// One problem on one variant, with each of its tile shapes: run, compare, and on random numbers see that mutated
// results are caught. Returns false where the variant refuses.
bool check_variant(const Variant& variant, const Problem& problem, uint64_t seed, Values values,
                   Adjust adjust = nullptr);

// Every variant of the op, with a device here or not, accepts one of the problems, names its arithmetic and refuses
// with a reason.
void expect_each_accepts(const OpInfo& op, const std::vector<Problem>& problems);

// "cuda_cublaslt" of "matmul/cuda_cublaslt": the name of a parameterised test.
std::string short_name(const ::testing::TestParamInfo<const Variant*>& info);

}  // namespace tessera

#define TS_SKIP_WITHOUT_DEVICE(variant) \
  if (const std::string ts_why = ::tessera::why_no_device((variant).arch); !ts_why.empty()) GTEST_SKIP() << ts_why
