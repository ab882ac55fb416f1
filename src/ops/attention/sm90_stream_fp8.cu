// SPDX-License-Identifier: Apache-2.0
// attention/sm90_stream_fp8: e4m3 queries, keys and values with one static scale each, heads of up to 256 columns, any
// number of keys, causal masks, a bias. Weights are rounded to e4m3 as well, against the largest score so far: keys
// stream past, and the row's true maximum is known only at the end. So a weight's code differs from that of the
// definition by up to half a step of each rounding (Arithmetic::operand_error; errors.cc); the sum is that of the
// unrounded weights.
#include "archs/sm90/fp8.h"
#include "ops/attention/sm90_contract.h"

#ifdef __CUDACC__
#include "ops/attention/sm90_stream_kernel.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "attention/sm90_stream_fp8";

Verdict accepts(const Problem& problem) {
  const AttentionProblem a = AttentionProblem::of(problem);
  TS_REQUIRE(a.q == kE4m3PerTensor, "multiplies e4m3 with one static scale, not ", to_string(a.q));
  TS_REQUIRE(a.p == kE4m3PerTensor,
             "multiplies the softmax in e4m3, which attr p must ask for (p = e4m3:tensor(f32)); it asks for ",
             a.p ? to_string(*a.p) : "none");
  return accepts_stream(problem, a);
}

// Scores are summed over the whole head, results over one block of 128 keys, before they become f32.
Arithmetic arithmetic(const Problem& p) {
  return {.computed = Element::e4m3,
          .instruction = "wgmma e4m3 (QGMMA), f32 sums of blocks of 128 keys",
          .accumulator_bits = sm90::kFp8AccumulatorBits,
          .promote_every = static_cast<int>(std::max<int64_t>(128, p.in[0].shape.back())),
          .operand_error = 0x1p-4};  // weights, rounded against the maximum so far
}

#ifdef __CUDACC__

StreamChoice choose(const Problem& problem) {
  using sm90::StreamConfig;
  using Code = __nv_fp8_e4m3;
  const AttentionProblem a = AttentionProblem::of(problem);
  const int64_t columns = std::max(a.head_size, a.value_size);
  if (columns <= 64) return stream_choice<StreamConfig<Code, 64, 128, false>>();
  if (columns <= 96) return stream_choice<StreamConfig<Code, 96, 128, false>>();
  if (columns <= 128) return stream_choice<StreamConfig<Code, 128, 128, false>>();
  using Split = StreamConfig<Code, 256, 128, true>;
  static_assert(Split::kRows == kStreamRows);
  if (const int slices = stream_slices(problem)) return stream_choice<Split>(slices);
  return stream_choice<StreamConfig<Code, 256, 128, false>>();
}

Result<std::unique_ptr<Kernel>> bind(const Problem& problem) { return bind_stream(kName, problem, choose); }

#endif

}  // namespace

const Variant& attention_sm90_stream_fp8() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::sm90,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .configs = stream_configs,
                                .emulate = emulate_stream,
                                .operand_align = 16,
                                .sass = shows({"QGMMA"}),
#ifdef __CUDACC__
                                .bind = bind
#endif
  };
  return kVariant;
}

}  // namespace tessera
