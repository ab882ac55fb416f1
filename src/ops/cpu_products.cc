// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu_products.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "archs/cpu/workers.h"
#include "base/parallel.h"
#include "op/cpu_program.h"
#include "ops/sum_scales.h"
#include "tiles/cpu/numbers.h"
#include "tiles/cpu/rows.h"
#include "tiles/cpu/scratch.h"
#include "tiles/cpu/sparse.h"
#include "types/sparse24.h"

namespace tessera {
namespace {

// The x panels of a block are a third of a 1 MiB second-level cache; unpacking w is shared by as many rows.
constexpr int64_t kBlockRows = 216;
// Packing x is shared by as many columns; narrower blocks than the least would pack more than they multiply. Pieces
// begin at multiples of the unit: a result may be quantized in blocks of 32.
constexpr int64_t kBlockCols = 768, kLeastCols = 64, kColUnit = 32;
constexpr int64_t kPiecesPerThread = 4;
// Packed rows over all of k stay for the next piece of the same rows where they take no more than this.
constexpr int64_t kMostKeptBytes = 3 << 19;

// int32 sums become floats where they lie.
void to_floats(float* v, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    int32_t sum;
    std::memcpy(&sum, v + i, sizeof(sum));
    v[i] = static_cast<float>(sum);
  }
}

// Whether the product unpacks codes of the type itself.
bool reads_codes(const CpuFactors& f, const QuantType& type) {
  return f.reads(type.element) && !has_block_scales(type);
}

class ProductsKernel final : public Kernel {
 public:
  ProductsKernel(const Problem& problem, const CpuProducts& products, const CpuFactors& factors,
                 std::unique_ptr<CpuRows> rows)
      : problem_(problem),
        product_(factors.product),
        numbers_(factors.numbers),
        p_(products),
        rows_(std::move(rows)),
        x_(problem.in[0].type.element),
        w_(problem.in[1].type.element),
        program_(problem_),
        x_codes_(reads_codes(factors, problem.in[0].type)),
        w_codes_(reads_codes(factors, problem.in[1].type)),
        x_reader_(problem.in[0].type, factors.numbers),
        w_reader_(problem.in[1].type, factors.numbers),
        w_bits_(info(w_).bits) {
    Scratch::reserve(scratch_bytes());
  }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream) override {
    if (p_.batch * p_.m * p_.n == 0) return {};
    const int64_t workers = workers_for(p_.m, p_.batch * p_.n * p_.k);
    const int64_t row_blocks = divide_up(p_.m, kBlockRows);
    const int64_t rows = round_up(divide_up(p_.m, row_blocks), product_.rows);
    // Few rows: cut the columns finer, so that every thread has work.
    const int64_t wanted = divide_up(kPiecesPerThread * workers, p_.batch * row_blocks);
    const int64_t col_blocks =
        std::clamp(wanted, divide_up(p_.n, kBlockCols), std::max(divide_up(p_.n, kBlockCols), p_.n / kLeastCols));
    const int64_t cols = round_up(divide_up(p_.n, col_blocks), kColUnit);

    const int64_t row_pieces = divide_up(p_.m, rows), col_pieces = divide_up(p_.n, cols),
                  pieces = p_.batch * row_pieces * col_pieces;
    std::atomic<int64_t> next{0};
    parallel_for(std::min(workers, pieces), 1, [&](int64_t, int64_t) {
      Worker worker(*this);
      for (int64_t i = next++; i < pieces; i = next++) {
        const int64_t col = i % col_pieces * cols, row = i / col_pieces % row_pieces * rows;
        multiply({.batch = i / (col_pieces * row_pieces),
                  .row = row,
                  .rows = std::min(rows, p_.m - row),
                  .col = col,
                  .cols = std::min(cols, p_.n - col)},
                 in, out[0], worker);
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
  // Scratch of a thread that takes pieces: packed panels, and what codes pass through on their way there.
  struct Worker {
    explicit Worker(const ProductsKernel& k)
        : scratch(k.scratch_bytes()),
          tile(scratch.floats(k.block_rows() * k.block_cols())),
          x_panels(static_cast<uint8_t*>(scratch.bytes(k.x_panel_blocks() * k.x_block_bytes()))),
          w_panel(scratch.bytes(k.product_.w_bytes(k.block_k()))),
          decoded(scratch.floats(k.decoded_floats())),
          numbers(scratch.floats(k.numbers_floats())),
          codes(scratch.floats(k.codes_floats())),
          x_codes(scratch.floats(k.x_codes_floats())),
          by_row(scratch.floats(k.block_rows())),
          by_column(scratch.floats(k.block_cols())),
          program(scratch.floats(k.program_.scratch_floats(k.block_cols()))) {}
    Scratch scratch;
    float* tile;
    uint8_t* x_panels;
    void* w_panel;
    float* decoded;  // of the product's own
    void* numbers;   // rows or a panel of `numbers_`
    void* codes;     // rows of a sparse weight
    void* x_codes;   // rows of x that rows_ read
    float *by_row, *by_column, *program;
    int64_t batch = -1, row = -1;  // whose rows lie in x_panels over all of k
  };
  int64_t block_rows() const { return round_up(std::min(p_.m, kBlockRows), product_.rows); }
  int64_t block_cols() const { return round_up(std::min(p_.n, kBlockCols), kColUnit); }
  int64_t block_k() const { return std::min(p_.k, product_.block_k); }
  int64_t most_rows() const { return std::max(kPanelCols, product_.rows); }
  int64_t decoded_floats() const { return most_rows() * round_up(block_k(), 8); }
  int64_t numbers_floats() const {
    return x_codes_ && w_codes_ ? 0 : divide_up(decoded_floats() * info(numbers_).bits, 32);
  }
  bool sparse() const { return problem_.in[1].layout == Layout::kSparse24; }
  int64_t x_codes_floats() const {
    return rows_ == nullptr ? 0 : divide_up(product_.rows * block_k() * info(x_).bits, 32);
  }
  int64_t codes_floats() const { return sparse() ? divide_up(kPanelCols * round_up(block_k(), 8) * w_bits_, 32) : 0; }
  int64_t x_block_bytes() const { return round_up(product_.x_bytes(block_rows(), block_k()), 64); }
  bool keeps_rows() const { return divide_up(p_.k, product_.block_k) * x_block_bytes() <= kMostKeptBytes; }
  int64_t x_panel_blocks() const { return keeps_rows() ? divide_up(p_.k, product_.block_k) : 1; }
  int64_t scratch_bytes() const {
    return Scratch::bytes_of(block_rows() * block_cols()) + x_panel_blocks() * x_block_bytes() +
           product_.w_bytes(block_k()) + Scratch::bytes_of(decoded_floats()) + Scratch::bytes_of(numbers_floats()) +
           Scratch::bytes_of(codes_floats()) + Scratch::bytes_of(x_codes_floats()) + Scratch::bytes_of(block_rows()) +
           Scratch::bytes_of(block_cols()) + Scratch::bytes_of(program_.scratch_floats(block_cols())) + 2 * 64;
  }

  void multiply(const Block& b, std::span<const TensorView> in, const TensorView& out, Worker& worker) const {
    const bool packed = worker.batch == b.batch && worker.row == b.row;
    for (int64_t k0 = 0; k0 < p_.k; k0 += product_.block_k) {
      const int64_t k = std::min(product_.block_k, p_.k - k0);
      uint8_t* x_panels = worker.x_panels + (keeps_rows() ? k0 / product_.block_k * x_block_bytes() : 0);
      if (!packed) pack_rows(in[0], b, k0, k, x_panels, worker);
      for (int64_t c = 0; c < b.cols; c += kPanelCols) {
        const void* w = take_panel(in[1], b.batch * p_.n, b.col + c, k0, k, worker);
        product_.multiply(x_panels, w, b.rows, k, k0 == 0, worker.tile + c, b.stride());
      }
    }
    if (keeps_rows()) worker.batch = b.batch, worker.row = b.row;
    finish(b, in, out, worker);
  }

  // Rows of the block over k columns from k0 into x panels.
  void pack_rows(const TensorView& x, const Block& b, int64_t k0, int64_t k, uint8_t* panel, const Worker& to) const {
    const int64_t row = b.batch * p_.m + b.row, begin = row * p_.x_row_stride + k0;
    if (x_codes_ && rows_ == nullptr) {
      product_.pack_x(x_, x.data, p_.x_row_stride, begin, b.rows, k, to.decoded, panel);
      return;
    }
    const int64_t panel_bytes = product_.rows * round_up(k, product_.depth) * product_.bytes;
    const int64_t row_bytes = k * info(numbers_).bits / 8;
    NumberReader::Matrix m{x.data, x.scale, p_.k};
    for (int64_t r = 0; r < b.rows; r += product_.rows, panel += panel_bytes) {
      const int64_t count = std::min(product_.rows, b.rows - r);
      if (rows_ != nullptr) {
        rows_->read(x, b.batch, b.row + r, count, k0, k, to.x_codes);
        m.codes = to.x_codes;
        if (x_codes_) {
          product_.pack_x(x_, to.x_codes, k, 0, count, k, to.decoded, panel);
          continue;
        }
      }
      for (int64_t i = 0; i < count; ++i)
        x_reader_.read_row(m, rows_ != nullptr ? i * k : begin + (r + i) * p_.x_row_stride, row + r + i, k0, k,
                           static_cast<uint8_t*>(to.numbers) + i * row_bytes);
      product_.pack_x(numbers_, to.numbers, k, 0, count, k, to.decoded, panel);
    }
  }

  // Weights col ... col + 15 over k columns from k0, of the matrix that begins at row `top`.
  const void* take_panel(const TensorView& w, int64_t top, int64_t col, int64_t k0, int64_t k, const Worker& to) const {
    const int64_t rows = std::min(kPanelCols, p_.n - col), row = top + col;
    const Layout layout = w.desc->layout.codes;
    NumberReader::Matrix m{w.data, w.scale, p_.k};
    if (layout == product_.layout) {
      const int64_t first = layout_index(layout, row, k0, p_.batch * p_.n, p_.k);
      if (w_codes_) return product_.take_w(w_, w.data, first, k, to.w_panel);
      w_reader_.read_panel(m, first, row, k0, k, to.numbers);
      return product_.take_w(numbers_, to.numbers, 0, k, to.w_panel);
    }
    int64_t offsets[kPanelCols];
    for (int64_t i = 0; i < rows; ++i) offsets[i] = (row + i) * p_.w_row_stride + k0;
    if (layout == Layout::kSparse24) {
      const int64_t stride = round_up(k, 8), all = p_.batch * p_.n;
      for (int64_t i = 0; i < rows; ++i) {
        offsets[i] = i * stride;
        expand_sparse_row(w_bits_, w.data, metadata24_of(w.data, w_, all, p_.k), row + i, k0, k, p_.k,
                          static_cast<uint8_t*>(to.codes) + offsets[i] * w_bits_ / 8);
      }
      m.codes = to.codes;
    }
    if (w_codes_) {
      product_.pack_w(w_, m.codes, offsets, rows, k, to.decoded, to.w_panel);
      return to.w_panel;
    }
    for (int64_t i = 0; i < rows; ++i) {
      w_reader_.read_row(m, offsets[i], row + i, k0, k,
                         static_cast<uint8_t*>(to.numbers) + i * k * info(numbers_).bits / 8);
      offsets[i] = i * k;
    }
    product_.pack_w(numbers_, to.numbers, offsets, rows, k, to.decoded, to.w_panel);
    return to.w_panel;
  }

  void finish(const Block& b, std::span<const TensorView> in, const TensorView& out, const Worker& worker) const {
    const int64_t first_row = p_.beside ? b.row : b.batch * p_.m + b.row,
                  first_col = p_.beside ? b.batch * p_.n + b.col : b.col;
    const CpuProgram::Columns program = program_.on(in, out, first_col, b.cols, worker.program);
    const SumScales x_scales(in[0]), w_scales(in[1]);
    const float* by_row = x_scales.of_rows(b.batch * p_.m + b.row, b.rows, worker.by_row);
    const float* by_column = w_scales.of_rows(b.batch * p_.n + b.col, b.cols, worker.by_column);
    const float common = x_scales.of_tensor() * w_scales.of_tensor();
    const bool scaled = x_scales.any() || w_scales.any();
    for (int64_t r = 0; r < b.rows; ++r) {
      float* v = worker.tile + r * b.stride();
      if (product_.integer) to_floats(v, b.cols);
      if (scaled) scale_row(v, b.cols, by_row != nullptr ? common * by_row[r] : common, by_column);
      program.finish(first_row + r, v);
    }
  }

  const Problem problem_;
  const PanelProduct& product_;
  const Element numbers_;
  const CpuProducts p_;
  const std::unique_ptr<CpuRows> rows_;
  const Element x_, w_;
  const CpuProgram program_;
  const bool x_codes_, w_codes_;  // the product unpacks them itself
  const NumberReader x_reader_, w_reader_;
  const int w_bits_;
};

Verdict accepts_type(const char* operand, const QuantType& type, const CpuFactors& f) {
  TS_REQUIRE(info(type.element).bits <= 32 && f.holds(type), f.refusal, operand, " in ", to_string(type));
  TS_REQUIRE(rounds_products(type), "rounds products to floats of less than 32 bits, not ", to_string(type));
  for (const ScaleLevel* level : {&type.scale, &type.scale2}) {
    if (level->granularity == Granularity::kNone) continue;
    TS_REQUIRE(info(level->element).kind == ElementKind::kFloat && info(level->element).bits <= 32,
               "reads scales in f32 or less, not ", to_string(type));
  }
  const auto by_row = [](const ScaleLevel& s) {
    return s.granularity == Granularity::kToken || s.granularity == Granularity::kChannel;
  };
  TS_REQUIRE(type.scale2.granularity != Granularity::kBlock && !(by_row(type.scale) && by_row(type.scale2)),
             "reads blocks of scales at the first level and one scale per row, not ", to_string(type));
  return {};
}

// Panels of the product's own order are worth it where the weight is there at build, and possible where a block of
// scales holds whole groups of columns and a product's rows whole panels.
bool suits_panels(const Operand& w, const CpuProducts& products, const PanelProduct& product) {
  return w.constant && w.shape.size() == 2 && (products.batch == 1 || products.n % kPanelCols == 0) &&
         (!has_block_scales(w.type) || w.type.scale.block % layout_group(product.layout) == 0);
}

// Codes and block scales as the product reads its panels.
OperandLayout panels_of(const Operand& w, const PanelProduct& product) {
  return {product.layout, has_block_scales(w.type) ? NumberReader::kPanelScales : Layout::kRows};
}

bool is_int8(Element e) { return e == Element::i8; }

}  // namespace

CpuFactors fp32_factors() {
  return {.product = fp32_product(),
          .numbers = Element::f32,
          .holds = [](const QuantType& type) { return significand_bits(type.element) <= 24; },
          .reads = is_float_code,
          .refusal = "multiplies codes that f32 holds, not "};
}

CpuFactors bf16_factors() {
  return {.product = bf16_product(),
          .numbers = Element::bf16,
          .holds = fits_bf16,
          .reads = is_exact_in_bf16,
          .refusal = "multiplies numbers that bf16 holds exactly, not "};
}

CpuFactors int8_factors() {
  return {.product = int8_product(),
          .numbers = Element::i8,
          .holds = [](const QuantType& type) { return is_int8(type.element) && !has_block_scales(type); },
          .reads = is_int8,
          .refusal = "multiplies i8 without scales of blocks, not "};
}

Arithmetic fp32_arithmetic(const Problem& p) {
  const bool exact = fits_f32(p.in[0].type) && fits_f32(p.in[1].type);
  return {.computed = Element::f32,
          .instruction = "fp32 FMA on decoded codes",
          .accumulator_bits = 24,
          .operand_error = exact ? 0 : 0x1p-24};
}

Arithmetic bf16_arithmetic(const Problem&) {
  return {.computed = Element::bf16, .instruction = "bf16 products, fp32 sums", .accumulator_bits = 23};
}

Arithmetic int8_arithmetic(const Problem&) {
  return {.computed = Element::i8, .instruction = "int8 products", .accumulator_bits = 32};
}

Verdict accepts_cpu_products(const Problem& p, const CpuProducts& products, const CpuFactors& f) {
  const Operand *x = p.operand(0), *w = p.operand(1);
  TS_REQUIRE(x != nullptr && w != nullptr, "wants x and w");
  if (Verdict v = accepts_type("x", x->type, f); !v) return v;
  if (Verdict v = accepts_type("w", w->type, f); !v) return v;
  const bool sparse = w->layout == Layout::kSparse24, asked = products.sparse24;
  TS_REQUIRE(!(sparse || asked) || (w->constant && !is_power(w->type.element)),
             "reads 2:4 sparse weights that are constant");
  TS_REQUIRE(sparse || (w->layout == Layout::kRows
                            ? w->rows().uniform
                            : w->layout == panels_of(*w, f.product) && suits_panels(*w, products, f.product)),
             "reads w in uniform rows, 2:4 sparse, or in ", name_of(panels_of(*w, f.product)),
             " where it is one matrix");
  return CpuProgram::accepts(p);
}

std::vector<OperandLayout> layouts_of_cpu_products(const Problem& p, const CpuProducts& products, const CpuFactors& f) {
  if (products.sparse24) return {Layout::kRows, Layout::kSparse24};
  return {Layout::kRows, suits_panels(p.in[1], products, f.product) ? panels_of(p.in[1], f.product) : OperandLayout()};
}

std::unique_ptr<Kernel> make_cpu_products(const Problem& problem, const CpuProducts& products,
                                          const CpuFactors& factors, std::unique_ptr<CpuRows> rows) {
  return std::make_unique<ProductsKernel>(problem, products, factors, std::move(rows));
}

}  // namespace tessera
