// SPDX-License-Identifier: Apache-2.0
// Products through cuBLASLt in f32 (no TF32), f16 or bf16, sums in f32. Programs that the library cannot express run in
// a second kernel.
#include <algorithm>
#include <utility>

#include "ops/matmul/after_product.h"
#include "tiles/cuda/cublaslt.h"

#ifdef __CUDACC__
#include "tiles/cuda/steps.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "matmul/cuda_cublaslt";

int64_t bytes_of(Element e) { return info(e).bits / 8; }

AfterProduct split(const Problem& p, const MatmulProblem& q) {
  return after_product(p, q, /*bias_fits=*/true, q.x.element, /*repeats=*/true);
}

Verdict accepts(const Problem& p) {
  const MatmulProblem q = MatmulProblem::of(p);
  TS_REQUIRE(!is_sparse24(p), kNotSparse);
  TS_REQUIRE(is_device_float(q.x), "multiplies f32, f16 or bf16, not ", to_string(q.x));
  TS_REQUIRE(q.w == q.x, "both operands must be of one type; x is ", to_string(q.x), ", w is ", to_string(q.w));
  TS_REQUIRE(p.in[1].layout == Layout::kRows, "w must lie in rows");
  TS_REQUIRE(p.in[0].rows().uniform && p.in[1].rows().uniform, "x and w must have uniform rows");
  TS_REQUIRE(q.x_row_stride >= q.k && q.w_row_stride >= q.k, "rows of x and w may not overlap");
  return accepts_program(p, q);
}

Arithmetic arithmetic(const Problem& p) {
  const MatmulProblem q = MatmulProblem::of(p);
  Arithmetic a;
  a.operand_error = product_error(split(p, q));
  a.activation_error = second_kernel_error(q, split(p, q));
  if (q.x.element == Element::f32) {
    a.computed = Element::f32;
    a.instruction = "cuBLASLt FMA (FFMA), f32 sums";
  } else {
    a.computed = q.x.element;
    a.instruction = cat("cuBLASLt tensor cores, ", arithmetic_name(a.computed), " products, f32 sums");
    a.accumulator_bits = 23;  // tensor cores truncate where they align addends
  }
  return a;
}

Emulation emulate(const Problem& p, std::span<const TensorView> in, std::span<const TensorView> out) {
  const MatmulProblem q = MatmulProblem::of(p);
  if (q.x.element == Element::f32) return {};
  return emulate_library(p, in, out, kMmaHalf, library_product(split(p, q), /*or_f32=*/false),
                         arithmetic(p).activation_error);
}

// What the library adds before it rounds, if its operands start at multiples of 16 bytes (adds_before_rounding). Where
// they do not, which only a launch knows, it writes f32 and the second kernel adds.
bool adds_if_aligned(const AfterProduct& after) {
  return (after.bias != nullptr || after.residual != nullptr) && after.product != Element::f32;
}

int64_t product_bytes(const MatmulProblem& q, const AfterProduct& after) {
  const int64_t numbers = q.batch * q.m * q.n;
  if (adds_if_aligned(after)) return round_up(numbers * bytes_of(Element::f32), 256);
  return after.in_place ? 0 : round_up(numbers * bytes_of(after.product), 256);
}

int64_t workspace_bytes(const Problem& p) {
  const MatmulProblem q = MatmulProblem::of(p);
  return product_bytes(q, split(p, q)) + kCublasWorkspaceBytes;
}

#ifdef __CUDACC__

class CublasKernel final : public Kernel {
 public:
  explicit CublasKernel(const Problem& p) : problem_(p), q_(MatmulProblem::of(problem_)), after_(split(problem_, q_)) {}

  Status prepare() {
    if (empty()) return {};
    GemmSpec spec{.batch = q_.batch,
                  .m = q_.m,
                  .n = q_.n,
                  .k = q_.k,
                  .x_row_stride = q_.x_row_stride,
                  .w_row_stride = q_.w_row_stride};
    spec.rank = cublas_rank(problem_.config);
    spec.in = q_.x.element;
    spec.out = after_.product;
    spec.bias = after_.bias != nullptr;
    spec.c = after_.residual != nullptr;
    if (spec.c) spec.c_row_stride = problem_.step_operand(*after_.residual).rows().row_stride;
    if (const int64_t rows = spec.c ? repeated_rows(problem_, q_, *after_.residual) : 0; rows > 0) {
      spec.batch = q_.m / rows;
      spec.m = rows;
      spec.shared_w = spec.shared_c = true;
    }
    // Rows decide what alignment is possible; an operand's offset inside its storage is not known before launch.
    const auto row_alignment = [](int64_t stride, Element e) {
      return static_cast<int>(std::min<int64_t>(16, (stride * bytes_of(e)) & -(stride * bytes_of(e))));
    };
    spec.alignment = std::min({row_alignment(spec.x_row_stride, spec.in), row_alignment(spec.w_row_stride, spec.in),
                               row_alignment(spec.n, spec.out)});
    if (spec.c) spec.alignment = std::min(spec.alignment, row_alignment(spec.c_row_stride, spec.out));
    alignment_ = spec.alignment;
    TS_TRY(make_both(spec));
    if (spec.shared_c && (gemm_ == nullptr ||
                          unaligned_ == nullptr)) {  // a library that repeats no c is called once for each repetition
      calls_ = std::exchange(spec.batch, 1);
      spec.shared_w = spec.shared_c = false;
      x_step_ = spec.m * spec.x_row_stride * bytes_of(spec.in);
      y_step_ = spec.m * spec.n * bytes_of(spec.out);
      TS_TRY(make_both(spec));
    }
    if (gemm_ == nullptr || unaligned_ == nullptr) {
      return machine_error(cat(kName, ": this cuBLASLt has no algorithm for m ", q_.m, ", n ", q_.n, ", k ", q_.k,
                               " in ", info(spec.in).name));
    }
    return {};
  }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void* workspace,
                Stream stream) override {
    if (empty()) return {};
    const auto data_of = [&](const Step* step) {
      return step == nullptr ? nullptr : in[static_cast<size_t>(step->operand)].data;
    };
    GemmPointers pointers{.x = in[0].data,
                          .w = in[1].data,
                          .c = data_of(after_.residual),
                          .bias = data_of(after_.bias),
                          .y = after_.in_place ? out[0].data : workspace};
    bool aligned = true;
    for (const void* p : {pointers.x, pointers.w, pointers.c, pointers.bias, static_cast<const void*>(pointers.y)}) {
      aligned = aligned && is_aligned(p, static_cast<uintptr_t>(alignment_));
    }
    const bool later = !aligned && adds_if_aligned(after_);
    if (later) pointers.y = workspace;
    const AfterProduct& after = later ? kAllLater : after_;
    void* product = pointers.y;
    void* of_library = static_cast<uint8_t*>(workspace) + product_bytes(q_, after_);
    for (int64_t i = 0; i < (later ? 1 : calls_); ++i) {
      TS_TRY((aligned ? gemm_ : unaligned_)->run(pointers, of_library, stream.handle).at(kName));
      pointers.x = static_cast<const uint8_t*>(pointers.x) + x_step_;
      pointers.y = static_cast<uint8_t*>(pointers.y) + y_step_;
    }
    if (!after.second_kernel) return {};
    return cuda::launch_steps(kName, device_steps(problem_, q_, in, out[0], {product, nullptr, after.product}),
                              stream.handle);
  }

 private:
  static constexpr AfterProduct kAllLater{.second_kernel = true, .product = Element::f32, .in_place = false};

  bool empty() const { return q_.batch * q_.m * q_.n == 0; }

  Status make_both(GemmSpec spec) {
    TS_ASSIGN(gemm_, Gemm::make(spec));
    spec.alignment = static_cast<int>(std::min(bytes_of(spec.in), bytes_of(spec.out)));
    spec.rank = 0;
    if (adds_if_aligned(after_)) {
      spec.batch = q_.batch, spec.m = q_.m, spec.out = kAllLater.product;
      spec.bias = spec.c = spec.shared_w = spec.shared_c = false;
    }
    TS_ASSIGN(unaligned_, Gemm::make(spec));
    return {};
  }

  const Problem problem_;
  const MatmulProblem q_;  // points into problem_
  const AfterProduct after_;
  std::unique_ptr<Gemm> gemm_, unaligned_;
  int alignment_ = 16;
  int64_t calls_ = 1, x_step_ = 0, y_step_ = 0;  // bytes between calls
};

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  auto kernel = std::make_unique<CublasKernel>(p);
  TS_TRY(kernel->prepare());
  return std::unique_ptr<Kernel>(std::move(kernel));
}

#else
constexpr auto bind = nullptr;
#endif

}  // namespace

const Variant& matmul_cuda_cublaslt() {
  static const Variant kVariant{
      .name = kName,
      .arch = Arch::cuda,
      .accepts = accepts,
      .arithmetic = arithmetic,
      .configs = cublas_configs,
      .workspace_bytes = workspace_bytes,
      .emulate = emulate,
      .sass = {.rules = {{.kernels = "run_steps",
                          .exempt_because = "the products are cuBLASLt's; this runs the program behind them"}},
               .local = "functions that no transformer uses as activation (sin, cos, log ...) are called, not inlined, "
                        "and bring a stack frame"},
      .bind = bind};
  return kVariant;
}

}  // namespace tessera
