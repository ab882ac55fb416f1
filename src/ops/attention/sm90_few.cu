// SPDX-License-Identifier: Apache-2.0
// attention/sm90_few: few queries of f16 or bf16 on up to 1024 keys, as a phase of a chain
// (tiles/sm90/chain/few_attend.cuh). By itself it is a chain of one phase, which costs more than attention/sm90_stream:
// only a chain asks for it.
#include "ops/attention/sm90_contract.h"
#include "tiles/sm90/chain/chain.h"
#include "tiles/sm90/chain/chain_shape.h"
#include "tiles/sm90/chain/few_keys.h"

#ifdef __CUDACC__
#include "tiles/sm90/chain/chain.cuh"
#include "tiles/sm90/tensor_map.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "attention/sm90_few";

Verdict accepts(const Problem& problem) {
  const AttentionProblem a = AttentionProblem::of(problem);
  TS_REQUIRE(a.q == QuantType(Element::f16) || a.q == QuantType(Element::bf16), "multiplies f16 or bf16, not ",
             to_string(a.q));
  TS_REQUIRE(!a.p, "does not round the softmax, asked for in ", to_string(*a.p), "; attention/cpu does");
  TS_REQUIRE(!a.has_bias, "adds no bias");
  TS_REQUIRE(a.head_size == a.value_size && (a.head_size == 64 || a.head_size == 128 || a.head_size == 256),
             "heads have 64, 128 or 256 columns, the same for values, here ", a.head_size, " and ", a.value_size);
  TS_REQUIRE(a.queries > 0 && a.queries <= sm90::kMostFewQueries, "takes 1 to ", sm90::kMostFewQueries,
             " queries, here ", a.queries);
  TS_REQUIRE(a.keys <= sm90::kMostFewKeys, "takes at most ", sm90::kMostFewKeys, " keys, here ", a.keys);
  TS_REQUIRE(a.batch * a.heads > 0 && a.batch * a.heads < (1 << 20), "there must be a head, and fewer than 2^20");
  TS_REQUIRE(is_device_number(a.y) && a.y.element != Element::f32,
             "writes f16, bf16, or e4m3 with one static f32 scale, not ", to_string(a.y));
  return accepts_for_wgmma(problem, a, sm90::kMostFewHead);
}

int rows_of(const AttentionProblem& a) {
  const int rows = sm90::chain_tokens(a.queries * a.batch);
  return rows > 0 ? rows : sm90::kMostFewQueries;
}

ChainForm chain(const Problem& problem) {
  const AttentionProblem a = AttentionProblem::of(problem);
  ChainForm form{
      .refusal = {}, .kinds = {cat(rows_of(a), " rows of ", info(a.q.element).name)}, .config = {}, .early = {4}};
  if (a.q.element == Element::bf16) form.kinds.push_back(cat(rows_of(a), " rows of e4m3"));
  return form;
}

Arithmetic arithmetic(const Problem& p) {
  const bool f16 = p.in[0].type.element == Element::f16;
  return {.computed = f16 ? Element::f16 : Element::bf16,
          .instruction = "mma.sync m16n8k16 (HMMA), f32 sums",
          .accumulator_bits = 23,                    // tensor cores truncate where they align addends
          .operand_error = f16 ? 0x1p-11 : 0x1p-8};  // weights are rounded before they are multiplied with v
}

Emulation emulate(const Problem& problem, std::span<const TensorView> in, std::span<const TensorView> out) {
  return emulate_attention(problem, in, out, {.core = &kMmaHalf, .slices = sm90::kFewSlices});
}

#ifdef __CUDACC__

class FewKernel final : public Kernel {
 public:
  explicit FewKernel(const Problem& problem) : problem_(problem), a_(AttentionProblem::of(problem_)) {}

  // By itself: a chain is made for these addresses, when they are first seen.
  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    TS_ASSIGN(const Bytes record, phase(in, out));
    if (chain_ == nullptr || record.size() != known_.size() ||
        !std::equal(record.span().begin(), record.span().end(), known_.span().begin())) {
      TS_ASSIGN(chain_, sm90::Chain::make(std::span(&record, 1)));
      known_ = record;
    }
    return chain_->launch(stream.handle);
  }

  Result<Bytes> phase(std::span<const TensorView> in, std::span<const TensorView> out) const override {
    for (const void* p : {in[0].data, in[1].data, in[2].data, out[0].data}) {
      if (!is_aligned(p, 16)) return machine_error(cat(kName, ": an operand does not start at a multiple of 16 bytes"));
    }
    sm90::ChainPhase f{};
    f.kind = sm90::ChainKind::kAttention;
    f.element = a_.q.element;
    f.tokens = rows_of(a_);
    f.units = static_cast<int>(a_.batch * a_.heads);
    f.split = sm90::kFewSlices;
    TS_ASSIGN(f.maps[0], map_of(in[0], a_.q_strides, a_.heads, a_.queries, sm90::kFewRows));
    TS_ASSIGN(f.maps[1], map_of(in[1], a_.k_strides, a_.kv_heads, a_.keys, sm90::kFewGroup));
    TS_ASSIGN(f.maps[2], map_of(in[2], a_.v_strides, a_.kv_heads, a_.keys, sm90::kFewGroup));
    f.attention = {.queries = static_cast<int>(a_.queries),
                   .keys = static_cast<int>(a_.keys),
                   .heads = static_cast<int>(a_.heads),
                   .heads_per_kv = static_cast<int>(a_.heads / a_.kv_heads),
                   .head_size = static_cast<int>(a_.head_size),
                   .causal = a_.causal,
                   .scale = static_cast<float>(a_.scale * 1.44269504088896341),
                   .k_data = in[1].data,
                   .v_data = in[2].data,
                   .k_bytes = reach_bytes(a_.k_strides, a_.kv_heads),
                   .v_bytes = reach_bytes(a_.v_strides, a_.kv_heads),
                   .y = out[0].data,
                   .y_element = a_.y.element,
                   .y_scale = static_cast<const float*>(out[0].scale)};
    if (a_.has_lengths) {
      f.attention.lengths = static_cast<const int32_t*>(in[4].data);
      f.attention.length_stride = static_cast<int>(a_.length_stride);
      f.attention.fresh = static_cast<int>(a_.fresh);
    }
    return sm90::chain_record(f);
  }

 private:
  int64_t reach_bytes(const Shape& s, int64_t heads) const {
    return 2 * ((a_.batch - 1) * s[0] + (a_.keys - 1) * s[1] + (heads - 1) * s[2] + a_.head_size);
  }
  // Boxes of 64 columns of one head and so many tokens.
  Result<CUtensorMap> map_of(const TensorView& t, const Shape& s, int64_t heads, int64_t tokens, int box) const {
    return cuda::make_tensor_map<4>({t.data,
                                     a_.q.element,
                                     {a_.head_size, heads, tokens, a_.batch},
                                     {copy_stride(heads, s[2]), copy_stride(tokens, s[1]), copy_stride(a_.batch, s[0])},
                                     {64, 1, box, 1}});
  }

  const Problem problem_;
  const AttentionProblem a_;
  std::unique_ptr<sm90::Chain> chain_;
  Bytes known_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& problem) {
  return std::unique_ptr<Kernel>(std::make_unique<FewKernel>(problem));
}

#endif

}  // namespace

const Variant& attention_sm90_few() {
  static const Variant kVariant{
      .name = kName,
      .arch = Arch::sm90,
      .accepts = accepts,
      .arithmetic = arithmetic,
      .chain = chain,
      .only_in_chains = true,
      .emulate = emulate,
      .operand_align = 16,
      .sass = {.rules = {{.kernels = "__nv_fp8_e4m3", .must = {"QGMMA", "HMMA"}}, {.must = {"HGMMA", "HMMA"}}},
               .local = "chains of 64 rows keep what four pieces of a tile wait for"},
#ifdef __CUDACC__
      .bind = bind
#endif
  };
  return kVariant;
}

}  // namespace tessera
