// SPDX-License-Identifier: Apache-2.0
// matmul/cpu: fp32 products of decoded codes. A piece of work is a block of rows x a block of columns of y: for each
// block of k, the rows of x are decoded and packed once, then every panel of 16 weights is decoded (f32: read where it
// lies) and multiplied with all of them. Sums over blocks of k collect in an f32 tile, then scales and program run on
// its rows.
#include <algorithm>
#include <atomic>

#include "base/parallel.h"
#include "ops/cpu_program.h"
#include "ops/matmul/matmul.h"
#include "tiles/cpu_panels.h"
#include "tiles/cpu_rows.h"
#include "tiles/cpu_scratch.h"

namespace tessera {
namespace {

// A w panel is 24 KiB and an x panel of 6 rows 9 KiB: together half of a 64 KiB first-level cache.
constexpr int64_t kBlockK = 384;
// The x panels of a block are 324 KiB, a third of a 1 MiB second-level cache; decoding w is shared by as many rows.
constexpr int64_t kBlockRows = 216;
// Packing x is shared by as many columns; narrower blocks than the least would pack more than they multiply.
constexpr int64_t kBlockCols = 768, kLeastCols = 64;
constexpr int64_t kPiecesPerThread = 4;

Verdict accepts(const Problem& p) {
  const Operand *x = p.operand(0), *w = p.operand(1);
  TS_REQUIRE(x != nullptr && w != nullptr, "wants x and w");
  TS_REQUIRE(is_decodable(x->type), "reads x in f32, f16, bf16 or e4m3 with at most one static scale, not ",
             to_string(x->type));
  QuantType per_tensor = w->type;
  if (w->type.scale.granularity == Granularity::kChannel) per_tensor.scale.granularity = Granularity::kTensor;
  TS_REQUIRE(is_decodable(per_tensor),
             "reads w in f32, f16, bf16 or e4m3 with static scales per tensor or channel, not ", to_string(w->type));
  TS_REQUIRE(x->layout == Layout::kRows && x->rows().uniform, "reads x in uniform rows");
  TS_REQUIRE(w->layout == Layout::kRows ? w->rows().uniform : w->shape.size() == 2,
             "reads w in uniform rows, or in panels where it is one matrix");
  return CpuProgram::accepts(p);
}

Arithmetic arithmetic(const Problem&) {
  return {.computed = "fp32", .instruction = "fp32 FMA on decoded codes", .accumulator_bits = 24};
}

std::vector<Layout> layouts(const Problem& p) {
  const Operand& w = p.in[1];
  return {Layout::kRows, w.constant && w.shape.size() == 2 ? Layout::kPanels16 : Layout::kRows};
}

class MatmulKernel final : public Kernel {
 public:
  explicit MatmulKernel(const Problem& problem)
      : problem_(problem), p_(MatmulProblem::of(problem_)), program_(problem_) {
    Scratch::reserve(scratch_bytes());
  }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream) override {
    if (p_.batch * p_.m * p_.n == 0) return {};
    const int64_t workers = threads();
    const int64_t row_blocks = divide_up(p_.m, kBlockRows);
    const int64_t rows = round_up(divide_up(p_.m, row_blocks), panel_rows());
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
  int64_t block_rows() const { return round_up(std::min(p_.m, kBlockRows), panel_rows()); }
  int64_t block_cols() const { return round_up(std::min(p_.n, kBlockCols), kPanelCols); }
  int64_t block_k() const { return std::min(p_.k, kBlockK); }
  int64_t scratch_bytes() const {
    return Scratch::bytes_of(block_rows() * block_cols()) +
           Scratch::bytes_of(x_panels_floats(block_rows(), block_k())) + 2 * Scratch::bytes_of(kPanelCols * block_k()) +
           Scratch::bytes_of(program_.scratch_floats(block_cols()));
  }

  void multiply(const Block& b, std::span<const TensorView> in, const TensorView& out) const {
    Scratch scratch(scratch_bytes());
    float* tile = scratch.floats(b.rows * b.stride());
    float* x_panels = scratch.floats(x_panels_floats(b.rows, block_k()));
    float* w_panel = scratch.floats(kPanelCols * block_k());
    float* decoded = scratch.floats(kPanelCols * block_k());
    const int64_t x_begin = (b.batch * p_.m + b.row) * p_.x_row_stride;
    for (int64_t k0 = 0; k0 < p_.k; k0 += kBlockK) {
      const int64_t k = std::min(kBlockK, p_.k - k0);
      pack_x(p_.x.element, in[0].data, p_.x_row_stride, x_begin + k0, b.rows, k, decoded, x_panels);
      for (int64_t c = 0; c < b.cols; c += kPanelCols) {
        const float* w = take_panel(in[1], b.batch, b.col + c, k0, k, decoded, w_panel);
        multiply_panel(x_panels, w, b.rows, k, k0 == 0, tile + c, b.stride());
      }
    }
    finish(b, in, out, tile, scratch.floats(program_.scratch_floats(b.cols)));
  }

  // Weights col ... col + 15 over k columns from k0, in f32.
  const float* take_panel(const TensorView& w, int64_t batch, int64_t col, int64_t k0, int64_t k, float* decoded,
                          float* panel) const {
    if (w.desc->layout == Layout::kPanels16) {
      const int64_t begin = layout_index(Layout::kPanels16, col, k0, p_.k);
      if (p_.w.element == Element::f32) return static_cast<const float*>(w.data) + begin;
      decode_row(p_.w.element, w.data, begin, kPanelCols * k, panel);
      return panel;
    }
    int64_t offsets[kPanelCols];
    const int64_t rows = std::min(kPanelCols, p_.n - col);
    for (int64_t i = 0; i < rows; ++i) offsets[i] = (batch * p_.n + col + i) * p_.w_row_stride + k0;
    pack_w(p_.w.element, w.data, offsets, rows, k, decoded, panel);
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
      if (p_.x.scaled() || p_.w.scaled()) scale_row(v, b.cols, scale, channels);
      program.finish(b.batch * p_.m + b.row + r, v);
    }
  }

  const Problem problem_;
  const MatmulProblem p_;
  const CpuProgram program_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& problem) {
  return std::unique_ptr<Kernel>(std::make_unique<MatmulKernel>(problem));
}

}  // namespace

const Variant& matmul_cpu() {
  static const Variant kVariant{.name = "matmul/cpu",
                                .arch = Arch::cpu,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .layouts = layouts,
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
