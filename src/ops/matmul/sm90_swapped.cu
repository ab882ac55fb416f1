// SPDX-License-Identifier: Apache-2.0
// matmul/sm90_swapped: few rows, where the latency of one kernel is what counts. Rows of w are the rows of wgmma's
// tiles and tokens its columns, K is split over a cluster, and the weights are loaded while the kernel before still
// runs (tiles/sm90/swapped.cuh; shapes and their choice: tiles/sm90/swapped_shape.h).
#include "archs/sm90/chip.h"
#include "ops/matmul/sm90_contract.h"
#include "tiles/sm90/swapped_shape.h"

#ifdef __CUDACC__
#include "tiles/cuda/launch.cuh"
#include "tiles/sm90/swapped.cuh"
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
  return accepts_on_wgmma(problem, p, {.gates = true, .widens = true, .folds = true});
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
  return wgmma_arithmetic(problem.in[0].type.element,
                          problem.then.find(StepKind::act) != nullptr || problem.then.gated() ? kActivationError : 0);
}

int k_blocks_of(const MatmulProblem& p) { return static_cast<int>((p.k * info(p.x.element).bits / 8 + 127) / 128); }

// "64x4": tiles of 64 tokens, K in 4 slices.
std::string name_of(const sm90::SwappedShape& s) { return cat(s.tokens, "x", s.split); }

std::vector<std::string> configs(const Problem& problem) {
  constexpr size_t kMost = 12;  // what build --tune measures
  const MatmulProblem p = MatmulProblem::of(problem);
  std::vector<std::string> names;
  for (const sm90::SwappedShape& s : sm90::rank_swapped_shapes(p.m, p.n, k_blocks_of(p), sm90::kSms)) {
    if (names.size() < kMost) names.push_back(name_of(s));
  }
  return names;
}

sm90::SwappedShape shape_of(const Problem& problem) {
  for (const int tokens : sm90::kSwappedTokens) {
    for (int split = 1; split <= 8; split *= 2) {
      if (name_of({tokens, split}) == problem.config) return {tokens, split};
    }
  }
  const MatmulProblem p = MatmulProblem::of(problem);
  return sm90::rank_swapped_shapes(p.m, p.n, k_blocks_of(p), sm90::kSms)[0];
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

template <class In, bool kGated>
KernelFunction pick_tokens(int tokens) {
  switch (tokens) {
    case 16:
      return sm90::multiply_swapped<In, kGated, 16>;
    case 32:
      return sm90::multiply_swapped<In, kGated, 32>;
    case 64:
      return sm90::multiply_swapped<In, kGated, 64>;
    default:
      return sm90::multiply_swapped<In, kGated, 112>;
  }
}

template <class In>
KernelFunction pick_gate(bool gated, int tokens) {
  return gated ? pick_tokens<In, true>(tokens) : pick_tokens<In, false>(tokens);
}

KernelFunction pick(Element element, bool gated, int tokens) {
  switch (element) {
    case Element::e4m3:
      return pick_gate<__nv_fp8_e4m3>(gated, tokens);
    case Element::i8:
      return pick_gate<int8_t>(gated, tokens);
    case Element::bf16:
      return pick_gate<__nv_bfloat16>(gated, tokens);
    default:
      return pick_gate<__half>(gated, tokens);
  }
}

class SwappedKernel final : public Kernel {
 public:
  SwappedKernel(const Problem& problem, const sm90::SwappedShape& shape)
      : problem_(problem),
        p_(MatmulProblem::of(problem_)),
        shape_(shape),
        memory_(sm90::swapped_memory(shape_, k_blocks_of(p_))),
        function_(pick(p_.x.element, p_.then->gated(), shape_.tokens)) {}

  Status prepare() { return cuda::allow_shared_memory(kName, function_, sm90::kSwappedSharedLimit); }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    if (p_.m * p_.n == 0) return {};
    const int64_t tiles_m = divide_up(p_.m, shape_.tokens), stored = stored_w_rows(problem_);
    // A gate's 32 results are 64 stored rows.
    const int64_t tiles_n = divide_up(p_.then->gated() ? stored : p_.n, sm90::kSwappedChannels);
    sm90::SwappedParams params{.m = static_cast<int>(p_.m),
                               .n = static_cast<int>(p_.n),
                               .k_blocks = k_blocks_of(p_),
                               .tiles_m = static_cast<int>(tiles_m),
                               .shape = shape_,
                               .stages = memory_.stages,
                               .body_bytes = memory_.body_bytes,
                               .barriers = memory_.barriers,
                               .x_scale = static_cast<const float*>(in[0].scale),
                               .w_scale = static_cast<const float*>(in[1].scale),
                               .w_scale_stride = p_.w.scale.granularity == Granularity::kChannel ? 1 : 0,
                               .y_scale = static_cast<const float*>(out[0].scale),
                               .y = out[0].data,
                               .y_element = p_.y.element,
                               .cols = static_cast<int>(p_.cols),
                               .second_half = static_cast<int>(stored / 2)};
    sm90::SwappedMaps maps{};
    TS_ASSIGN(maps.x, cuda::make_matrix_map(in[0].data, p_.x.element, p_.m, p_.k, p_.x_row_stride, shape_.tokens));
    TS_ASSIGN(maps.w, cuda::make_matrix_map(in[1].data, p_.w.element, stored, p_.k, p_.k,
                                            sm90::kSwappedChannels / (p_.then->gated() ? 2 : 1)));
    for (const Step& s : p_.then->steps) {
      const TensorView* operand = s.operand >= 0 ? &in[static_cast<size_t>(s.operand)] : nullptr;
      if (s.kind == StepKind::bias) params.bias = operand->data, params.bias_element = operand->desc->type.element;
      if (s.kind == StepKind::scale) params.gain = operand->data, params.gain_element = operand->desc->type.element;
      if (operand_of(s.kind) == StepOperand::kVector) params.computed = params.computed || !operand->desc->constant;
      if (s.kind == StepKind::residual)
        params.residual = operand->data, params.residual_stride = operand->desc->rows().row_stride;
      if (names_function(s.kind)) params.act = smooth_activation(s.fn);
      if (s.kind == StepKind::normalise) {
        const FoldedNorm norm = FoldedNorm::of(problem_.attrs);
        params.rows = {static_cast<const float2*>(operand->data),
                       static_cast<int>(p_.k),
                       static_cast<int>(moment_groups(p_.k)),
                       1.0f / static_cast<float>(p_.k),
                       norm.eps,
                       norm.rms};
      }
    }
    const ExtraResults extra = ExtraResults::of(problem_.attrs);
    if (extra.moments > 0) params.moments = static_cast<float2*>(out[static_cast<size_t>(extra.moments)].data);
    if (extra.codes > 0) {
      const TensorView& codes = out[static_cast<size_t>(extra.codes)];
      params.codes = codes.data, params.codes_element = codes.desc->type.element,
      params.codes_scale = static_cast<const float*>(codes.scale);
    }
    return cuda::launch_overlapping(kName, function_, tiles_n * tiles_m * shape_.split, sm90::kSwappedThreads,
                                    static_cast<size_t>(memory_.bytes), stream.handle, shape_.split, maps, params);
  }

 private:
  const Problem problem_;
  const MatmulProblem p_;
  const sm90::SwappedShape shape_;
  const sm90::SwappedMemory memory_;
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
                                .layouts = layouts_for_wgmma,
                                .emulate = emulate,
                                .operand_align = 16,
                                .sass = {.rules = {{.kernels = "__half", .must = {"HGMMA"}},
                                                   {.kernels = "__nv_bfloat16", .must = {"HGMMA"}},
                                                   {.kernels = "__nv_fp8_e4m3", .must = {"QGMMA"}},
                                                   {.kernels = "signed char", .must = {"IGMMA"}}}},
#ifdef __CUDACC__
                                .bind = bind
#endif
  };
  return kVariant;
}

}  // namespace tessera
