// SPDX-License-Identifier: Apache-2.0
// A row is decoded once into f32 scratch; maximum, exponentials, sum and quotient pass over it there.
#include <limits>

#include "op/host_numbers.h"
#include "ops/softmax/softmax.h"
#include "tiles/cpu/rows.h"
#include "tiles/cpu/scratch.h"

namespace tessera {
namespace {

// Partial results side by side: lets the compiler use SIMD, and shortens the chain of roundings.
constexpr int64_t kLanes = 8;

float row_maximum(const float* v, int64_t n) {
  float top[kLanes];
  std::fill_n(top, kLanes, v[0]);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) top[l] = v[i + l] > top[l] ? v[i + l] : top[l];
  }
  for (; i < n; ++i) top[0] = v[i] > top[0] ? v[i] : top[0];
  return *std::max_element(top, top + kLanes);
}

float row_sum(const float* v, int64_t n) {
  float sum[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) sum[l] += v[i + l];
  }
  for (; i < n; ++i) sum[0] += v[i];
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

class SoftmaxKernel final : public Kernel {
 public:
  explicit SoftmaxKernel(SoftmaxProblem problem) : p_(std::move(problem)) {
    Scratch::reserve(Scratch::bytes_of(p_.cols));
  }
  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream) override {
    const Reader<float> from(in[0]);
    const Writer<float> to(out[0]);
    parallel_for(p_.rows, std::max<int64_t>(1, 4096 / p_.cols), [&](int64_t begin, int64_t end) {
      Scratch scratch(Scratch::bytes_of(p_.cols));
      float* v = scratch.floats(p_.cols);
      for (int64_t row = begin; row < end; ++row) one_row(from, to, row, v);
    });
    return {};
  }

 private:
  void one_row(const Reader<float>& from, const Writer<float>& to, int64_t row, float* v) const {
    for (int64_t c = 0; c < p_.cols; c += kChunk) {
      const int64_t n = std::min(kChunk, p_.cols - c);
      const float* in = from.read(row * p_.row_stride + c, 1, n, v + c);
      if (in != v + c) std::copy_n(in, n, v + c);
    }
    const float top = row_maximum(v, p_.cols);
    const bool none = top == -std::numeric_limits<float>::infinity();  // zeros, not -inf - -inf and 0 / 0
    const float base = none ? 0.0f : top;
    for (int64_t c = 0; c < p_.cols; ++c) v[c] -= base;
    map_row(Unary::exp, v, v, p_.cols);
    const float sum = none ? 1.0f : row_sum(v, p_.cols);
    float chunk[kChunk];
    for (int64_t c = 0; c < p_.cols; c += kChunk) {
      const int64_t n = std::min(kChunk, p_.cols - c), first = row * p_.cols + c;
      float* y = to.place(first, 1, chunk);
      for (int64_t i = 0; i < n; ++i) y[i] = v[c + i] / sum;
      to.write(y, n, first, 1);
    }
  }

  SoftmaxProblem p_;
};

Verdict accepts(const Problem& p) {
  TS_REQUIRE(!needs_f64(p), "computes in fp32, wanted for ", to_string(p.in[0].type), " -> ", to_string(p.out[0].type));
  TS_REQUIRE(p.in[0].rows().uniform, "wants uniform rows with a contiguous last axis");
  return accepts_all_numbers(p);
}

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  return std::unique_ptr<Kernel>(std::make_unique<SoftmaxKernel>(SoftmaxProblem::of(p)));
}

}  // namespace

const Variant& softmax_cpu() {
  static const Variant kVariant{
      .name = "softmax/cpu", .arch = Arch::cpu, .accepts = accepts, .arithmetic = generic_arithmetic, .bind = bind};
  return kVariant;
}

}  // namespace tessera
