// SPDX-License-Identifier: Apache-2.0
// matmul/sm90_swapped: few rows, where the latency of one kernel is what counts. Rows of w are the rows of wgmma's
// tiles and tokens its columns, K is split over a cluster, and the weights are loaded while the kernel before still
// runs (tiles/sm90/swapped.cuh; shapes and their choice: tiles/sm90/swapped_shape.h).
#include "archs/sm90/chip.h"
#include "ops/matmul/sm90_contract.h"
#include "tiles/sm90/chain/chain_shape.h"
#include "tiles/sm90/swapped_shape.h"

#ifdef __CUDACC__
#include "ops/matmul/sm90_swapped_operands.cuh"
#include "tiles/cuda/launch.cuh"
#include "tiles/sm90/chain/chain.cuh"
#include "tiles/sm90/tensor_map.cuh"
#endif

namespace tessera {
namespace {

static_assert(sm90::kSwappedChannels == kMomentsGroup, "a block writes the moments of its channels");

constexpr const char* kName = "matmul/sm90_swapped";
constexpr int64_t kMostRows = 1024;
// Writing moments costs time that grows with the rows; the norm kernel that they replace costs nearly the same for any.
// ViT-B in FP8 on an H200, norms folded against not: 0.279 and 0.313 ms at 197 rows, 0.455 and 0.430 ms at 394.
constexpr int64_t kMostRowsOfMoments = 256;

Verdict accepts(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  TS_REQUIRE(p.m <= kMostRows, "takes at most ", kMostRows, " rows, here ", p.m);
  if (const int at = ExtraResults::of(problem.attrs).gain; at > 0) {
    const QuantType& gain = problem.in[static_cast<size_t>(at)].type;
    TS_REQUIRE(gain == QuantType(Element::f32) || gain == p.y, "multiplies codes by a vector of f32 or of ",
               to_string(p.y), ", not ", to_string(gain));
  }
  return accepts_on_wgmma(problem, p,
                          {.gates = true, .widens = true, .folds = true, .heads = true, .bf16_vectors = true});
}

// Each tile of tokens reads all weights once more: with many rows that is what the L2 is busy with.
Verdict worthwhile(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  TS_REQUIRE(p.m <= 512, "slow beyond 512 rows, here ", p.m);
  if (ExtraResults::of(problem.attrs).moments > 0)
    TS_REQUIRE(p.m <= kMostRowsOfMoments, "slow at the moments of more than ", kMostRowsOfMoments, " rows, here ", p.m);
  return {};
}

Arithmetic arithmetic(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  return wgmma_arithmetic(p.x.element, activation_error_of(p, /*in_half=*/false));
}

int k_blocks_of(const MatmulProblem& p) { return static_cast<int>((p.k * info(p.x.element).bits / 8 + 127) / 128); }

// With 112 tokens in one block, angles beside the sums do not fit the registers (24 bytes were spilled).
constexpr int kMostTokensOfHeads = 64;

// Best guess first.
std::vector<sm90::SwappedShape> shapes_of(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  std::vector<sm90::SwappedShape> shapes = sm90::rank_swapped_shapes(p.m, p.n, k_blocks_of(p), sm90::kSms);
  if (finishes_heads(problem))
    std::erase_if(shapes, [](const sm90::SwappedShape& s) { return s.tokens > kMostTokensOfHeads; });
  return shapes;
}

// "64x4": tiles of 64 tokens, K in 4 slices.
std::string name_of(const sm90::SwappedShape& s) { return cat(s.tokens, "x", s.split); }

sm90::SwappedShape shape_of(const Problem& problem) {
  for (const int tokens : sm90::kSwappedTokens) {
    for (int split = 1; split <= 8; split *= 2) {
      if (name_of({tokens, split}) == problem.config) return {tokens, split};
    }
  }
  return shapes_of(problem)[0];
}

// Of a chain (tiles/sm90/chain/chain_shape.h): the slices of K that keep most blocks busy. 0: x does not fit.
constexpr int kMostChainXBytes = 128 * 1024;
int64_t stored_tiles(const Problem& problem, const MatmulProblem& p) {
  // A gate's 32 results are 64 stored rows.
  return divide_up(p.then->gated() ? stored_w_rows(problem) : p.n, sm90::kSwappedChannels);
}
int chain_split_of(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  return sm90::chain_split(static_cast<int>(stored_tiles(problem, p)), k_blocks_of(p), sm90::chain_tokens(p.m),
                           sm90::kSms, kMostChainXBytes);
}

Verdict may_chain(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  TS_REQUIRE(p.m > 0 && sm90::chain_tokens(p.m) > 0, "chains have up to 64 rows, here ", p.m);
  TS_REQUIRE(p.x.element != Element::i8, "chains multiply f16, bf16 and e4m3");
  TS_REQUIRE(p.n > 0 && chain_split_of(problem) > 0, "rows of x do not fit a chain's shared memory");
  return {};
}

ChainForm chain(const Problem& problem) {
  ChainForm form{.refusal = may_chain(problem).refusal, .kinds = {}, .config = {}, .early = {}};
  if (!form.refusal.empty()) return form;
  const MatmulProblem p = MatmulProblem::of(problem);
  form.kinds = {cat(sm90::chain_tokens(p.m), " rows of ", info(p.x.element).name)};
  // Tokens are those of the kernel by itself; a chain goes by the slices.
  form.config = name_of({p.m <= 16 ? 16 : p.m <= 32 ? 32 : 64, chain_split_of(problem)});
  std::vector<bool> late(problem.in.size(), false);
  late[0] = true;
  for (const Step& s : p.then->steps) {
    if (s.kind == StepKind::residual || s.kind == StepKind::normalise) late[static_cast<size_t>(s.operand)] = true;
  }
  for (const KeptColumns& kept : kept_columns(problem.attrs)) late[static_cast<size_t>(kept.before)] = true;
  for (size_t i = 0; i < late.size(); ++i) {
    if (!late[i]) form.early.push_back(static_cast<int>(i));
  }
  return form;
}

std::vector<std::string> configs(const Problem& problem) {
  constexpr size_t kMost = 12;  // what build --tune measures
  std::vector<std::string> names;
  for (const sm90::SwappedShape& s : shapes_of(problem)) {
    if (names.size() < kMost) names.push_back(name_of(s));
  }
  const std::string in_chain = chain(problem).config;
  if (!in_chain.empty() && std::find(names.begin(), names.end(), in_chain) == names.end()) names.push_back(in_chain);
  return names;
}

// Slices of k, each walked from its first block on, are added up in f32, the first one first.
Emulation emulate(const Problem& problem, std::span<const TensorView> in, std::span<const TensorView> out) {
  const MatmulProblem p = MatmulProblem::of(problem);
  SumOrder order{wgmma_core(p.x.element)};
  const int split = shape_of(problem).split, block = 128 * 8 / info(p.x.element).bits;
  for (int s = 0; s < split; ++s) order.slices.push_back(int64_t{sm90::slice_begin(k_blocks_of(p), split, s)} * block);
  return emulate_wgmma(problem, in, out, order, Mainloop::kSwapped);
}

#ifdef __CUDACC__

using KernelFunction = void (*)(sm90::SwappedMaps, sm90::SwappedParams);

template <class In, sm90::SwappedKind kKind>
KernelFunction pick_tokens(int tokens) {
  switch (tokens) {
    case 16:
      return sm90::multiply_swapped<In, kKind, 16>;
    case 32:
      return sm90::multiply_swapped<In, kKind, 32>;
    case 64:
      return sm90::multiply_swapped<In, kKind, 64>;
    default:
      break;
  }
  if constexpr (kKind == sm90::SwappedKind::kHeads) {
    return sm90::multiply_swapped<In, kKind, kMostTokensOfHeads>;
  } else {
    return sm90::multiply_swapped<In, kKind, 112>;
  }
}

template <class In>
KernelFunction pick_kind(sm90::SwappedKind kind, int tokens) {
  switch (kind) {
    case sm90::SwappedKind::kGated:
      return pick_tokens<In, sm90::SwappedKind::kGated>(tokens);
    case sm90::SwappedKind::kHeads:
      return pick_tokens<In, sm90::SwappedKind::kHeads>(tokens);
    default:
      return pick_tokens<In, sm90::SwappedKind::kPlain>(tokens);
  }
}

KernelFunction pick(Element element, sm90::SwappedKind kind, int tokens) {
  switch (element) {
    case Element::e4m3:
      return pick_kind<__nv_fp8_e4m3>(kind, tokens);
    case Element::i8:
      return pick_kind<int8_t>(kind, tokens);
    case Element::bf16:
      return pick_kind<__nv_bfloat16>(kind, tokens);
    default:
      return pick_kind<__half>(kind, tokens);
  }
}

class SwappedKernel final : public Kernel {
 public:
  SwappedKernel(const Problem& problem, const sm90::SwappedShape& shape)
      : problem_(problem),
        p_(MatmulProblem::of(problem_)),
        operands_(kName, problem_),
        shape_(shape),
        memory_(sm90::swapped_memory(shape_, k_blocks_of(p_))),
        kind_(swapped_kind_of(problem_)),
        function_(pick(p_.x.element, kind_, shape_.tokens)) {}

  Status prepare() { return cuda::allow_shared_memory(kName, function_, sm90::kSwappedSharedLimit); }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    if (p_.m * p_.n == 0) return {};
    TS_TRY(operands_.copy_kept(in, out, stream));
    sm90::SwappedMaps maps{};
    TS_ASSIGN(maps, maps_of(in, shape_.tokens));
    const int64_t tiles = stored_tiles(problem_, p_) * divide_up(p_.m, shape_.tokens);
    return cuda::launch_overlapping(kName, function_, tiles * shape_.split, sm90::kSwappedThreads,
                                    static_cast<size_t>(memory_.bytes), stream.handle, shape_.split, maps,
                                    params_of(in, out));
  }

  Result<Bytes> phase(std::span<const TensorView> in, std::span<const TensorView> out) const override {
    for (const KeptColumns& kept : kept_columns(problem_.attrs)) {
      if (in[static_cast<size_t>(kept.before)].data != out[operands_.kept_result_of(kept)].data)
        return bad_input(cat(kName, ": a chain keeps columns where they are, and this tensor has memory of its own"));
    }
    sm90::ChainPhase f{};
    f.kind = kind_ == sm90::SwappedKind::kGated   ? sm90::ChainKind::kGated
             : kind_ == sm90::SwappedKind::kHeads ? sm90::ChainKind::kHeads
                                                  : sm90::ChainKind::kPlain;
    f.element = p_.x.element;
    f.tokens = sm90::chain_tokens(p_.m);
    f.units = static_cast<int>(stored_tiles(problem_, p_));
    f.split = shape_.split;
    f.k_blocks = k_blocks_of(p_);
    TS_ASSIGN(const sm90::SwappedMaps maps, maps_of(in, f.tokens));
    f.maps[0] = maps.x, f.maps[1] = maps.w;
    f.x_chunks = chunks_of(f.split);
    if (f.x_chunks > 0) {
      const int64_t chunk = 128 * 8 / info(p_.x.element).bits;
      TS_ASSIGN(f.maps[0], cuda::make_tensor_map<3>({in[0].data,
                                                     p_.x.element,
                                                     {chunk, p_.m, p_.k / chunk},
                                                     {p_.x_row_stride, chunk},
                                                     {static_cast<int>(chunk), f.tokens, f.x_chunks}}));
    }
    f.matmul = params_of(in, out);
    return sm90::chain_record(f);
  }

 private:
  // Pieces of 128 bytes that one box of x holds, so that a slice is a few loads; none where rows end within a piece:
  // what lies behind them would be read.
  int chunks_of(int split) const {
    if (p_.k * info(p_.x.element).bits % (128 * 8) != 0 || k_blocks_of(p_) % split != 0) return 0;
    const int slice = k_blocks_of(p_) / split;
    return slice % 16 == 0 ? 16 : slice % 8 == 0 ? 8 : slice % 4 == 0 ? 4 : slice % 2 == 0 ? 2 : 1;
  }
  Result<sm90::SwappedMaps> maps_of(std::span<const TensorView> in, int tokens) const {
    sm90::SwappedMaps maps{};
    TS_ASSIGN(maps.x, cuda::make_matrix_map(in[0].data, p_.x.element, p_.m, p_.k, p_.x_row_stride, tokens));
    TS_ASSIGN(maps.w, cuda::make_matrix_map(in[1].data, p_.w.element, stored_w_rows(problem_), p_.k, p_.k,
                                            sm90::kSwappedChannels / (kind_ == sm90::SwappedKind::kPlain ? 1 : 2)));
    return maps;
  }

  sm90::SwappedParams params_of(std::span<const TensorView> in, std::span<const TensorView> out) const {
    sm90::SwappedParams params = operands_.params(in, out);
    params.k_blocks = k_blocks_of(p_);
    params.tiles_m = static_cast<int>(divide_up(p_.m, shape_.tokens));
    params.shape = shape_;
    params.stages = memory_.stages, params.body_bytes = memory_.body_bytes, params.barriers = memory_.barriers;
    return params;
  }

  const Problem problem_;
  const MatmulProblem p_;
  const SwappedOperands operands_;
  const sm90::SwappedShape shape_;
  const sm90::SwappedMemory memory_;
  const sm90::SwappedKind kind_;
  const KernelFunction function_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& problem) {
  auto kernel = std::make_unique<SwappedKernel>(problem, shape_of(problem));
  TS_TRY(kernel->prepare());
  return std::unique_ptr<Kernel>(std::move(kernel));
}

#endif

}  // namespace

const Variant& matmul_sm90_swapped() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::sm90,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .worthwhile = worthwhile,
                                .configs = configs,
                                .chain = chain,
                                .layouts = layouts_for_wgmma,
                                .emulate = emulate,
                                .operand_align = 16,
                                .sass = {.rules = {{.kernels = "__half", .must = {"HGMMA"}},
                                                   {.kernels = "__nv_bfloat16", .must = {"HGMMA"}},
                                                   {.kernels = "__nv_fp8_e4m3", .must = {"QGMMA"}},
                                                   {.kernels = "signed char", .must = {"IGMMA"}},
                                                   {.must = {"LDG"}}}},  // copies of kept tensors
#ifdef __CUDACC__
                                .bind = bind
#endif
  };
  return kVariant;
}

}  // namespace tessera
