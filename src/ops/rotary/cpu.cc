// SPDX-License-Identifier: Apache-2.0
// rotary/cpu: a token at a time in f32. Its cosines and sines are decoded once for all heads; a head is decoded, turned
// and handed to the program while it lies in the first-level cache.
#include <algorithm>

#include "base/parallel.h"
#include "op/cpu_program.h"
#include "op/host_numbers.h"
#include "ops/rotary/rotary.h"
#include "tiles/cpu/scratch.h"

namespace tessera {
namespace {

constexpr int64_t kLeastNumbers = 8192;  // numbers per piece of parallel work: some microseconds

Verdict accepts(const Problem& p) {
  for (const Operand& o : p.in) {
    TS_REQUIRE(is_decodable(o.type), "reads f32, f16, bf16 or e4m3 with at most one static scale, not ",
               to_string(o.type));
    TS_REQUIRE(o.layout == Layout::kRows, "reads rows");
  }
  return CpuProgram::accepts(p);
}

Arithmetic arithmetic(const Problem&) {
  return {.computed = Element::f32, .instruction = "fp32 multiply, add", .accumulator_bits = 24};
}

void rotate_halves(float* v, const float* cos, const float* sin, int64_t pairs) {
  float* __restrict a = v, * __restrict b = v + pairs;
  for (int64_t i = 0; i < pairs; ++i) {
    const float x1 = a[i], x2 = b[i];
    a[i] = x1 * cos[i] - x2 * sin[i];
    b[i] = x2 * cos[i] + x1 * sin[i];
  }
}

void rotate_neighbours(float* v, const float* cos, const float* sin, int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i) {
    const float x1 = v[2 * i], x2 = v[2 * i + 1];
    v[2 * i] = x1 * cos[i] - x2 * sin[i];
    v[2 * i + 1] = x2 * cos[i] + x1 * sin[i];
  }
}

class RotaryKernel final : public Kernel {
 public:
  explicit RotaryKernel(const Problem& problem)
      : problem_(problem), p_(RotaryProblem::of(problem_)), program_(problem_) {
    Scratch::reserve(scratch_bytes());
  }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream) override {
    const int64_t tokens = p_.batch * p_.tokens, numbers = std::max<int64_t>(1, p_.heads * p_.head_size);
    const int64_t grain = std::max(divide_up(tokens, 4 * threads()), divide_up(kLeastNumbers, numbers));
    parallel_for(tokens, grain, [&](int64_t begin, int64_t end) { run_tokens(in, out, begin, end); });
    return {};
  }

 private:
  int64_t scratch_bytes() const {
    return Scratch::bytes_of(p_.head_size) + 2 * Scratch::bytes_of(p_.pairs) +
           Scratch::bytes_of(program_.scratch_floats(p_.head_size));
  }

  void run_tokens(std::span<const TensorView> in, std::span<const TensorView> out, int64_t begin, int64_t end) const {
    Scratch scratch(scratch_bytes());
    float* v = scratch.floats(p_.head_size);
    float *cos = scratch.floats(p_.pairs), *sin = scratch.floats(p_.pairs);
    const CpuProgram::Columns program =
        program_.on(in, out[0], 0, p_.head_size, scratch.floats(program_.scratch_floats(p_.head_size)));
    const Reader<float> x(in[0]), c(in[1]), s(in[2]);
    const auto at = [](const Shape& strides, int64_t batch, int64_t token) {
      return batch * strides[0] + token * strides[1];
    };
    const auto rotate = p_.interleaved ? rotate_neighbours : rotate_halves;
    for (int64_t item = begin; item < end; ++item) {
      const int64_t batch = item / p_.tokens, token = item % p_.tokens;
      read_run(c, at(p_.cos_strides, batch, token), p_.cos_strides[2], p_.pairs, cos);
      read_run(s, at(p_.sin_strides, batch, token), p_.sin_strides[2], p_.pairs, sin);
      for (int64_t h = 0; h < p_.heads; ++h) {
        read_run(x, at(p_.x_strides, batch, token) + h * p_.x_strides[2], p_.x_strides[3], p_.head_size, v);
        rotate(v, cos, sin, p_.pairs);
        program.finish(item * p_.heads + h, v);
      }
    }
  }

  const Problem problem_;
  const RotaryProblem p_;
  const CpuProgram program_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  return std::unique_ptr<Kernel>(std::make_unique<RotaryKernel>(p));
}

}  // namespace

const Variant& rotary_cpu() {
  static const Variant kVariant{
      .name = "rotary/cpu", .arch = Arch::cpu, .accepts = accepts, .arithmetic = arithmetic, .bind = bind};
  return kVariant;
}

}  // namespace tessera
