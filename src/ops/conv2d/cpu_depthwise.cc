// SPDX-License-Identifier: Apache-2.0
// conv2d/cpu_depthwise: every channel is a group of its own. The channels of a pixel are sums of products number by
// number, fp32 FMA on decoded codes; a piece of work is a few pixels of a line of y, 64 channels of them. Pieces of the
// same channels that one thread has in a row share their weights, decoded and turned to channels last once.
#include <algorithm>
#include <vector>

#include "base/parallel.h"
#include "op/cpu_program.h"
#include "ops/conv2d/conv2d.h"
#include "ops/sum_scales.h"
#include "tiles/cpu/numbers.h"
#include "tiles/cpu/rows.h"
#include "tiles/cpu/scratch.h"
#include "tiles/cpu/taps.h"

namespace tessera {
namespace {

constexpr int64_t kChannels = 64, kPixels = 32;
static_assert(kChannels % CpuProgram::kPieceCols == 0);
constexpr int64_t kMostTaps = 1024, kMostLineFloats = int64_t{1} << 21;

class DepthwiseKernel final : public Kernel {
 public:
  explicit DepthwiseKernel(const Problem& problem)
      : problem_(problem), p_(Conv2dProblem::of(problem_)), program_(problem_), element_(problem.in[0].type.element) {
    Scratch::reserve(scratch_bytes());
  }

  // Floats that hold what a piece reads of x, where it is decoded.
  static int64_t lines_of(const Conv2dProblem& p, Element element) {
    return element == Element::f32 ? 0 : p.kh * read_pixels(p) * kChannels;
  }
  int64_t taps() const { return p_.kh * p_.kw; }
  int64_t scratch_bytes() const {
    return Scratch::bytes_of(taps() * kChannels) + Scratch::bytes_of(lines_of(p_, element_)) +
           Scratch::bytes_of(taps()) + 3 * Scratch::bytes_of(kChannels) +
           Scratch::bytes_of(program_.scratch_floats(kChannels));
  }

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream) override {
    const int64_t blocks = divide_up(p_.groups, kChannels), runs = divide_up(p_.out_width, kPixels),
                  lines = p_.batch * p_.out_height;
    parallel_for(blocks * lines * runs, 1, [&](int64_t begin, int64_t end) {
      std::vector<Tap> list(static_cast<size_t>(taps()));
      while (begin < end) {  // pieces of one block of channels after the other: they share its weights
        const int64_t block = begin / (lines * runs), until = std::min(end, (block + 1) * lines * runs);
        const Block channels{block * kChannels, std::min(kChannels, p_.groups - block * kChannels)};
        run(channels, begin % (lines * runs), until - begin, in, out[0], list.data());
        begin = until;
      }
    });
    return {};
  }

 private:
  struct Block {
    int64_t first, channels;
  };
  struct Piece {
    int64_t line, pixel, pixels, first, channels;
  };
  // Pixels of a line of x that a piece reads.
  static int64_t read_pixels(const Conv2dProblem& p) {
    return std::min(p.width, (kPixels - 1) * p.sw + (p.kw - 1) * p.dw + 1);
  }

  // `count` pieces of a block, from piece `begin` on.
  void run(const Block& block, int64_t begin, int64_t count, std::span<const TensorView> in, const TensorView& out,
           Tap* list) const {
    Scratch scratch(scratch_bytes());
    float* w = scratch.floats(taps() * kChannels);
    float* lines = scratch.floats(lines_of(p_, element_));
    float* sums = scratch.floats(kChannels);
    read_weights(in[1], block, scratch.floats(taps()), w);
    const CpuProgram::Columns program =
        program_.on(in, out, block.first, block.channels, scratch.floats(program_.scratch_floats(block.channels)));
    const SumScales x_scales(in[0]), w_scales(in[1]);
    const float* by_column = w_scales.of_rows(block.first, block.channels, scratch.floats(kChannels));
    const float common = x_scales.of_tensor() * w_scales.of_tensor();
    const int64_t runs = divide_up(p_.out_width, kPixels);
    for (int64_t i = begin; i < begin + count; ++i) {
      const int64_t pixel = i % runs * kPixels;
      const Piece piece{i / runs, pixel, std::min(kPixels, p_.out_width - pixel), block.first, block.channels};
      if (element_ != Element::f32) decode_lines(in[0], piece, lines);
      for (int64_t j = piece.pixel; j < piece.pixel + piece.pixels; ++j) {
        sum_taps(list, taps_of(in[0], piece, j, w, lines, list), piece.channels, sums);
        if (x_scales.any() || w_scales.any()) scale_row(sums, piece.channels, common, by_column);
        program.finish(piece.line * p_.out_width + j, sums);
      }
    }
  }

  // Rows of w, a channel each, to rows of channels, a tap each.
  void read_weights(const TensorView& w, const Block& block, float* row, float* out) const {
    const int64_t stride = w.desc->rows().row_stride;
    for (int64_t c = 0; c < block.channels; ++c) {
      decode_row(w.desc->type.element, w.data, (block.first + c) * stride, taps(), row);
      for (int64_t t = 0; t < taps(); ++t) out[t * kChannels + c] = row[t];
    }
  }

  int64_t top_of(const Piece& piece) const { return piece.line % p_.out_height * p_.sh - p_.top; }
  int64_t index_of(const Piece& piece, int64_t i, int64_t j) const {
    return piece.line / p_.out_height * p_.strides[0] + i * p_.strides[1] + j * p_.strides[2] + piece.first;
  }
  // The first pixel of x's lines that the piece reads.
  int64_t first_read(const Piece& piece) const { return std::max<int64_t>(0, piece.pixel * p_.sw - p_.left); }

  void decode_lines(const TensorView& x, const Piece& piece, float* lines) const {
    const int64_t first = first_read(piece), end = std::min(p_.width, first + read_pixels(p_));
    for (int64_t di = 0; di < p_.kh; ++di) {
      const int64_t i = top_of(piece) + di * p_.dh;
      if (i < 0 || i >= p_.height) continue;
      for (int64_t j = first; j < end; ++j)
        decode_row(element_, x.data, index_of(piece, i, j), piece.channels,
                   lines + (di * read_pixels(p_) + j - first) * kChannels);
    }
  }

  // The taps of pixel j that lie inside x, and how many they are.
  int64_t taps_of(const TensorView& x, const Piece& piece, int64_t j, const float* w, const float* lines,
                  Tap* list) const {
    int64_t count = 0;
    const int64_t first = first_read(piece);
    for (int64_t di = 0; di < p_.kh; ++di) {
      const int64_t i = top_of(piece) + di * p_.dh;
      if (i < 0 || i >= p_.height) continue;
      for (int64_t dj = 0; dj < p_.kw; ++dj) {
        const int64_t at = j * p_.sw - p_.left + dj * p_.dw;
        if (at < 0 || at >= p_.width) continue;
        list[count++] = {.x = element_ == Element::f32 ? static_cast<const float*>(x.data) + index_of(piece, i, at)
                                                       : lines + (di * read_pixels(p_) + at - first) * kChannels,
                         .w = w + (di * p_.kw + dj) * kChannels};
      }
    }
    return count;
  }

  const Problem problem_;
  const Conv2dProblem p_;
  const CpuProgram program_;
  const Element element_;
};

// Rows of w and tensors have scales of their own; numbers are f32 without them.
bool is_number_in_f32(const QuantType& t) {
  return fits_f32(t) && !has_block_scales(t) && info(t.element).bits >= 8 && info(t.element).bits <= 32 && !t.product;
}

Verdict accepts(const Problem& p) {
  const Operand *x = p.operand(0), *w = p.operand(1);
  TS_REQUIRE(x != nullptr && w != nullptr, "wants x and w");
  const Conv2dProblem q = Conv2dProblem::of(p);
  TS_REQUIRE(q.c == 1 && q.n == 1, "wants every channel to be a group of its own, not groups of ", q.c,
             " channels and ", q.n, " results");
  TS_REQUIRE(!q.sparse24, "multiplies dense weights; 2:4 sparsity was asked for");
  TS_REQUIRE(is_number_in_f32(x->type) && has_one_scale(x->type),
             "reads numbers that f32 holds with at most one static f32 scale, not ", to_string(x->type));
  TS_REQUIRE(is_number_in_f32(w->type), "reads weights that f32 holds without scales of blocks, not ",
             to_string(w->type));
  TS_REQUIRE(x->layout == Layout::kRows && x->strides[3] == 1, "reads x with its channels last");
  TS_REQUIRE(w->layout == Layout::kRows && w->rows().uniform, "reads w in uniform rows");
  TS_REQUIRE(q.kh * q.kw <= kMostTaps, "sums at most ", kMostTaps, " products");
  if (Verdict v = CpuProgram::accepts(p); !v) return v;
  TS_REQUIRE(DepthwiseKernel::lines_of(q, x->type.element) <= kMostLineFloats, "decodes at most ", kMostLineFloats,
             " numbers of x at a time");
  return {};
}

Arithmetic arithmetic(const Problem&) {
  return {.computed = Element::f32, .instruction = "fp32 FMA on decoded codes", .accumulator_bits = 24};
}

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  std::unique_ptr<Kernel> kernel = std::make_unique<DepthwiseKernel>(p);
  return kernel;
}

}  // namespace

const Variant& conv2d_cpu_depthwise() {
  static const Variant kVariant{
      .name = "conv2d/cpu_depthwise", .arch = Arch::cpu, .accepts = accepts, .arithmetic = arithmetic, .bind = bind};
  return kVariant;
}

}  // namespace tessera
