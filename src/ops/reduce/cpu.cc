// SPDX-License-Identifier: Apache-2.0
// Two orders of work: where x is contiguous along the result's last axis (a mean over tokens), whole chunks of results
// grow side by side; else each result reads its own run.
#include <cmath>

#include "op/host_numbers.h"
#include "op/whole_numbers.h"
#include "ops/reduce/reduce.h"

namespace tessera {
namespace {

struct Sum {
  template <class T>
  static T join(T a, T b) {
    return a + b;
  }
  template <class T>
  static T take(T x) {
    return x;
  }
};
struct SumSquares : Sum {
  template <class T>
  static T take(T x) {
    return x * x;
  }
};
struct Max : Sum {
  template <class T>
  static T join(T a, T b) {
    return std::isnan(a) || a > b ? a : b;
  }
};
struct Min : Sum {
  template <class T>
  static T join(T a, T b) {
    return std::isnan(a) || a < b ? a : b;
  }
};

// Partial results side by side: lets the compiler use SIMD, and shortens the chain of roundings.
constexpr int64_t kLanes = 8;

template <class F, class T>
T reduce_chunk(const T* v, int64_t n) {
  if (n < kLanes) {
    T y = F::take(v[0]);
    for (int64_t i = 1; i < n; ++i) y = F::join(y, F::take(v[i]));
    return y;
  }
  T lane[kLanes];
  for (int64_t l = 0; l < kLanes; ++l) lane[l] = F::take(v[l]);
  int64_t i = kLanes;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) lane[l] = F::join(lane[l], F::take(v[i + l]));
  }
  for (; i < n; ++i) lane[0] = F::join(lane[0], F::take(v[i]));
  for (int64_t l = 1; l < kLanes; ++l) lane[0] = F::join(lane[0], lane[l]);
  return lane[0];
}

template <class F, class T>
class ReduceKernel final : public Kernel {
 public:
  explicit ReduceKernel(const ReduceProblem& p)
      : length_(p.length),
        length_stride_(p.length_stride),
        shape_(p.shape),
        strides_{p.strides, dense_strides(p.shape)},
        integer_(is_whole(p.y)) {
    divisor_ = static_cast<T>(p.fn == "mean" ? p.length : 1);
    merge_axes(shape_, strides_);
    together_ = strides_[0].back() == 1 && length_stride_ != 1;
  }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream) override {
    const Reader<T> from(in[0]);
    const Writer<T> to(out[0]);
    for_each_chunk(shape_, strides_, [&](const int64_t* at, int64_t n) {
      T scratch[kChunk], sums[kChunk];
      if (length_ == 0) {
        std::fill_n(sums, n, T{0});
      } else if (together_) {
        add_together(from, at[0], n, scratch, sums);
      } else {
        for (int64_t i = 0; i < n; ++i) sums[i] = one(from, at[0] + i * strides_[0].back(), scratch);
      }
      for (int64_t i = 0; i < n; ++i) sums[i] /= divisor_;
      if (integer_) {
        for (int64_t i = 0; i < n; ++i) sums[i] = std::trunc(sums[i]);
      }
      T* y = to.place(at[1], 1, sums);
      if (y != sums) std::copy_n(sums, n, y);
      to.write(y, n, at[1], 1);
    });
    return {};
  }

 private:
  T one(const Reader<T>& from, int64_t first, T* scratch) const {
    T y{};
    for (int64_t l = 0; l < length_; l += kChunk) {
      const int64_t n = std::min(kChunk, length_ - l);
      const T part = reduce_chunk<F>(from.read(first + l * length_stride_, length_stride_, n, scratch), n);
      y = l == 0 ? part : F::join(y, part);
    }
    return y;
  }

  void add_together(const Reader<T>& from, int64_t first, int64_t n, T* scratch, T* sums) const {
    for (int64_t l = 0; l < length_; ++l) {
      const T* x = from.read(first + l * length_stride_, 1, n, scratch);
      if (l == 0) {
        for (int64_t i = 0; i < n; ++i) sums[i] = F::take(x[i]);
      } else {
        for (int64_t i = 0; i < n; ++i) sums[i] = F::join(sums[i], F::take(x[i]));
      }
    }
  }

  int64_t length_, length_stride_;
  T divisor_;
  Shape shape_;
  std::vector<Shape> strides_;
  bool together_ = false, integer_;
};

template <class T>
std::unique_ptr<Kernel> make(const ReduceProblem& p) {
  if (p.fn == "max") return std::make_unique<ReduceKernel<Max, T>>(p);
  if (p.fn == "min") return std::make_unique<ReduceKernel<Min, T>>(p);
  if (p.fn == "sum_squares") return std::make_unique<ReduceKernel<SumSquares, T>>(p);
  return std::make_unique<ReduceKernel<Sum, T>>(p);
}

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  const ReduceProblem r = ReduceProblem::of(p);
  return needs_f64(p) ? make<double>(r) : make<float>(r);
}

}  // namespace

const Variant& reduce_cpu() {
  static const Variant kVariant{.name = "reduce/cpu",
                                .arch = Arch::cpu,
                                .accepts = accepts_all_numbers,
                                .arithmetic = generic_arithmetic,
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
