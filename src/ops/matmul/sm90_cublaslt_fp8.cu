// SPDX-License-Identifier: Apache-2.0
// FP8 products through cuBLASLt: e4m3 codes of x (one static scale) and of w (one scale, or one per channel), sums in
// the tensor core's own accumulator. Per-channel scales go to the library as outer vectors where it has an algorithm
// for that; otherwise it writes f32 and the second kernel multiplies.
#include <algorithm>

#include "archs/sm90/fp8.h"
#include "ops/matmul/after_product.h"
#include "tiles/cuda/cublaslt.h"

#ifdef __CUDACC__
#include "tiles/cuda/steps.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "matmul/sm90_cublaslt_fp8";

bool per_channel(const MatmulProblem& q) { return q.w.scale.granularity == Granularity::kChannel; }

AfterProduct split(const Problem& p, const MatmulProblem& q) {
  // The library's bias has f16 or bf16 elements: with f32 results the second kernel adds it. Products on their way to
  // e4m3 are f32.
  const Element narrow = q.y.element == Element::bf16 ? Element::bf16 : Element::f16;
  return after_product(p, q, /*bias_fits=*/q.y.element != Element::f32, narrow);
}

Verdict accepts(const Problem& p) {
  const MatmulProblem q = MatmulProblem::of(p);
  TS_REQUIRE(!is_sparse24(p), kNotSparse);
  TS_REQUIRE(!is_promoted(p), kFastSums);
  TS_REQUIRE(q.x == kE4m3PerTensor, "x must be e4m3 with one static f32 scale, not ", to_string(q.x));
  TS_REQUIRE(q.w == kE4m3PerTensor || q.w == kE4m3PerChannel,
             "w must be e4m3 with an f32 scale for all or for each channel, not ", to_string(q.w));
  TS_REQUIRE(p.in[1].layout == Layout::kRows, "w must lie in rows");
  TS_REQUIRE(p.in[0].rows().uniform && p.in[1].rows().uniform, "x and w must have uniform rows");
  TS_REQUIRE(q.batch == 1 || !per_channel(q), "scales per channel need one weight for all rows");
  TS_REQUIRE(q.k % sm90::kFp8Alignment == 0 && q.n % sm90::kFp8Alignment == 0, "k and n must be multiples of ",
             sm90::kFp8Alignment, ", they are ", q.k, " and ", q.n);
  TS_REQUIRE(q.x_row_stride >= q.k && q.w_row_stride >= q.k, "rows of x and w may not overlap");
  TS_REQUIRE(q.x_row_stride % sm90::kFp8Alignment == 0 && q.w_row_stride % sm90::kFp8Alignment == 0,
             "rows of x and w must start at multiples of ", sm90::kFp8Alignment, " bytes");
  return accepts_program(p, q);
}

Arithmetic arithmetic(const Problem& p) {
  const MatmulProblem q = MatmulProblem::of(p);
  Arithmetic a;
  a.computed = Element::e4m3;
  a.instruction = "cuBLASLt wgmma e4m3 (QGMMA), fast accumulation";
  a.accumulator_bits = sm90::kFp8AccumulatorBits;
  a.operand_error = product_error(split(p, q));
  a.activation_error = second_kernel_error(q, split(p, q));
  return a;
}

Emulation emulate(const Problem& p, std::span<const TensorView> in, std::span<const TensorView> out) {
  return emulate_library(p, in, out, kWgmmaE4m3, library_product(split(p, MatmulProblem::of(p)), /*or_f32=*/true),
                         arithmetic(p).activation_error);
}

// Room for an f32 product even where a narrower one is planned: which of the ways below this library takes is known on
// the machine only.
int64_t product_bytes(const MatmulProblem& q) { return round_up(q.batch * q.m * q.n * 4, 256); }
int64_t workspace_bytes(const Problem& p) { return product_bytes(MatmulProblem::of(p)) + kCublasWorkspaceBytes; }

#ifdef __CUDACC__

__global__ void repeat_scale(const float* __restrict__ scale, float* __restrict__ to, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) to[i] = *scale;
}

class Fp8Kernel final : public Kernel {
 public:
  explicit Fp8Kernel(const Problem& p) : problem_(p), q_(MatmulProblem::of(problem_)), after_(split(problem_, q_)) {}
  ~Fp8Kernel() override { cudaFree(x_scales_); }

  Status prepare() {
    if (empty()) return {};
    GemmSpec spec{.batch = q_.batch,
                  .m = q_.m,
                  .n = q_.n,
                  .k = q_.k,
                  .x_row_stride = q_.x_row_stride,
                  .w_row_stride = q_.w_row_stride};
    spec.rank = cublas_rank(problem_.config);
    spec.in = Element::e4m3;
    spec.out = after_.product;
    spec.bias = after_.bias != nullptr;
    spec.c = after_.residual != nullptr;
    if (spec.c) spec.c_row_stride = problem_.step_operand(*after_.residual).rows().row_stride;
    spec.scales = per_channel(q_) ? GemmScales::kOuter : GemmScales::kScalar;
    const bool c_aligned = !spec.c || spec.c_row_stride % 8 == 0;
    if (c_aligned) {
      TS_ASSIGN(gemm_, Gemm::make(spec));
    }
    if (gemm_ == nullptr) {
      // The library does not know this combination: it writes plain f32 sums, scaled by x's factor, and the second
      // kernel does the rest.
      after_ = {.second_kernel = true, .product = Element::f32, .in_place = false};
      spec.out = Element::f32;
      spec.bias = spec.c = false;
      spec.c_row_stride = 0;
      spec.scales = GemmScales::kScalar;
      columns_later_ = per_channel(q_);
      TS_ASSIGN(gemm_, Gemm::make(spec));
    }
    if (gemm_ == nullptr)
      return machine_error(cat(kName, ": this cuBLASLt has no FP8 algorithm for m ", q_.m, ", n ", q_.n, ", k ", q_.k));
    outer_ = spec.scales == GemmScales::kOuter;
    if (!outer_) return {};
    return cuda::cuda_status(kName, cudaMalloc(&x_scales_, static_cast<size_t>(q_.m) * sizeof(float)));
  }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void* workspace,
                Stream stream) override {
    if (empty()) return {};
    void* product = after_.in_place ? out[0].data : workspace;
    const auto data_of = [&](const Step* step) {
      return step == nullptr ? nullptr : in[static_cast<size_t>(step->operand)].data;
    };
    GemmPointers pointers{
        .x = in[0].data, .w = in[1].data, .c = data_of(after_.residual), .bias = data_of(after_.bias), .y = product};
    for (const void* p : {pointers.x, pointers.w, pointers.c, pointers.bias, static_cast<const void*>(product)}) {
      if (!is_aligned(p, sm90::kFp8Alignment))
        return machine_error(cat(kName, ": an operand does not start at a multiple of 16 bytes"));
    }
    pointers.x_scale = in[0].scale;
    pointers.w_scale = columns_later_ ? nullptr : in[1].scale;
    if (outer_) {
      TS_TRY(repeat_x_scale(static_cast<const float*>(in[0].scale), stream));
      pointers.x_scale = x_scales_;
    }
    TS_TRY(gemm_->run(pointers, static_cast<uint8_t*>(workspace) + product_bytes(q_), stream.handle).at(kName));
    if (!after_.second_kernel) return {};
    DeviceSteps steps = device_steps(problem_, q_, in, out[0], {product, nullptr, after_.product});
    if (columns_later_) steps.column_scale = static_cast<const float*>(in[1].scale);
    return cuda::launch_steps(kName, steps, stream.handle);
  }

 private:
  bool empty() const { return q_.batch * q_.m * q_.n == 0; }

  // The library wants a factor for each row of x, all of them x's one scale. Written once: a launch inside a capture
  // has not run yet, so it writes them again.
  Status repeat_x_scale(const float* scale, Stream stream) {
    if (repeated_ == scale) return {};
    TS_TRY(
        cuda::launch_kernel(kName, repeat_scale, divide_up(q_.m, 256), 256, 0, stream.handle, scale, x_scales_, q_.m));
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    TS_TRY(cuda::cuda_status(kName, cudaStreamIsCapturing(static_cast<cudaStream_t>(stream.handle), &capture)));
    repeated_ = capture == cudaStreamCaptureStatusNone ? scale : nullptr;
    return {};
  }

  const Problem problem_;
  const MatmulProblem q_;  // points into problem_
  AfterProduct after_;
  std::unique_ptr<Gemm> gemm_;
  bool outer_ = false;          // scales per row and per channel are the library's
  bool columns_later_ = false;  // scales per channel are the second kernel's
  float* x_scales_ = nullptr;
  const float* repeated_ = nullptr;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  auto kernel = std::make_unique<Fp8Kernel>(p);
  TS_TRY(kernel->prepare());
  return std::unique_ptr<Kernel>(std::move(kernel));
}

#else
constexpr auto bind = nullptr;
#endif

}  // namespace

const Variant& matmul_sm90_cublaslt_fp8() {
  static const Variant kVariant{
      .name = kName,
      .arch = Arch::sm90,
      .accepts = accepts,
      .arithmetic = arithmetic,
      .configs = cublas_configs,
      .workspace_bytes = workspace_bytes,
      .emulate = emulate,
      .operand_align = sm90::kFp8Alignment,
      .sass = {.rules = {{.kernels = "run_steps",
                          .exempt_because = "the products are cuBLASLt's; this runs the program behind them"},
                         {.kernels = "repeat_scale",
                          .exempt_because = "writes one scale as often as the library wants it"}},
               .local = "functions that no transformer uses as activation (sin, cos, log ...) are called, not inlined, "
                        "and bring a stack frame"},
      .bind = bind};
  return kVariant;
}

}  // namespace tessera
