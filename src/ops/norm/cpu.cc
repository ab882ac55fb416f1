// SPDX-License-Identifier: Apache-2.0
// norm/cpu: a row at a time in f32. The row is decoded once and stays in cache for the three passes: sum, deviations
// from the mean, result. Pooled, a group of rows at a time: their sums, then gain and shift once.
#include <algorithm>
#include <cmath>

#include "archs/cpu/simd.h"
#include "base/parallel.h"
#include "op/cpu_program.h"
#include "ops/norm/norm.h"
#include "tiles/cpu/rows.h"
#include "tiles/cpu/scratch.h"
#include "tiles/strided.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/norm/cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = hn::MaxLanes(D());

struct Sums {
  float deviation, square;
};

// Partial sums: element i is added to number i % 32, and at the end the upper half is added to the lower, five times.
// So a row has the same sums to the last bit on every machine with FMA, however long its vectors; and additions do not
// wait for one another.
constexpr int64_t kPartial = 32, kVectors = kPartial / kLanes;

template <int kCount>
HWY_INLINE float sum_of(V (&v)[kCount]) {
  const D d;
  for (int half = kCount / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) v[i] = hn::Add(v[i], v[i + half]);
  }
  HWY_ALIGN float lane[kLanes];
  hn::Store(v[0], d, lane);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) lane[i] += lane[i + half];
  }
  return lane[0];
}

// Sums of v[i] - center and of its square.
Sums sum_deviations(const float* v, int64_t n, float center) {
  const D d;
  const V c = hn::Set(d, center);
  V s[kVectors], q[kVectors];
  for (int64_t j = 0; j < kVectors; ++j) s[j] = q[j] = hn::Zero(d);
  int64_t i = 0;
  for (; i + kPartial <= n; i += kPartial) {
#pragma GCC unroll 32
    for (int64_t j = 0; j < kVectors; ++j) {
      const V a = hn::Sub(hn::LoadU(d, v + i + j * kLanes), c);
      s[j] = hn::Add(s[j], a);
      q[j] = hn::MulAdd(a, a, q[j]);
    }
  }
#pragma GCC unroll 32
  for (int64_t j = 0; j < kVectors; ++j) {
    const int64_t left = n - i - j * kLanes;
    if (left <= 0) continue;
    const size_t count = static_cast<size_t>(std::min(left, kLanes));
    const V a = hn::IfThenElseZero(hn::FirstN(d, count), hn::Sub(hn::LoadN(d, v + i + j * kLanes, count), c));
    s[j] = hn::Add(s[j], a);
    q[j] = hn::MulAdd(a, a, q[j]);
  }
  return {sum_of(s), sum_of(q)};
}

// v = (v - mean) * inverse [* gain] [+ shift], in place.
void apply_norm(float* v, int64_t n, float mean, float inverse, const float* gain, const float* shift) {
  const D d;
  const V m = hn::Set(d, mean), r = hn::Set(d, inverse);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    V y = hn::Mul(hn::Sub(hn::LoadU(d, v + i), m), r);
    if (gain != nullptr) y = hn::Mul(y, hn::LoadU(d, gain + i));
    if (shift != nullptr) y = hn::Add(y, hn::LoadU(d, shift + i));
    hn::StoreU(y, d, v + i);
  }
  for (; i < n; ++i) {
    float y = (v[i] - mean) * inverse;
    if (gain != nullptr) y *= gain[i];
    if (shift != nullptr) y += shift[i];
    v[i] = y;
  }
}

void normalise_row_simd(NormKind kind, float eps, const float* gain, const float* shift, float* v, int64_t n) {
  const float count = static_cast<float>(n);
  float mean = 0, var;
  if (kind == NormKind::kRms) {
    var = sum_deviations(v, n, 0).square / count;
  } else {
    mean = sum_deviations(v, n, 0).deviation / count;
    // The deviations sum to 0 but for the rounding of the mean: that remainder corrects both mean and variance.
    const Sums sums = sum_deviations(v, n, mean);
    const float rest = sums.deviation / count;
    var = std::max(0.0f, sums.square / count - rest * rest);
    mean += rest;
  }
  apply_norm(v, n, mean, 1.0f / std::sqrt(var + eps), gain, shift);
}

void add_row_simd(const float* v, int64_t n, float* sums) {
  const D d;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(hn::Add(hn::LoadU(d, sums + i), hn::LoadU(d, v + i)), d, sums + i);
  for (; i < n; ++i) sums[i] += v[i];
}

// The mean of `rows` rows that were added up, with gain and shift, in place.
void finish_mean_simd(float* sums, int64_t n, float rows, const float* gain, const float* shift) {
  apply_norm(sums, n, 0, 1.0f / rows, gain, shift);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {

HWY_EXPORT(normalise_row_simd);
HWY_EXPORT(add_row_simd);
HWY_EXPORT(finish_mean_simd);

constexpr int64_t kLeastNumbers = 8192;  // numbers per piece of parallel work: some microseconds

Verdict accepts(const Problem& p) {
  const Operand* x = p.operand(0);
  TS_REQUIRE(x != nullptr, "wants x");
  TS_REQUIRE(is_decodable(x->type), "reads x in f32, f16, bf16 or e4m3 with at most one static scale, not ",
             to_string(x->type));
  TS_REQUIRE(x->layout == Layout::kRows && (x->shape.back() == 1 || x->strides.back() == 1),
             "reads x with a contiguous last axis");
  for (size_t i : {1, 2}) {
    const Operand* o = p.operand(i);
    if (o == nullptr) continue;
    TS_REQUIRE(is_float_code(o->type.element) && !o->type.scaled() && o->dense(),
               "reads gain and shift in f32, f16 or bf16, dense, not ", to_string(o->type));
  }
  return CpuProgram::accepts(p, CpuProgram::Pieces::kRows);
}

Arithmetic arithmetic(const Problem&) {
  return {.computed = Element::f32, .instruction = "fp32 FMA", .accumulator_bits = 24};
}

class NormKernel final : public Kernel {
 public:
  explicit NormKernel(const Problem& problem) : problem_(problem), p_(NormProblem::of(problem_)), program_(problem_) {
    shape_.push_back(p_.cols);
    strides_[0].push_back(1);
    Scratch::reserve(scratch_bytes());
  }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream) override {
    const int64_t rows = p_.rows / p_.group;  // of the result
    const int64_t grain = std::max(divide_up(rows, 4 * threads()), divide_up(kLeastNumbers, p_.cols * p_.group));
    parallel_for(rows, round_up(grain, 2), [&](int64_t begin, int64_t end) { run_rows(in, out, begin, end); });
    return {};
  }

 private:
  int64_t scratch_bytes() const {
    return 4 * Scratch::bytes_of(p_.cols) + Scratch::bytes_of(program_.scratch_floats(p_.cols));
  }

  void run_rows(std::span<const TensorView> in, std::span<const TensorView> out, int64_t begin, int64_t end) const {
    Scratch scratch(scratch_bytes());
    float* v = scratch.floats(p_.cols);
    const auto vector = [&](bool present, size_t i) -> const float* {
      if (!present) return nullptr;
      float* numbers = scratch.floats(p_.cols);
      decode_row(problem_.in[i].type.element, in[i].data, 0, p_.cols, numbers);
      return numbers;
    };
    const float* gain = vector(p_.has_gain, 1);
    const float* shift = vector(p_.has_shift, 2);
    const CpuProgram::Columns program =
        program_.on(in, out[0], 0, p_.cols, scratch.floats(program_.scratch_floats(p_.cols)));
    StridedRuns from(shape_, strides_);
    from.seek(begin * p_.group);
    const auto next_row = [&](const float* by, const float* plus) {
      decode_row(p_.x.element, in[0].data, from.offset(0), p_.cols, v);
      from.next();
      if (p_.x.scaled()) scale_row(v, p_.cols, tensor_scale(in[0]), nullptr);
      HWY_DYNAMIC_DISPATCH(normalise_row_simd)(p_.kind, p_.eps, by, plus, v, p_.cols);
    };
    if (!p_.pooled) {
      for (int64_t r = begin; r < end; ++r) {
        next_row(gain, shift);
        program.finish(r, v);
      }
      return;
    }
    float* sums = scratch.floats(p_.cols);
    for (int64_t g = begin; g < end; ++g) {
      std::fill_n(sums, p_.cols, 0.0f);
      for (int64_t r = 0; r < p_.group; ++r) {
        next_row(nullptr, nullptr);
        HWY_DYNAMIC_DISPATCH(add_row_simd)(v, p_.cols, sums);
      }
      HWY_DYNAMIC_DISPATCH(finish_mean_simd)(sums, p_.cols, static_cast<float>(p_.group), gain, shift);
      program.finish(g, sums);
    }
  }

  const Problem problem_;
  const NormProblem p_;
  const CpuProgram program_;
  Shape shape_ = p_.lead;  // x, whose runs are its rows
  std::vector<Shape> strides_ = {p_.lead_strides};
};

Result<std::unique_ptr<Kernel>> bind(const Problem& problem) {
  return std::unique_ptr<Kernel>(std::make_unique<NormKernel>(problem));
}

}  // namespace

const Variant& norm_cpu() {
  static const Variant kVariant{
      .name = "norm/cpu", .arch = Arch::cpu, .accepts = accepts, .arithmetic = arithmetic, .bind = bind};
  return kVariant;
}

}  // namespace tessera
#endif
