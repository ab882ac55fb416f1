// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/cpu_kernel.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/parallel.h"
#include "ops/cpu_program.h"
#include "ops/matmul/matmul.h"
#include "tiles/cpu_rows.h"
#include "tiles/cpu_scratch.h"

namespace tessera {
namespace {

// The x panels of a block are a third of a 1 MiB second-level cache; unpacking w is shared by as many rows.
constexpr int64_t kBlockRows = 216;
// Packing x is shared by as many columns; narrower blocks than the least would pack more than they multiply.
constexpr int64_t kBlockCols = 768, kLeastCols = 64;
constexpr int64_t kPiecesPerThread = 4;

// int32 sums become floats where they lie.
void to_floats(float* v, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    int32_t sum;
    std::memcpy(&sum, v + i, sizeof(sum));
    v[i] = static_cast<float>(sum);
  }
}

class MatmulKernel final : public Kernel {
 public:
  MatmulKernel(const Problem& problem, const PanelProduct& product)
      : problem_(problem), product_(product), p_(MatmulProblem::of(problem_)), program_(problem_) {
    Scratch::reserve(scratch_bytes());
  }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream) override {
    if (p_.batch * p_.m * p_.n == 0) return {};
    const int64_t workers = threads();
    const int64_t row_blocks = divide_up(p_.m, kBlockRows);
    const int64_t rows = round_up(divide_up(p_.m, row_blocks), product_.rows);
    // Few rows: cut the columns finer, so that every thread has work.
    const int64_t wanted = divide_up(kPiecesPerThread * workers, p_.batch * row_blocks);
    const int64_t col_blocks =
        std::clamp(wanted, divide_up(p_.n, kBlockCols), std::max(divide_up(p_.n, kBlockCols), p_.n / kLeastCols));
    const int64_t cols = round_up(divide_up(p_.n, col_blocks), kPanelCols);

    const int64_t row_pieces = divide_up(p_.m, rows), col_pieces = divide_up(p_.n, cols),
                  pieces = p_.batch * row_pieces * col_pieces;
    std::atomic<int64_t> next{0};
    parallel_for(std::min(workers, pieces), 1, [&](int64_t, int64_t) {
      for (int64_t i = next++; i < pieces; i = next++) {
        const int64_t col = i % col_pieces * cols, row = i / col_pieces % row_pieces * rows;
        multiply({.batch = i / (col_pieces * row_pieces),
                  .row = row,
                  .rows = std::min(rows, p_.m - row),
                  .col = col,
                  .cols = std::min(cols, p_.n - col)},
                 in, out[0]);
      }
    });
    return {};
  }

 private:
  // A piece of one product's result.
  struct Block {
    int64_t batch, row, rows, col, cols;
    int64_t stride() const { return round_up(cols, kPanelCols); }  // of its tile
  };
  int64_t block_rows() const { return round_up(std::min(p_.m, kBlockRows), product_.rows); }
  int64_t block_cols() const { return round_up(std::min(p_.n, kBlockCols), kPanelCols); }
  int64_t block_k() const { return std::min(p_.k, product_.block_k); }
  int64_t decoded_floats() const { return std::max(kPanelCols, product_.rows) * round_up(block_k(), 8); }
  int64_t scratch_bytes() const {
    return Scratch::bytes_of(block_rows() * block_cols()) + product_.x_bytes(block_rows(), block_k()) +
           product_.w_bytes(block_k()) + Scratch::bytes_of(decoded_floats()) +
           Scratch::bytes_of(program_.scratch_floats(block_cols())) + 2 * 64;
  }

  void multiply(const Block& b, std::span<const TensorView> in, const TensorView& out) const {
    Scratch scratch(scratch_bytes());
    float* tile = scratch.floats(b.rows * b.stride());
    void* x_panels = scratch.bytes(product_.x_bytes(b.rows, block_k()));
    void* w_panel = scratch.bytes(product_.w_bytes(block_k()));
    float* decoded = scratch.floats(decoded_floats());
    const int64_t x_begin = (b.batch * p_.m + b.row) * p_.x_row_stride;
    for (int64_t k0 = 0; k0 < p_.k; k0 += product_.block_k) {
      const int64_t k = std::min(product_.block_k, p_.k - k0);
      product_.pack_x(p_.x.element, in[0].data, p_.x_row_stride, x_begin + k0, b.rows, k, decoded, x_panels);
      for (int64_t c = 0; c < b.cols; c += kPanelCols) {
        const void* w = take_panel(in[1], b.batch, b.col + c, k0, k, decoded, w_panel);
        product_.multiply(x_panels, w, b.rows, k, k0 == 0, tile + c, b.stride());
      }
    }
    finish(b, in, out, tile, scratch.floats(program_.scratch_floats(b.cols)));
  }

  // Weights col ... col + 15 over k columns from k0.
  const void* take_panel(const TensorView& w, int64_t batch, int64_t col, int64_t k0, int64_t k, float* decoded,
                         void* panel) const {
    if (w.desc->layout != Layout::kRows)
      return product_.take_w(p_.w.element, w.data, layout_index(w.desc->layout, col, k0, p_.k), k, panel);
    int64_t offsets[kPanelCols];
    const int64_t rows = std::min(kPanelCols, p_.n - col);
    for (int64_t i = 0; i < rows; ++i) offsets[i] = (batch * p_.n + col + i) * p_.w_row_stride + k0;
    product_.pack_w(p_.w.element, w.data, offsets, rows, k, decoded, panel);
    return panel;
  }

  void finish(const Block& b, std::span<const TensorView> in, const TensorView& out, float* tile,
              float* scratch) const {
    const CpuProgram::Columns program = program_.on(in, out, b.col, b.cols, scratch);
    const bool per_channel = p_.w.scale.granularity == Granularity::kChannel;
    const float* channels = per_channel ? static_cast<const float*>(in[1].scale) + b.batch * p_.n + b.col : nullptr;
    const float scale = tensor_scale(in[0]) * (per_channel ? 1.0f : tensor_scale(in[1]));
    for (int64_t r = 0; r < b.rows; ++r) {
      float* v = tile + r * b.stride();
      if (product_.integer) to_floats(v, b.cols);
      if (p_.x.scaled() || p_.w.scaled()) scale_row(v, b.cols, scale, channels);
      program.finish(b.batch * p_.m + b.row + r, v);
    }
  }

  const Problem problem_;
  const PanelProduct& product_;
  const MatmulProblem p_;
  const CpuProgram program_;
};

}  // namespace

Verdict accepts_cpu_matmul(const Problem& p, const PanelProduct& product, bool (*reads)(Element), const char* elements) {
  const Operand *x = p.operand(0), *w = p.operand(1);
  TS_REQUIRE(x != nullptr && w != nullptr, "wants x and w");
  TS_REQUIRE(has_one_scale(x->type) && reads(x->type.element), "reads x in ", elements,
             " with at most one static scale, not ", to_string(x->type));
  QuantType per_tensor = w->type;
  if (w->type.scale.granularity == Granularity::kChannel) per_tensor.scale.granularity = Granularity::kTensor;
  TS_REQUIRE(has_one_scale(per_tensor) && reads(w->type.element), "reads w in ", elements,
             " with static scales per tensor or channel, not ", to_string(w->type));
  TS_REQUIRE(x->layout == Layout::kRows && x->rows().uniform, "reads x in uniform rows");
  TS_REQUIRE(w->layout == Layout::kRows ? w->rows().uniform
                                        : w->layout == product.layout && w->shape.size() == 2,
             "reads w in uniform rows, or in ", name_of(product.layout), " where it is one matrix");
  return CpuProgram::accepts(p);
}

std::vector<Layout> layouts_of_cpu_matmul(const Problem& p, const PanelProduct& product) {
  const Operand& w = p.in[1];
  return {Layout::kRows, w.constant && w.shape.size() == 2 ? product.layout : Layout::kRows};
}

std::unique_ptr<Kernel> make_cpu_matmul(const Problem& problem, const PanelProduct& product) {
  return std::make_unique<MatmulKernel>(problem, product);
}

}  // namespace tessera
