// SPDX-License-Identifier: Apache-2.0
// Equal types move codes (a memcpy where x is dense); others go through chunks of f32. Codes whose scales cover rows or
// blocks, or lie two in a byte, are read and made by whole rows.
#include "base/parallel.h"
#include "op/cpu_program.h"
#include "op/host_numbers.h"
#include "op/whole_numbers.h"
#include "ops/copy/copy.h"
#include "tiles/cpu/scratch.h"
#include "tiles/strided.h"
#include "types/quantize_array.h"

namespace tessera {
namespace {

class CopyKernel final : public Kernel {
 public:
  explicit CopyKernel(const CopyProblem& p) : conversion_(p.shape, p.strides, dense_strides(p.shape)) {}
  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream) override {
    conversion_.run(in[0], out[0]);
    return {};
  }

 private:
  Conversion conversion_;
};

class RowCopyKernel final : public Kernel {
 public:
  explicit RowCopyKernel(const Problem& problem)
      : problem_(problem), program_(problem_), shape_(problem.in[0].shape), strides_{problem.in[0].strides} {
    if (shape_.empty()) shape_ = {1}, strides_ = {{1}};
    cols_ = shape_.back(), rows_ = cols_ == 0 ? 0 : elements(shape_) / cols_;
    by_numbers_ = static_cast<bool>(accepts_numbers(problem_.in[0]));
    Scratch::reserve(Scratch::bytes_of(kTogether * cols_));
  }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream) override {
    const int64_t grain =
        std::max(divide_up(rows_, 4 * threads()), divide_up(kLeastNumbers, std::max<int64_t>(1, cols_)));
    parallel_for(rows_, round_up(grain, kTogether), [&](int64_t begin, int64_t end) { run_rows(in, out, begin, end); });
    return {};
  }

 private:
  static constexpr int64_t kLeastNumbers = 8192;  // per piece of parallel work: some microseconds
  static constexpr int64_t kTogether = 2;         // rows: two of them end at a byte, whatever their length

  void run_rows(std::span<const TensorView> in, std::span<const TensorView> out, int64_t begin, int64_t end) const {
    Scratch scratch(Scratch::bytes_of(kTogether * cols_));
    float* v = scratch.floats(kTogether * cols_);
    const CpuProgram::Columns store = program_.on(in, out[0], 0, cols_, nullptr);
    StridedRuns from(shape_, strides_);
    from.seek(begin);
    for (int64_t r = begin; r < end; r += kTogether) {
      const int64_t rows = std::min(kTogether, end - r);
      if (by_numbers_) {
        for (int64_t i = 0; i < rows; ++i, from.next())
          read_run(Reader<float>(in[0]), from.offset(0), strides_[0].back(), cols_, v + i * cols_);
      } else {
        read_codes(in[0], r, rows, v);
      }
      for (int64_t i = 0; i < rows; ++i) store.finish(r + i, v + i * cols_);
    }
  }

  // Dense rows; the first one begins at a byte.
  void read_codes(const TensorView& x, int64_t row, int64_t rows, float* v) const {
    const QuantType& type = x.desc->type;
    const auto* codes = static_cast<const uint8_t*>(x.data) + row * cols_ * info(type.element).bits / 8;
    const auto* scale = static_cast<const uint8_t*>(x.scale);
    if (scale != nullptr) scale += packed_bytes(type.scale.element, scale_index(type.scale, row, 0, cols_));
    dequantize_array(type, codes, scale, x.scale2, rows, cols_, v);
  }

  const Problem problem_;
  const CpuProgram program_;
  Shape shape_;
  std::vector<Shape> strides_;
  int64_t rows_, cols_;
  bool by_numbers_;  // x is plain or has one scale, in any strides
};

Verdict accepts(const Problem& p) {
  const Operand &x = p.in[0], &y = p.out[0];
  const Verdict numbers = accepts_all_numbers(p);
  if (numbers) return {};
  TS_REQUIRE(x.type.scaled() || y.type.scaled() || info(x.type.element).bits < 8, numbers.refusal);
  TS_REQUIRE(p.then.empty(), "runs no program");
  TS_REQUIRE(!needs_f64(p) && !is_whole(y.type), "makes scales and reads codes in fp32, not for ", to_string(x.type),
             " -> ", to_string(y.type));
  if (!accepts_numbers(x)) {
    TS_REQUIRE(x.layout == Layout::kRows && x.dense(), "reads ", to_string(x.type), " in dense rows");
    if (const Status known = check_quantizable(x.type); !known.ok()) return {known.message()};
  }
  return accepts_result(y, CpuProgram::Pieces::kRows);
}

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  if (accepts_all_numbers(p)) return std::unique_ptr<Kernel>(std::make_unique<CopyKernel>(CopyProblem::of(p)));
  return std::unique_ptr<Kernel>(std::make_unique<RowCopyKernel>(p));
}

}  // namespace

const Variant& copy_cpu() {
  static const Variant kVariant{
      .name = "copy/cpu", .arch = Arch::cpu, .accepts = accepts, .arithmetic = generic_arithmetic, .bind = bind};
  return kVariant;
}

}  // namespace tessera
