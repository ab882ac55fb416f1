// SPDX-License-Identifier: Apache-2.0
// Work goes by pieces of a row that fit the first-level cache. Within a piece every loop is plain enough for the
// compiler to turn into SIMD, and elements are met only through their bulk conversions, so that no format has code of
// its own.
#include "types/quantize_array.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

namespace tessera {
namespace {

constexpr int64_t kPiece = 2048;  // numbers: 8 KiB of x and as much of x / scale, in caches of 32 KiB and more
constexpr int32_t kInfBits = 0x7f800000;

// Magnitudes compare as integers, NaN above all numbers; integer maxima need no licence to reorder.
int32_t magnitude_of(float x) { return std::bit_cast<int32_t>(x) & 0x7fffffff; }
float amax_of(int32_t magnitude) {
  return magnitude > kInfBits ? std::numeric_limits<float>::quiet_NaN() : std::bit_cast<float>(magnitude);
}

int32_t largest_magnitude(const float* x, int64_t n) {
  int32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, magnitude_of(x[i]));
  return largest;
}

int32_t largest_number(const float* x, int64_t n) {  // passes over NaN
  int32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int32_t m = magnitude_of(x[i]);
    largest = std::max(largest, m > kInfBits ? 0 : m);
  }
  return largest;
}

// kBlock: known to the compiler, or 0.
template <int kBlock>
void block_magnitudes(const float* x, int64_t blocks, int64_t block, int32_t* __restrict out) {
  const int64_t n = kBlock > 0 ? kBlock : block;
  for (int64_t b = 0; b < blocks; ++b, x += n) {
    int32_t largest = 0;
    for (int64_t i = 0; i < n; ++i) largest = std::max(largest, magnitude_of(x[i]));
    out[b] = largest;
  }
}

template <int kBlock>
void divide_blocks(const float* x, int64_t blocks, int64_t block, const float* divisors, float max, float zero,
                   float* __restrict y) {
  const int64_t n = kBlock > 0 ? kBlock : block;
  for (int64_t b = 0; b < blocks; ++b, x += n, y += n) {
    const float divisor = divisors[b];
    if (!(divisor > 0 && divisor < std::numeric_limits<float>::infinity())) {
      std::fill_n(y, n, 0.0f);
      continue;
    }
#pragma GCC unroll 1  // else 16 divisions are written out one by one before anyone thinks of SIMD
    for (int64_t i = 0; i < n; ++i) {
      const float q = x[i] / divisor + zero;
      const float high = q > max ? max : q;
      y[i] = high < -max ? -max : high;
    }
  }
}

template <int kBlock>
void multiply_blocks(float* __restrict y, int64_t blocks, int64_t block, const float* factors) {
  const int64_t n = kBlock > 0 ? kBlock : block;
  for (int64_t b = 0; b < blocks; ++b, y += n) {
    for (int64_t i = 0; i < n; ++i) y[i] *= factors[b];
  }
}

// Calls body with the block size as a constant where it is one of the usual ones.
template <class Body>
void with_block(int64_t block, const Body& body) {
  switch (block) {
    case 16:
      return body(std::integral_constant<int, 16>{});
    case 32:
      return body(std::integral_constant<int, 32>{});
    default:
      return body(std::integral_constant<int, 0>{});
  }
}

// One number of a level that covers the tensor; 1 where there is no such level.
float tensor_scale(const ScaleLevel& level, const void* scale) {
  float s = 1;
  if (level.granularity == Granularity::kTensor) info(level.element).decode(scale, 0, 1, &s);
  return s;
}

// The numbers that the scales of a level cover, as runs within a row: the length of a run, and how a row is cut into
// pieces of whole runs.
struct Runs {
  int64_t length, piece;
  Runs(const ScaleLevel& level, int64_t cols)
      : length(level.granularity == Granularity::kBlock ? std::min<int64_t>(level.block, cols) : cols) {
    piece = length > kPiece ? kPiece : kPiece / std::max<int64_t>(length, 1) * length;
  }
  // Calls body(first column, columns) for the pieces of a row; a piece lies within one run or begins and ends with one
  // (the last run may be short).
  template <class Body>
  void each_piece(int64_t cols, const Body& body) const {
    for (int64_t run = 0; run < cols;) {
      const int64_t end = length > kPiece ? std::min(run + length, cols) : cols;
      for (int64_t c = run; c < end; c += piece) body(c, std::min(piece, end - c));
      run = end;
    }
  }
  // Of a piece: whole runs and the numbers after them.
  int64_t whole(int64_t n) const { return n / length; }
  int64_t rest(int64_t n) const { return n % length; }
  int64_t count(int64_t n) const { return (n + length - 1) / length; }
};

class Quantizer {
 public:
  Quantizer(const QuantType& type, const void* scale2, int64_t cols)
      : type_(type),
        cols_(cols),
        runs_(type.scale, cols),
        element_(info(type.element)),
        scale_(info(type.scale.element)),
        max_(static_cast<float>(element_.max)),
        scale2_(tensor_scale(type.scale2, scale2)) {}

  // Scales `first` ... of the level from their largest magnitudes.
  void make(const int32_t* magnitudes, int64_t n, void* scale, int64_t first) const {
    if (is_power(type_.scale.element)) {
      auto* codes = static_cast<uint8_t*>(scale) + first;
      for (int64_t i = 0; i < n; ++i) codes[i] = power_scale(type_.scale.rule, amax_of(magnitudes[i]), max_);
      return;
    }
    const float smallest = std::ldexp(1.0f, scale_.min_exponent - scale_.mantissa_bits);
    float wanted[kPiece];
    for (int64_t i = 0; i < n; ++i) {
      const float w = amax_of(magnitudes[i]) / max_ / scale2_;
      wanted[i] = w == 0 ? 1.0f : w < smallest ? smallest : w;
    }
    scale_.encode(wanted, n, scale, first);
  }

  // Scales of the piece of row r that begins at column c.
  void make_piece(const float* x, int64_t r, int64_t c, int64_t n, void* scale) const {
    int32_t magnitudes[kPiece];
    const int64_t blocks = runs_.whole(n);
    with_block(runs_.length,
               [&](auto size) { block_magnitudes<decltype(size)::value>(x, blocks, runs_.length, magnitudes); });
    if (const int64_t rest = runs_.rest(n); rest > 0) magnitudes[blocks] = largest_magnitude(x + n - rest, rest);
    make(magnitudes, runs_.count(n), scale, scale_index(type_.scale, r, c, cols_));
  }

  void make_row(const float* x, int64_t r, void* scale) const {
    if (runs_.length <= kPiece)
      return runs_.each_piece(cols_, [&](int64_t c, int64_t n) { make_piece(x + c, r, c, n, scale); });
    for (int64_t c = 0; c < cols_; c += runs_.length) {
      const int32_t magnitude = largest_magnitude(x + c, std::min(runs_.length, cols_ - c));
      make(&magnitude, 1, scale, scale_index(type_.scale, r, c, cols_));
    }
  }

  void encode_piece(const float* x, int64_t r, int64_t c, int64_t n, const void* scale, void* codes) const {
    float divisors[kPiece], y[kPiece];
    const int64_t blocks = n < runs_.length ? 0 : runs_.whole(n), rest = n - blocks * runs_.length;
    scale_.decode(scale, scale_index(type_.scale, r, c, cols_), runs_.count(n), divisors);
    for (int64_t i = 0; i < runs_.count(n); ++i) divisors[i] *= scale2_;
    // Adding +0 turns -0 into +0, adding -0 changes nothing.
    const float zero = type_.scale.granularity == Granularity::kBlock ? 0.0f : -0.0f;
    with_block(runs_.length, [&](auto size) {
      divide_blocks<decltype(size)::value>(x, blocks, runs_.length, divisors, max_, zero, y);
    });
    if (rest > 0) divide_blocks<0>(x + n - rest, 1, rest, divisors + blocks, max_, zero, y + n - rest);
    element_.encode(y, n, codes, r * cols_ + c);
  }

  void encode_row(const float* x, int64_t r, const void* scale, void* codes) const {
    runs_.each_piece(cols_, [&](int64_t c, int64_t n) { encode_piece(x + c, r, c, n, scale, codes); });
  }

  // decode(code) * scale of a piece.
  void decode_piece(const void* codes, const void* scale, int64_t r, int64_t c, int64_t n, float* y) const {
    float factors[kPiece];
    element_.decode(codes, r * cols_ + c, n, y);
    scale_.decode(scale, scale_index(type_.scale, r, c, cols_), runs_.count(n), factors);
    const int64_t blocks = n < runs_.length ? 0 : runs_.whole(n), rest = n - blocks * runs_.length;
    with_block(runs_.length,
               [&](auto size) { multiply_blocks<decltype(size)::value>(y, blocks, runs_.length, factors); });
    if (rest > 0) multiply_blocks<0>(y + n - rest, 1, rest, factors + blocks);
  }

  const Runs& runs() const { return runs_; }
  float scale2() const { return scale2_; }

 private:
  const QuantType& type_;
  int64_t cols_;
  Runs runs_;
  const ElementInfo &element_, &scale_;
  float max_, scale2_;
};

// Rows whose scales follow each other without a gap are one long row: pieces stay full where cols is small.
void flatten(const ScaleLevel& level, int64_t* rows, int64_t* cols) {
  const bool blocks = level.granularity == Granularity::kBlock && *cols % level.block == 0;
  if (level.granularity != Granularity::kTensor && !blocks) return;
  *cols *= *rows;
  *rows = 1;
}

bool holds_nan(Element e) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  uint64_t code = 0;
  float back = 0;
  info(e).encode(&nan, 1, &code, 0);
  info(e).decode(&code, 0, 1, &back);
  return std::isnan(back);
}

}  // namespace

Status check_quantizable(const QuantType& type) {
  const std::string name = to_string(type);
  if (is_power(type.element))
    return bad_input(
        cat("type ", name, ": ", info(type.element).name, " has no sign and no zero; it serves as a scale"));
  for (const ScaleLevel& level : {type.scale, type.scale2}) {
    if (level.granularity == Granularity::kNone) continue;
    if (!holds_nan(level.element))
      return bad_input(cat("type ", name, ": a scale is a float that can be NaN, not ", info(level.element).name));
    if (level.granularity == Granularity::kBlock && level.block < 1)
      return bad_input(cat("type ", name, ": a block has at least one number"));
  }
  if (type.scale2.granularity == Granularity::kNone) return {};
  if (type.scale2.granularity != Granularity::kTensor || is_power(type.scale2.element))
    return bad_input(cat("type ", name, ": the second level is tensor(f32) or another float for the tensor"));
  if (!type.scaled() || type.scale.granularity == Granularity::kTensor || is_power(type.scale.element))
    return bad_input(cat(
        "type ", name, ": a second level stands over scales of blocks, channels or tokens that are no powers of two"));
  return {};
}

void make_scale2(const QuantType& type, const float* x, int64_t rows, int64_t cols, void* scale2) {
  if (type.scale2.granularity == Granularity::kNone) return;
  const float amax = amax_of(largest_number(x, rows * cols));
  const double largest = type.product ? info(*type.product).max : info(type.element).max * info(type.scale.element).max;
  float s = amax / static_cast<float>(largest);
  if (s == 0) s = 1;
  info(type.scale2.element).encode(&s, 1, scale2, 0);
}

void make_scales(const QuantType& type, const float* x, int64_t rows, int64_t cols, const void* scale2, void* scale) {
  if (!type.scaled()) return;
  if (cols == 0 ||
      type.scale.granularity == Granularity::kTensor) {  // rows without numbers have their scales all the same
    const int32_t magnitude = largest_magnitude(x, rows * cols);
    const int64_t count = scale_count(type.scale, rows, cols);
    for (int64_t i = 0; i < count; ++i) Quantizer(type, scale2, cols).make(&magnitude, 1, scale, i);
    return;
  }
  flatten(type.scale, &rows, &cols);
  const Quantizer q(type, scale2, cols);
  for (int64_t r = 0; r < rows; ++r) q.make_row(x + r * cols, r, scale);
}

void encode_scaled(const QuantType& type, const float* x, int64_t rows, int64_t cols, const void* scale,
                   const void* scale2, void* codes) {
  if (!type.scaled()) return info(type.element).encode(x, rows * cols, codes, 0);
  flatten(type.scale, &rows, &cols);
  const Quantizer q(type, scale2, cols);
  for (int64_t r = 0; r < rows; ++r) q.encode_row(x + r * cols, r, scale, codes);
}

void quantize_under(const QuantType& type, const float* x, int64_t rows, int64_t cols, const void* scale2, void* scale,
                    void* codes) {
  if (!type.scaled() || type.scale.granularity == Granularity::kTensor || cols == 0) {
    make_scales(type, x, rows, cols, scale2, scale);
    return encode_scaled(type, x, rows, cols, scale, scale2, codes);
  }
  flatten(type.scale, &rows, &cols);
  const Quantizer q(type, scale2, cols);
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * cols;
    if (q.runs().length > kPiece) {
      q.make_row(row, r, scale);
      q.encode_row(row, r, scale, codes);
    } else {
      q.runs().each_piece(cols, [&](int64_t c, int64_t n) {
        q.make_piece(row + c, r, c, n, scale);
        q.encode_piece(row + c, r, c, n, scale, codes);
      });
    }
  }
}

Result<QuantizedArray> quantize_array(const QuantType& type, const float* x, int64_t rows, int64_t cols) {
  TS_TRY(check_quantizable(type));
  const auto bytes_of = [&](const ScaleLevel& level) {
    return static_cast<size_t>(packed_bytes(level.element, scale_count(level, rows, cols)));
  };
  QuantizedArray out{Buffer(static_cast<size_t>(packed_bytes(type.element, rows * cols))), Buffer(bytes_of(type.scale)),
                     Buffer(bytes_of(type.scale2))};
  make_scale2(type, x, rows, cols, out.scale2.data());
  quantize_under(type, x, rows, cols, out.scale2.data(), out.scale.data(), out.codes.data());
  return out;
}

void dequantize_array(const QuantType& type, const void* codes, const void* scale, const void* scale2, int64_t rows,
                      int64_t cols, float* y) {
  if (!type.scaled()) return info(type.element).decode(codes, 0, rows * cols, y);
  flatten(type.scale, &rows, &cols);
  const Quantizer q(type, scale2, cols);
  for (int64_t r = 0; r < rows; ++r) {
    q.runs().each_piece(cols, [&](int64_t c, int64_t n) {
      float* piece = y + r * cols + c;
      q.decode_piece(codes, scale, r, c, n, piece);
      if (type.product) {
        uint64_t rounded[kPiece];  // as wide as the widest element
        info(*type.product).encode(piece, n, rounded, 0);
        info(*type.product).decode(rounded, 0, n, piece);
      }
      if (type.scale2.granularity == Granularity::kNone) return;
      for (int64_t i = 0; i < n; ++i) piece[i] *= q.scale2();
    });
  }
}

void encode_products(const QuantType& type, const void* codes, const void* scale, int64_t rows, int64_t cols,
                     void* products) {
  TS_CHECK(type.product.has_value(), to_string(type), " enters products as it is");
  QuantType first = type;  // scale2 is not part of the product
  first.scale2 = {};
  flatten(type.scale, &rows, &cols);
  const Quantizer q(first, nullptr, cols);
  for (int64_t r = 0; r < rows; ++r) {
    q.runs().each_piece(cols, [&](int64_t c, int64_t n) {
      float piece[kPiece];
      q.decode_piece(codes, scale, r, c, n, piece);
      info(*type.product).encode(piece, n, products, r * cols + c);
    });
  }
}

}  // namespace tessera
