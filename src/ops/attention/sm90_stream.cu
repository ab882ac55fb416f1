// SPDX-License-Identifier: Apache-2.0
// attention/sm90_stream: f16 and bf16 heads of up to 256 columns, any number of keys, causal masks, a bias. Scores
// never leave the chip; keys and values stream through shared memory (tiles/sm90/stream.cuh). Query heads that share
// keys are rows of one tile.
#include "ops/attention/sm90_contract.h"

#ifdef __CUDACC__
#include "ops/attention/sm90_stream_kernel.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "attention/sm90_stream";

Verdict accepts(const Problem& problem) {
  const AttentionProblem a = AttentionProblem::of(problem);
  TS_REQUIRE(a.q == QuantType(Element::f16) || a.q == QuantType(Element::bf16), "multiplies f16 or bf16, not ",
             to_string(a.q));
  TS_REQUIRE(!a.p, "does not round the softmax, asked for in ", to_string(*a.p), "; attention/cpu does");
  return accepts_stream(problem, a);
}

#ifdef __CUDACC__

template <class Half>
StreamChoice choose(const Problem& problem) {
  using sm90::StreamConfig;
  const AttentionProblem a = AttentionProblem::of(problem);
  const int64_t columns = std::max(a.head_size, a.value_size);
  if (columns <= 64) return stream_choice<StreamConfig<Half, 64, 128, false>>();
  if (columns <= 96) return stream_choice<StreamConfig<Half, 96, 128, false>>();
  if (columns <= 128) return stream_choice<StreamConfig<Half, 128, 128, false>>();
  using Split = StreamConfig<Half, 256, 64, true>;
  static_assert(Split::kRows == kStreamRows);
  if (const int slices = stream_slices(problem)) return stream_choice<Split>(slices);
  return stream_choice<StreamConfig<Half, 256, 64, false>>();
}

Result<std::unique_ptr<Kernel>> bind(const Problem& problem) {
  return bind_stream(kName, problem,
                     problem.in[0].type.element == Element::f16 ? choose<__half> : choose<__nv_bfloat16>);
}

#endif

}  // namespace

const Variant& attention_sm90_stream() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::sm90,
                                .accepts = accepts,
                                .arithmetic = half_wgmma_arithmetic,
                                .configs = stream_configs,
                                .emulate = emulate_stream,
                                .operand_align = 16,
                                .sass = shows({"HGMMA"}),
#ifdef __CUDACC__
                                .bind = bind
#endif
  };
  return kVariant;
}

}  // namespace tessera
