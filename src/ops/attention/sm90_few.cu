// SPDX-License-Identifier: Apache-2.0
// attention/sm90_few: few queries of f16 or bf16 on up to 1024 keys, by mma.sync (tiles/sm90/chain/few_attend.cuh): a
// cluster of eight blocks takes a head of up to 16 queries, each an eighth of the keys. It can be a phase of a chain.
#include "archs/sm90/chip.h"
#include "ops/attention/sm90_contract.h"
#include "tiles/sm90/chain/chain.h"
#include "tiles/sm90/chain/chain_shape.h"
#include "tiles/sm90/chain/few_keys.h"

#ifdef __CUDACC__
#include "tiles/cuda/launch.cuh"
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

// By itself it is for a step of a decoder: few heads, each with many keys. More queries are a chain of one phase.
constexpr int64_t kLeastKeys = 192;
Verdict worthwhile(const Problem& problem) {
  const AttentionProblem a = AttentionProblem::of(problem);
  TS_REQUIRE(a.queries <= sm90::kFewRows, "slow beyond ", sm90::kFewRows, " queries, here ", a.queries);
  TS_REQUIRE(a.keys >= kLeastKeys, "slow below ", kLeastKeys, " keys, here ", a.keys);
  TS_REQUIRE(a.batch * a.heads * sm90::kFewSlices <= 2 * sm90::kSms, "slow beyond ", 2 * sm90::kSms / sm90::kFewSlices,
             " heads in all, here ", a.batch * a.heads);
  return {};
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

struct FewMaps {
  CUtensorMap q, k, v;
};

struct FewBlock {
  const sm90::FewMemory& m;
  uint32_t base;
  uint8_t* bytes;
  __device__ uint32_t stage(int i) const { return base + i * sm90::kChainStageBytes; }
  __device__ uint32_t received() const { return base + m.barriers; }
  __device__ uint32_t queries_full() const { return received() + 8; }
  __device__ uint32_t full(int i) const { return received() + 16 + i * 16; }
  __device__ uint32_t empty(int i) const { return full(i) + 8; }
};

// One thread: all that the block reads.
__device__ __forceinline__ void load_few(const FewMaps& maps, const sm90::FewParams& p, const FewBlock& b, int batch,
                                         int head, const sm90::FewSlice& slice) {
  const int chunks = p.head_size / 64;
  sm90::arrive_expecting(b.queries_full(), chunks * sm90::kFewRows * 128);
  for (int i = 0; i < chunks; ++i)
    sm90::load_box(b.base + b.m.queries + i * sm90::kFewRows * 128, &maps.q, i * 64, head, 0, batch, b.queries_full());
  sm90::RingPlace at;
#pragma unroll 1
  for (int i = 0; i < 2 * slice.groups() * chunks; ++i) {  // keys, then values
    const int box = i % (slice.groups() * chunks);
    sm90::wait(b.empty(at.stage), at.parity ^ 1);
    sm90::arrive_expecting(b.full(at.stage), sm90::kChainStageBytes);
    sm90::load_box(b.stage(at.stage), i == box ? &maps.k : &maps.v, box % chunks * 64, head / p.heads_per_kv,
                   slice.begin + box / chunks * sm90::kFewGroup, batch, b.full(at.stage));
    at.next(b.m.stages);
  }
}

__device__ __forceinline__ void sync_four() { sm90::sync_threads(1, 128); }

template <class Half>
__device__ __forceinline__ void attend_slice(const sm90::FewParams& p, const FewBlock& b, int batch, int head,
                                             const ValidKeys<int>& keys, const sm90::FewSlice& slice, int rank) {
  using namespace sm90;
  const FewPlace place{b.base + b.m.queries, b.base + b.m.weights, b.base + b.m.numbers,
                       b.base + b.m.numbers + 4 * kMostFewQueries * 4};
  FewAttention<Half, 1> a(p, place);
  a.keys = keys, a.slice = slice;
  wait(b.queries_full(), 0);
  RingPlace at;
  const auto next = [&] {
    wait(b.full(at.stage), at.parity);
    return b.stage(at.stage);
  };
  const auto done = [&] {
    fence_for_tma();  // the stage was read by ordinary loads
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(b.empty(at.stage));
    at.next(b.m.stages);
  };
  float s[1][kFewGroups][2][4];
  a.score(next, done, s);
  a.weigh([] { sync_four(); }, s);
  a.multiply([&](bool) { return next(); }, done);
  sync_four();  // no warp reads stages any more
  a.leave(b.bytes, 0);
  fence_for_tma();
  sync_four();
  const int to = static_cast<int>(threadIdx.x), sent = few_sent_bytes(p.head_size);
  const auto inbox = [&](int at_rank, int from) { return b.m.inbox + (from < at_rank ? from : from - 1) * sent; };
  if (to < kFewSlices && to != rank)
    send_to_block(address_in(b.base + inbox(to, rank), to), b.base + to * sent, sent, address_in(b.received(), to));
  __syncwarp();
  wait(b.received(), 0);
  __syncwarp();
  arrive_cluster();  // this block has what the others send
  a.template finish<false>([&](int of) { return b.bytes + (of == rank ? of * sent : inbox(rank, of)); }, batch, head, 0,
                           rank);
}

// Two barriers of the cluster, as in multiply_swapped (tiles/sm90/swapped.cuh).
template <class Half>
__global__ void __launch_bounds__(160, 2)
    attend_few(const __grid_constant__ FewMaps maps, const __grid_constant__ sm90::FewParams p,
               const __grid_constant__ sm90::FewMemory m) {
  using namespace sm90;
  cuda::let_next_kernel_start();
  extern __shared__ __align__(1024) uint8_t shared[];  // kSwizzleAtomBytes
  const FewBlock b{m, cuda::shared_address(shared), shared};
  const int rank = static_cast<int>(rank_in_cluster()), unit = static_cast<int>(blockIdx.x) / kFewSlices,
            batch = unit / p.heads, head = unit - batch * p.heads;
  const bool loader = threadIdx.x == 128;
  if (loader) {
    prefetch(&maps.q), prefetch(&maps.k), prefetch(&maps.v);
    init_barrier(b.received(), 1);
    init_barrier(b.queries_full(), 1);
    for (int i = 0; i < m.stages; ++i) {
      init_barrier(b.full(i), 1);
      init_barrier(b.empty(i), 4);
    }
    fence_barrier_init();
    fence_for_tma();
    arrive_expecting(b.received(), (kFewSlices - 1) * few_sent_bytes(p.head_size));
  }
  __syncwarp();
  sync_cluster();
  cuda::wait_for_earlier_kernels();
  const ValidKeys<int> keys = p.valid(batch);
  const FewSlice slice = few_slice(keys.all, rank);
  if (threadIdx.x >= 128) {
    if (loader) load_few(maps, p, b, batch, head, slice);
    __syncwarp();
    arrive_cluster();
  } else {
    attend_slice<Half>(p, b, batch, head, keys, slice, rank);
    __syncwarp();
  }
  wait_cluster();
}

class FewKernel final : public Kernel {
 public:
  explicit FewKernel(const Problem& problem)
      : problem_(problem),
        a_(AttentionProblem::of(problem_)),
        memory_(sm90::few_memory(static_cast<int>(a_.head_size))),
        function_(a_.q.element == Element::f16 ? attend_few<__half> : attend_few<__nv_bfloat16>) {}

  Status prepare() { return cuda::allow_shared_memory(kName, function_, sm90::kSwappedSharedLimit); }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    TS_ASSIGN(const Bytes record, phase(in, out));
    if (a_.queries <= sm90::kFewRows) {
      const auto& f = *reinterpret_cast<const sm90::ChainPhase*>(record.span().data());
      return cuda::launch_overlapping(kName, function_, int64_t{f.units} * sm90::kFewSlices, 160,
                                      static_cast<size_t>(memory_.bytes), stream.handle, sm90::kFewSlices,
                                      FewMaps{f.maps[0], f.maps[1], f.maps[2]}, f.attention, memory_);
    }
    // A chain is made for these addresses, when they are first seen.
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
  const sm90::FewMemory memory_;
  void (*const function_)(FewMaps, sm90::FewParams, sm90::FewMemory);
  std::unique_ptr<sm90::Chain> chain_;
  Bytes known_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& problem) {
  auto kernel = std::make_unique<FewKernel>(problem);
  TS_TRY(kernel->prepare());
  return std::unique_ptr<Kernel>(std::move(kernel));
}

#endif

}  // namespace

const Variant& attention_sm90_few() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::sm90,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .worthwhile = worthwhile,
                                .chain = chain,
                                .emulate = emulate,
                                .operand_align = 16,
                                .sass = {.rules = {{.kernels = "attend_few", .must = {"HMMA"}},
                                                   {.kernels = "__nv_fp8_e4m3", .must = {"QGMMA", "HMMA"}},
                                                   {.must = {"HGMMA", "HMMA"}}},
                                         .local = "chains of 64 rows keep what four pieces of a tile wait for"},
#ifdef __CUDACC__
                                .bind = bind
#endif
  };
  return kVariant;
}

}  // namespace tessera
