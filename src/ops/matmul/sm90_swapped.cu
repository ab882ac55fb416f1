// SPDX-License-Identifier: Apache-2.0
// matmul/sm90_swapped: few rows, where the latency of one kernel is what counts. Rows of w are the rows of wgmma's tiles and tokens its columns, K is split over a cluster, and
// the weights are loaded while the kernel before still runs (tiles/sm90_swapped.cuh; shapes and their choice: tiles/swapped_shape.h).
// SASS must: HGMMA, QGMMA, IGMMA
// SASS must not: HMMA
#include "ops/matmul/sm90_contract.h"
#include "tiles/swapped_shape.h"

#ifdef __CUDACC__
#include "tiles/cuda_launch.cuh"
#include "tiles/sm90_swapped.cuh"
#include "tiles/tensor_map.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "matmul/sm90_swapped";
constexpr int64_t kMostRows = 1024;
constexpr int kProcessors = 132;  // of the chip that shapes are chosen for: choices are made at build time

Verdict accepts(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  TS_REQUIRE(p.m <= kMostRows, "takes at most ", kMostRows, " rows, here ", p.m);
  return accepts_on_wgmma(problem, p, {.widens = true});
}

// Each tile of tokens reads all weights once more: with many rows that is what the L2 is busy with.
Verdict worthwhile(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  TS_REQUIRE(p.m <= 512, "slow beyond 512 rows, here ", p.m);
  return {};
}

Arithmetic arithmetic(const Problem& problem) {
  return wgmma_arithmetic(problem.in[0].type.element, problem.then.find(StepKind::act) != nullptr ? kActivationError : 0);
}

int k_blocks_of(const MatmulProblem& p) { return static_cast<int>((p.k * info(p.x.element).bits / 8 + 127) / 128); }

// "64x4": tiles of 64 tokens, K in 4 slices.
std::string name_of(const sm90::SwappedShape& s) { return cat(s.tokens, "x", s.split); }

std::vector<std::string> configs(const Problem& problem) {
  constexpr size_t kMost = 12;  // what build --tune measures
  const MatmulProblem p = MatmulProblem::of(problem);
  std::vector<std::string> names;
  for (const sm90::SwappedShape& s : sm90::rank_swapped_shapes(p.m, p.n, k_blocks_of(p), kProcessors)) {
    if (names.size() < kMost) names.push_back(name_of(s));
  }
  return names;
}

// The norm behind a matmul, as far as this kernel runs it. (ops/norm knows what the words mean.)
struct NextNorm {
  const Problem& p;
  bool rms() const { return p.attrs.word("kind", "layer") == "rms"; }
  float eps() const { return static_cast<float>(p.attrs.number("eps")); }
  const Operand* gain() const { return p.operand(1); }
  const Operand* shift() const { return p.operand(2); }
};

// Blocks of a cluster hold all channels of some tokens, each 64 of them, and may be 16 where the chip is asked for it; one slice of K. Tokens of a block: 32 read the weights
// often enough that all processors are busy (ViT-B b1: 84 blocks), and not more.
constexpr int kMostBlocks = 16;
int norm_tokens(int64_t rows) { return rows <= 16 ? 16 : 32; }
int statistics_bytes(int tokens) { return kMostBlocks * tokens * 8; }

Verdict takes_over(const Problem& own, const Problem& next) {
  const MatmulProblem p = MatmulProblem::of(own);
  TS_REQUIRE(next.op == "norm", "takes over a norm, not ", next.op);
  TS_REQUIRE(p.m > 0 && p.m <= 512, "takes over a norm of up to 512 rows, here ", p.m);
  TS_REQUIRE(is_half(p.y.element), "takes over a norm of 16-bit rows, not ", to_string(p.y));
  TS_REQUIRE(p.n % sm90::kSwappedChannels == 0 && p.n >= 2 * sm90::kSwappedChannels && p.n <= kMostBlocks * sm90::kSwappedChannels,
             "takes over a norm of rows that a cluster holds, multiples of 64 columns from 128 to 1024, here ", p.n);
  TS_REQUIRE(next.in[0].dense() && next.in[0].type == p.y && next.in[0].shape.back() == p.n && elements(next.in[0].shape) == p.m * p.n, "takes over a norm of its own rows");
  const QuantType& z = next.out[0].type;
  TS_REQUIRE(z == p.y || z == QuantType(Element::e4m3, {Granularity::kTensor, Element::f32}) || z == QuantType(Element::i8, {Granularity::kTensor, Element::f32}),
             "takes over a norm that writes the type it reads, or e4m3 or int8 with one static scale, not ", to_string(z));
  TS_REQUIRE(next.out[0].dense() && next.then.within({StepKind::quantize}), "takes over a norm with no program but quantize");
  for (const Operand* o : {NextNorm{next}.gain(), NextNorm{next}.shift()}) {
    TS_REQUIRE(o == nullptr || (o->dense() && o->constant && !o->type.scaled() && (is_half(o->type.element) || o->type.element == Element::f32)),
               "takes over a norm whose gain and shift are dense constants of f32, f16 or bf16");
  }
  return {};
}

#ifdef __CUDACC__

using KernelFunction = void (*)(sm90::SwappedMaps, sm90::SwappedParams);

template <class In>
KernelFunction pick_tokens(int tokens) {
  switch (tokens) {
    case 16: return sm90::multiply_swapped<In, 16, false>;
    case 32: return sm90::multiply_swapped<In, 32, false>;
    case 64: return sm90::multiply_swapped<In, 64, false>;
    default: return sm90::multiply_swapped<In, 112, false>;
  }
}

template <class In>
KernelFunction pick_norm(int tokens) {
  return tokens == 16 ? sm90::multiply_swapped<In, 16, true> : sm90::multiply_swapped<In, 32, true>;
}

KernelFunction pick_with_norm(Element element, int tokens) {
  switch (element) {
    case Element::e4m3: return pick_norm<__nv_fp8_e4m3>(tokens);
    case Element::i8: return pick_norm<int8_t>(tokens);
    case Element::bf16: return pick_norm<__nv_bfloat16>(tokens);
    default: return pick_norm<__half>(tokens);
  }
}

KernelFunction pick(Element element, int tokens) {
  switch (element) {
    case Element::e4m3: return pick_tokens<__nv_fp8_e4m3>(tokens);
    case Element::i8: return pick_tokens<int8_t>(tokens);
    case Element::bf16: return pick_tokens<__nv_bfloat16>(tokens);
    default: return pick_tokens<__half>(tokens);
  }
}

class SwappedKernel final : public Kernel {
 public:
  SwappedKernel(const Problem& problem, const sm90::SwappedShape& shape)
      : problem_(problem),
        p_(MatmulProblem::of(problem_)),
        shape_(shape),
        memory_(sm90::swapped_memory(shape_, k_blocks_of(p_))),
        function_(pick(p_.x.element, shape_.tokens)) {}
  // With the norm behind it. Contract: takes_over said yes.
  SwappedKernel(const Problem& problem, const Problem& next)
      : problem_(problem),
        p_(MatmulProblem::of(problem_)),
        shape_{norm_tokens(p_.m), 1},
        memory_(sm90::swapped_memory(shape_, k_blocks_of(p_), 16 + statistics_bytes(shape_.tokens))),
        next_(next),
        function_(pick_with_norm(p_.x.element, shape_.tokens)) {}

  Status prepare() {
    TS_TRY(cuda::allow_shared_memory(kName, function_, sm90::kSwappedSharedLimit));
    return next_ ? cuda::cuda_status(kName, cudaFuncSetAttribute(function_, cudaFuncAttributeNonPortableClusterSizeAllowed, 1)) : Status();
  }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    if (p_.m * p_.n == 0) return {};
    const int64_t tiles_m = divide_up(p_.m, shape_.tokens), tiles_n = divide_up(p_.n, sm90::kSwappedChannels);
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
                               .y_element = p_.y.element};
    sm90::SwappedMaps maps{};
    TS_ASSIGN(maps.x, cuda::make_matrix_map(in[0].data, p_.x.element, p_.m, p_.k, p_.x_row_stride, shape_.tokens));
    TS_ASSIGN(maps.w, cuda::make_matrix_map(in[1].data, p_.w.element, stored_w_rows(problem_), p_.k, p_.k, sm90::kSwappedChannels));
    for (const Step& s : p_.then->steps) {
      const TensorView* operand = s.operand >= 0 ? &in[static_cast<size_t>(s.operand)] : nullptr;
      if (s.kind == StepKind::bias) params.bias = operand->data, params.bias_element = operand->desc->type.element;
      if (s.kind == StepKind::scale) params.gain = operand->data, params.gain_element = operand->desc->type.element;
      if (s.kind == StepKind::residual) params.residual = operand->data, params.residual_stride = operand->desc->rows().row_stride;
      if (s.kind == StepKind::act) params.act = smooth_activation(s.fn);
    }
    if (next_) return launch_with_norm(in, out, maps, params, stream);
    return cuda::launch_overlapping(kName, function_, tiles_n * tiles_m * shape_.split, sm90::kSwappedThreads, static_cast<size_t>(memory_.bytes), stream.handle,
                                    shape_.split, maps, params);
  }

 private:
  // `in`: this matmul's, then the norm's gain and shift; `out`: y, then the norm's result.
  Status launch_with_norm(std::span<const TensorView> in, std::span<const TensorView> out, const sm90::SwappedMaps& maps, sm90::SwappedParams& params, Stream stream) const {
    const NextNorm next{*next_};
    const size_t first = problem_.in.size();
    const int bytes = static_cast<int>(round_up(memory_.bytes, 16)), blocks = static_cast<int>(p_.n / sm90::kSwappedChannels);
    params.norm = {.z = out[1].data, .z_element = next_->out[0].type.element, .z_scale = static_cast<const float*>(out[1].scale), .eps = next.eps(), .rms = next.rms(), .blocks = blocks,
                   .statistics = bytes};
    if (next.gain() != nullptr) params.norm.gain = in[first].data, params.norm.gain_element = next.gain()->type.element;
    if (next.shift() != nullptr) params.norm.shift = in[first + 1].data, params.norm.shift_element = next.shift()->type.element;
    return cuda::launch_overlapping(kName, function_, divide_up(p_.m, shape_.tokens) * blocks, sm90::kSwappedThreads, static_cast<size_t>(bytes + statistics_bytes(shape_.tokens)),
                                    stream.handle, blocks, maps, params);
  }

  const Problem problem_;
  const MatmulProblem p_;
  const sm90::SwappedShape shape_;
  const sm90::SwappedMemory memory_;
  const std::optional<Problem> next_;
  const KernelFunction function_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  const std::vector<sm90::SwappedShape> shapes = sm90::rank_swapped_shapes(p.m, p.n, k_blocks_of(p), kProcessors);
  const auto named = std::find_if(shapes.begin(), shapes.end(), [&](const auto& s) { return name_of(s) == problem.config; });
  auto kernel = std::make_unique<SwappedKernel>(problem, named == shapes.end() ? shapes[0] : *named);
  TS_TRY(kernel->prepare());
  return std::unique_ptr<Kernel>(std::move(kernel));
}

Result<std::unique_ptr<Kernel>> bind_both(const Problem& problem, const Problem& next) {
  auto kernel = std::make_unique<SwappedKernel>(problem, next);
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
#ifdef __CUDACC__
                                .bind = bind
#endif
  };
  return kVariant;
}

}  // namespace tessera
