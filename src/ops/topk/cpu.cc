// SPDX-License-Identifier: Apache-2.0
#include "op/host_numbers.h"
#include "ops/topk/topk.h"
#include "tiles/cpu/scratch.h"

namespace tessera {
namespace {

template <class T>
class TopkKernel final : public Kernel {
 public:
  explicit TopkKernel(TopkProblem problem) : p_(std::move(problem)) { Scratch::reserve(scratch_bytes()); }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream) override {
    const Reader<T> from(in[0]);
    auto* places = static_cast<int64_t*>(out[0].data);
    parallel_for(p_.rows, std::max<int64_t>(1, 4096 / std::max<int64_t>(1, p_.cols)), [&](int64_t begin, int64_t end) {
      Scratch scratch(scratch_bytes());
      T* row = static_cast<T*>(scratch.bytes(row_bytes()));
      int64_t* order = static_cast<int64_t*>(scratch.bytes(order_bytes()));
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t c = 0; c < p_.cols; c += kChunk) {
          const int64_t n = std::min(kChunk, p_.cols - c);
          const T* numbers = from.read(r * p_.cols + c, 1, n, row + c);
          if (numbers != row + c) std::copy_n(numbers, n, row + c);
        }
        p_.sort(row, order);
        std::copy_n(order, p_.k, places + r * p_.k);
      }
    });
    return {};
  }

 private:
  int64_t row_bytes() const { return p_.cols * static_cast<int64_t>(sizeof(T)); }
  int64_t order_bytes() const { return p_.cols * static_cast<int64_t>(sizeof(int64_t)); }
  int64_t scratch_bytes() const { return round_up(row_bytes(), 64) + round_up(order_bytes(), 64); }

  TopkProblem p_;
};

Verdict accepts(const Problem& p) {
  TS_REQUIRE(p.in[0].dense(), "reads dense rows");
  TS_REQUIRE(p.out[0].type == QuantType(Element::i64), "writes i64, not ", to_string(p.out[0].type));
  return accepts_all_numbers(p);
}

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  const TopkProblem t = TopkProblem::of(p);
  const Element x = p.in[0].type.element;
  const bool narrow = info(x).kind == ElementKind::kFloat && info(x).bits <= 32;
  if (narrow) return std::unique_ptr<Kernel>(std::make_unique<TopkKernel<float>>(t));
  return std::unique_ptr<Kernel>(std::make_unique<TopkKernel<double>>(t));
}

}  // namespace

const Variant& topk_cpu() {
  static const Variant kVariant{
      .name = "topk/cpu", .arch = Arch::cpu, .accepts = accepts, .arithmetic = generic_arithmetic, .bind = bind};
  return kVariant;
}

}  // namespace tessera
