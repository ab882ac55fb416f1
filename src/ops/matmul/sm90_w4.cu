// SPDX-License-Identifier: Apache-2.0
// matmul/sm90_w4: few rows by weights of nvfp4 (tiles/sm90/nibbles.cuh). w4a16: rows of f16, weights are multiplied as
// f16; e2m1 times its block's e4m3 has six digits, so nothing is rounded. w4a8: rows of e4m3, weights are multiplied as
// e4m3, e2m1 times its block's scale rounded once more, as the type says.
#include "op/reference.h"
#include "ops/matmul/sm90_contract.h"
#include "tiles/sm90/nibbles_shape.h"

#ifdef __CUDACC__
#include "ops/matmul/sm90_swapped_operands.cuh"
#include "tiles/cuda/launch.cuh"
#include "tiles/sm90/nibbles.cuh"
#include "tiles/sm90/tensor_map.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "matmul/sm90_w4";
constexpr float kHalfUnit = 0x1p-7f;  // sm90::NibbleExpander<__half>::kShift

constexpr int64_t kFewRows = 64;  // each further tile of as many expands all weights once more

// All but the types.
Verdict accepts_nibbles(const Problem& problem, const MatmulProblem& p) {
  if (p.then->gated())
    TS_REQUIRE(p.n / 2 % NibbleTiles::kRows == 0, "runs gates over halves that are multiples of ", NibbleTiles::kRows,
               " channels, here ", p.n / 2);
  if (const int at = ExtraResults::of(problem.attrs).gain; at > 0) {
    const QuantType& gain = problem.in[static_cast<size_t>(at)].type;
    TS_REQUIRE(gain == QuantType(Element::f32) || gain == p.y, "multiplies codes by a vector of f32 or of ",
               to_string(p.y), ", not ", to_string(gain));
  }
  return accepts_for_wgmma(problem, p,
                           {.gates = true, .widens = true, .folds = true, .heads = true, .bf16_vectors = true});
}

Verdict worthwhile(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  TS_REQUIRE(p.m <= kFewRows, "made for ", kFewRows, " rows: weights are expanded again for each ", kFewRows, ", here ",
             p.m, "; fp8 is faster from there on");
  return {};
}

Arithmetic arithmetic(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  return wgmma_arithmetic(p.x.element, activation_error_of(p, /*in_half=*/false));
}

int k_blocks_of(const MatmulProblem& p) { return static_cast<int>(NibbleTiles::tiles_of_k(p.k)); }

// Best guess first. Heads take one group: angles beside the sums of two do not fit the registers (184 bytes were
// spilled).
std::vector<sm90::NibbleShape> shapes_of(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  std::vector<sm90::NibbleShape> shapes =
      sm90::rank_nibble_shapes(p.m, p.n, k_blocks_of(p), info(p.x.element).bits, sm90::kSms);
  if (finishes_heads(problem)) std::erase_if(shapes, [](const sm90::NibbleShape& s) { return s.groups > 1; });
  return shapes;
}
// "16x128/4": tiles of 16 tokens by 128 channels, K in 4 slices.
std::string name_of(const sm90::NibbleShape& s) { return cat(s.tokens, "x", s.channels(), "/", s.split); }
sm90::NibbleShape shape_of(const Problem& problem) {
  const std::vector<sm90::NibbleShape> all = shapes_of(problem);
  for (const sm90::NibbleShape& s : all) {
    if (name_of(s) == problem.config) return s;
  }
  return all[0];
}
std::vector<std::string> configs(const Problem& problem) {
  constexpr size_t kMost = 12;  // what build --tune measures
  std::vector<std::string> names;
  for (const sm90::NibbleShape& s : shapes_of(problem)) {
    if (names.size() < kMost) names.push_back(name_of(s));
  }
  return names;
}

std::vector<OperandLayout> layouts(const Problem& problem) {
  const bool half = info(problem.in[0].type.element).bits == 16;
  return {Layout::kRows, {half ? Layout::kNibbles16 : Layout::kNibbles8, Layout::kTiles32x8}};
}

// Products of codes, block scales and rows of x: slices of K added up in f32, the first one first, then the program
// with the tensor's scale. `unit`: what the operand of a weight is multiplied by in the kernel, a power of two.
Emulation emulate_nibbles(const Problem& problem, std::span<const TensorView> in, std::span<const TensorView> out,
                          float unit) {
  const MatmulProblem p = MatmulProblem::of(problem);
  Operand blocks = problem.in[1];
  blocks.type.scale2 = {};
  const Dense weights = decode({.desc = &blocks, .data = in[1].data, .scale = in[1].scale});
  std::vector<float> w;
  for (const double v : weights.v) w.push_back(static_cast<float>(v) * unit);
  const std::vector<float> x = decode_codes(in[0]);
  SumOrder order{wgmma_core(p.x.element)};
  const int split = shape_of(problem).split;
  for (int s = 0; s < split; ++s)
    order.slices.push_back(int64_t{sm90::slice_begin(k_blocks_of(p), split, s)} * NibbleTiles::kCols);
  std::vector<float> sums(static_cast<size_t>(p.m * p.n));
  const int least = info(p.x.element).min_exponent;
  emulate_sums(order, {x.data(), least}, {w.data(), least}, sums.data(), p.m, p.n, p.k);
  for (float& v : sums) v /= unit;
  // What is left of w's scales is one of the tensor.
  Problem rest = problem;
  rest.in[1].type = QuantType(Element::f16, problem.in[1].type.scale2);
  std::vector<TensorView> views(in.begin(), in.end());
  views[1] = {.desc = &rest.in[1], .data = in[1].data, .scale = in[1].scale2};
  return emulate_epilogue(rest, MatmulProblem::of(rest), sums, views, out, Mainloop::kSwapped);
}

Verdict accepts(const Problem& problem) {
  const MatmulProblem p = MatmulProblem::of(problem);
  TS_REQUIRE(p.w.element == Element::e2m1, "multiplies by 4-bit weights, here ", to_string(p.w));
  if (p.x == QuantType(Element::f16)) {
    TS_REQUIRE(p.w == kNvfp4, "multiplies f16 by weights of ", to_string(kNvfp4), ", not ", to_string(p.w));
    TS_REQUIRE(p.y == p.x || p.y == QuantType(Element::f32), "writes f16 or f32, not ", to_string(p.y));
  } else {
    TS_REQUIRE(p.x == kE4m3PerTensor, "reads f16, or e4m3 with one static scale, not ", to_string(p.x));
    TS_REQUIRE(p.w == kNvfp4AsE4m3, "multiplies e4m3 by weights of ", to_string(kNvfp4AsE4m3), ", not ",
               to_string(p.w));
    TS_REQUIRE((is_half(p.y.element) && !p.y.scaled()) || p.y == kE4m3PerTensor,
               "writes f16, bf16, or e4m3 with one static scale, not ", to_string(p.y));
  }
  return accepts_nibbles(problem, p);
}

Emulation emulate(const Problem& problem, std::span<const TensorView> in, std::span<const TensorView> out) {
  return emulate_nibbles(problem, in, out, problem.in[0].type.element == Element::f16 ? kHalfUnit : 1.0f);
}

#ifdef __CUDACC__

using NibblesFunction = void (*)(CUtensorMap, sm90::NibbleParams);

template <class In, sm90::SwappedKind kKind, int kTokens>
NibblesFunction pick_nibbles(int groups) {
  if constexpr (kKind != sm90::SwappedKind::kHeads) {
    if (groups == 2) return sm90::multiply_nibbles<In, kKind, kTokens, 2>;
  }
  return sm90::multiply_nibbles<In, kKind, kTokens, 1>;
}

template <class In, sm90::SwappedKind kKind>
NibblesFunction pick_nibbles(const sm90::NibbleShape& s) {
  switch (s.tokens) {
    case 16:
      return pick_nibbles<In, kKind, 16>(s.groups);
    case 32:
      return pick_nibbles<In, kKind, 32>(s.groups);
    default:
      return pick_nibbles<In, kKind, 64>(s.groups);
  }
}

template <class In>
NibblesFunction pick_nibbles(sm90::SwappedKind kind, const sm90::NibbleShape& shape) {
  switch (kind) {
    case sm90::SwappedKind::kGated:
      return pick_nibbles<In, sm90::SwappedKind::kGated>(shape);
    case sm90::SwappedKind::kHeads:
      return pick_nibbles<In, sm90::SwappedKind::kHeads>(shape);
    default:
      return pick_nibbles<In, sm90::SwappedKind::kPlain>(shape);
  }
}

template <class In>
class NibblesKernel final : public Kernel {
 public:
  NibblesKernel(const char* name, const Problem& problem)
      : name_(name),
        problem_(problem),
        p_(MatmulProblem::of(problem_)),
        operands_(name, problem_),
        shape_(shape_of(problem_)),
        memory_(sm90::nibble_memory(shape_, sm90::kXBits<In>, k_blocks_of(p_))),
        function_(pick_nibbles<In>(swapped_kind_of(problem_), shape_)) {}

  Status prepare() { return cuda::allow_shared_memory(name_, function_, sm90::kSwappedSharedLimit); }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    if (p_.m * p_.n == 0) return {};
    TS_TRY(operands_.copy_kept(in, out, stream));
    TS_ASSIGN(const CUtensorMap x,
              cuda::make_matrix_map(in[0].data, p_.x.element, p_.m, p_.k, p_.x_row_stride, shape_.tokens));
    const int64_t tiles_m = divide_up(p_.m, shape_.tokens), tiles_n = divide_up(p_.n, shape_.channels());
    sm90::NibbleParams params{.swapped = operands_.params(in, out),
                              .memory = memory_,
                              .codes = static_cast<const uint8_t*>(in[1].data),
                              .scales = static_cast<const uint8_t*>(in[1].scale),
                              .row_tiles = static_cast<int>(NibbleTiles::tiles_of_rows(p_.n))};
    params.swapped.k_blocks = k_blocks_of(p_);
    params.swapped.tiles_m = static_cast<int>(tiles_m);
    params.swapped.shape = {shape_.tokens, shape_.split};
    params.swapped.w_scale = static_cast<const float*>(in[1].scale2), params.swapped.w_scale_stride = 0;
    return cuda::launch_overlapping(name_, function_, tiles_m * tiles_n * shape_.split, 128 * shape_.groups + 32,
                                    static_cast<size_t>(memory_.bytes), stream.handle, shape_.split, x, params);
  }

 private:
  const char* const name_;
  const Problem problem_;
  const MatmulProblem p_;
  const SwappedOperands operands_;
  const sm90::NibbleShape shape_;
  const sm90::NibbleMemory memory_;
  const NibblesFunction function_;
};

template <class In>
Result<std::unique_ptr<Kernel>> bind_nibbles(const char* name, const Problem& problem) {
  auto kernel = std::make_unique<NibblesKernel<In>>(name, problem);
  TS_TRY(kernel->prepare());
  return std::unique_ptr<Kernel>(std::move(kernel));
}

static_assert(kHalfUnit * (1 << sm90::NibbleExpander<__half>::kShift) == 1);
Result<std::unique_ptr<Kernel>> bind(const Problem& problem) {
  return problem.in[0].type.element == Element::f16 ? bind_nibbles<__half>(kName, problem)
                                                    : bind_nibbles<__nv_fp8_e4m3>(kName, problem);
}
#endif

}  // namespace

const Variant& matmul_sm90_w4() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::sm90,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .worthwhile = worthwhile,
                                .configs = configs,
                                .layouts = layouts,
                                .emulate = emulate,
                                .operand_align = 16,
                                .sass = {.rules = {{.kernels = "__half", .must = {"HGMMA"}},
                                                   {.kernels = "__nv_fp8_e4m3", .must = {"QGMMA"}},
                                                   {.must = {"LDG"}}},  // copies of kept tensors
                                         .local = "bytes of 64 tokens by 128 channels keep 8 bytes: one address"},
#ifdef __CUDACC__
                                .bind = bind
#endif
  };
  return kVariant;
}

}  // namespace tessera
