// SPDX-License-Identifier: Apache-2.0
// attention/sm90_short: heads of up to 128 channels with at most 256 keys, all of them in shared memory; f16, bf16, or
// e4m3 with the softmax rounded to e4m3. The kernel is tiles/sm90/short/short.cuh; here is what it takes, which
// instantiation, and how the work is cut.
#include "archs/sm90/fp8.h"
#include "ops/attention/sm90_contract.h"

#ifdef __CUDACC__
#include "tiles/cuda/launch.cuh"
#include "tiles/sm90/short/short_attend.cuh"
#include "tiles/sm90/tensor_map.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "attention/sm90_short";
constexpr int64_t kMaxHead = 128, kMaxKeys = 256;

bool is_fp8(const AttentionProblem& p) { return p.q == kE4m3PerTensor; }

Verdict accepts(const Problem& problem) {
  const AttentionProblem p = AttentionProblem::of(problem);
  const QuantType f16 = Element::f16, bf16 = Element::bf16;
  TS_REQUIRE(p.q == f16 || p.q == bf16 || is_fp8(p), "multiplies f16, bf16 or e4m3:tensor(f32), not ", to_string(p.q));
  if (is_fp8(p)) {
    TS_REQUIRE(p.p == kE4m3PerTensor, "multiplies e4m3 with a softmax rounded to e4m3:tensor(f32), here ",
               p.p ? to_string(*p.p) : "not rounded");
    TS_REQUIRE(p.y == f16 || p.y == bf16 || p.y == kE4m3PerTensor,
               "writes f16, bf16, or e4m3 with one static scale, not ", to_string(p.y));
  } else {
    TS_REQUIRE(!p.p, "does not round the softmax of ", to_string(p.q), ", asked for in ", to_string(*p.p),
               "; attention/cpu does");
    TS_REQUIRE(p.y == p.q || p.y == kE4m3PerTensor || p.y == kInt8PerTensor,
               "writes the type it reads, or e4m3 or int8 with one static scale, not ", to_string(p.y));
  }
  TS_REQUIRE(p.head_size > 0 && p.value_size > 0, "a head must have a column");
  TS_REQUIRE(p.keys <= kMaxKeys, "holds at most 256 keys of a head, here ", p.keys);
  TS_REQUIRE(!p.causal && !p.has_bias, "has no causal mask and no bias");
  TS_REQUIRE(!p.has_lengths, "lengths: holds all keys of a head at once, however few are valid");
  return accepts_for_wgmma(problem, p, kMaxHead);
}

Arithmetic arithmetic(const Problem& p) {
  if (p.in[0].type.element != Element::e4m3) return half_wgmma_arithmetic(p);
  return {.computed = Element::e4m3,
          .instruction = "wgmma e4m3 (QGMMA), sums of about 13 bits, statistics in f32",
          .accumulator_bits = sm90::kFp8AccumulatorBits};
}

// All keys at once; heads of 64 columns with more than 208 keys in halves (ShortForm::kHalves): 16-bit weights are made
// against the greatest score so far, codes against that of all, their products beginning with the second half.
Emulation emulate(const Problem& problem, std::span<const TensorView> in, std::span<const TensorView> out) {
  const AttentionProblem p = AttentionProblem::of(problem);
  const int64_t half = std::max(p.head_size, p.value_size) <= 64 && p.keys > 208 ? 128 : 0;
  return emulate_attention(problem, in, out,
                           {.core = is_fp8(p) ? &kWgmmaE4m3 : &kWgmmaHalf,
                            .block = is_fp8(p) ? 0 : half,
                            .fused_offset = true,
                            .first_product = is_fp8(p) ? half : 0});
}

#ifdef __CUDACC__

using sm90::ShortForm, sm90::ShortMaps, sm90::ShortParams, sm90::ShortResult;

// One instantiation, as the host sees it.
struct Picked {
  void (*function)(ShortMaps, ShortParams);
  int block_channels, keys, value_rows;  // boxes of the tensor maps
  int consumers;
  size_t shared_bytes;
};
template <class Operand, int kHead, int kKeys>
Picked pick() {
  using F = ShortForm<Operand, kHead, kKeys>;
  return {sm90::attend_short<F>, F::kBlockChannels, F::kKeys, F::kValueRows, F::kConsumers, F::kSharedBytes};
}
template <class Operand>
Picked pick(int64_t head, int64_t keys) {
  if constexpr (sizeof(Operand) == 1) {
    if (head > 64 && head <= 96) return pick<Operand, 96, 256>();
  }
  if (head > 64) return pick<Operand, 128, 256>();
  if (keys <= 128) return pick<Operand, 64, 128>();
  return keys <= 208 ? pick<Operand, 64, 208>() : pick<Operand, 64, 256>();
}

class ShortKernel final : public Kernel {
 public:
  ShortKernel(const Problem& problem, int sms) : problem_(problem), p_(AttentionProblem::of(problem_)), sms_(sms) {
    const int64_t head = std::max(p_.head_size, p_.value_size);
    picked_ = is_fp8(p_)                     ? pick<__nv_fp8_e4m3>(head, p_.keys)
              : p_.q.element == Element::f16 ? pick<__half>(head, p_.keys)
                                             : pick<__nv_bfloat16>(head, p_.keys);
  }
  Status prepare() { return cuda::allow_shared_memory(kName, picked_.function, picked_.shared_bytes); }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    if (p_.batch * p_.queries * p_.heads == 0) return {};
    const auto map = [&](const TensorView& t, const Shape& strides, int64_t heads, int64_t tokens, int64_t size,
                         int box_channels, int box_tokens) {
      return cuda::make_tensor_map<4>(
          {t.data,
           t.desc->type.element,
           {size, heads, tokens, p_.batch},
           {copy_stride(heads, strides[2]), copy_stride(tokens, strides[1]), copy_stride(p_.batch, strides[0])},
           {box_channels, 1, box_tokens, 1}});
    };
    const bool codes = info(p_.y.element).bits == 8;
    const int value_bytes = static_cast<int>(p_.value_size) * info(p_.y.element).bits / 8;
    ShortMaps maps;
    TS_ASSIGN(maps.q,
              map(in[0], p_.q_strides, p_.heads, p_.queries, p_.head_size, picked_.block_channels, sm90::kQueryTile));
    TS_ASSIGN(maps.k,
              map(in[1], p_.k_strides, p_.kv_heads, p_.keys, p_.head_size, picked_.block_channels, picked_.keys));
    TS_ASSIGN(maps.v, map(in[2], p_.v_strides, p_.kv_heads, p_.keys, p_.value_size, picked_.block_channels,
                          picked_.value_rows));
    const int64_t heads = p_.batch * p_.heads, tiles = divide_up(p_.queries, sm90::kQueryTile);
    const int take = sm90::choose_tiles_per_visit(heads, p_.queries, sms_);
    const int per_head = static_cast<int>(divide_up(tiles, take)), visits = static_cast<int>(heads) * per_head;
    const auto scale = [](const TensorView& t) { return static_cast<const float*>(t.scale); };
    const ShortParams params{
        .visits = visits,
        .visits_per_head = per_head,
        .tiles_per_visit = take,
        .queries = static_cast<int>(p_.queries),
        .keys = static_cast<int>(p_.keys),
        .last_tile = static_cast<int>(tiles) - 1,
        .last_idle = static_cast<uint32_t>(3 - (p_.queries - 1) % sm90::kQueryTile / sm90::kWarpRows),
        .per_head = FastDivide(static_cast<uint32_t>(per_head)),
        .heads = FastDivide(static_cast<uint32_t>(p_.heads)),
        .heads_per_kv = static_cast<int>(p_.heads / p_.kv_heads),
        .scale_log2 = static_cast<float>(p_.scale * sm90::kLog2e),
        .q_scale = scale(in[0]),
        .k_scale = scale(in[1]),
        .v_scale = scale(in[2]),
        .y_scale = scale(out[0]),
        .result = p_.y.element == Element::i8    ? ShortResult::kI8
                  : codes                        ? ShortResult::kE4m3
                  : p_.y.element == Element::f16 ? ShortResult::kF16
                                                 : ShortResult::kBf16,
        .backward = problem_.backward,
        .y = static_cast<uint8_t*>(out[0].data),
        .row_bytes = p_.heads * value_bytes,
        .value_bytes = value_bytes,
        .whole_pieces = value_bytes % 16 == 0};
    // Where each block has one visit, warpgroups beyond its tiles would have nothing to do. (Fewer of them than slots
    // for queries: only there, where no slot is used twice.)
    const int64_t busy = visits <= sms_ ? std::min<int64_t>({picked_.consumers, take, tiles}) : picked_.consumers;
    return cuda::launch_overlapping(kName, picked_.function, std::min(sms_, visits),
                                    static_cast<int>(1 + busy) * sm90::kWarpgroup, picked_.shared_bytes, stream.handle,
                                    1, maps, params);
  }

 private:
  const Problem problem_;
  const AttentionProblem p_;
  const int sms_;
  Picked picked_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& problem) {
  int device = 0, sms = 0;
  TS_TRY(cuda::cuda_status(kName, cudaGetDevice(&device)));
  TS_TRY(cuda::cuda_status(kName, cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device)));
  auto kernel = std::make_unique<ShortKernel>(problem, sms);
  TS_TRY(kernel->prepare());
  return std::unique_ptr<Kernel>(std::move(kernel));
}

#endif

}  // namespace

const Variant& attention_sm90_short() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::sm90,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .emulate = emulate,
                                .operand_align = 16,
                                .sass = {.rules = {{.kernels = "__half", .must = {"HGMMA"}},
                                                   {.kernels = "__nv_bfloat16", .must = {"HGMMA"}},
                                                   {.kernels = "__nv_fp8_e4m3", .must = {"QGMMA"}}}},
#ifdef __CUDACC__
                                .bind = bind
#endif
  };
  return kVariant;
}

}  // namespace tessera
