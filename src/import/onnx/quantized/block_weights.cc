// SPDX-License-Identifier: Apache-2.0
// MatMulNBits of com.microsoft, the layer of ONNX Runtime's weight-only quantizer: y = x w^T + bias with
//   w[n, k] = (q[n, k] - zero[n, b]) * scale[n, b]      b = k / block_size, q of 4 bits, zero 8 where there are none
// Codes stay 4 bits wide where every zero is 8 and every scale positive. Otherwise they become 8 bits wide: q - zero,
// times the sign of the scale. No number changes.
#include <algorithm>
#include <cmath>

#include "import/onnx/quantized/scales.h"
#include "ir/gather_codes.h"
#include "types/codes.h"

namespace tessera {
namespace {

constexpr int kBits = 4;
constexpr int64_t kMiddle = 8;

struct Sizes {
  int64_t n = 0, k = 0, block = 0, blocks = 0;
};

Result<Sizes> read_sizes(const OnnxCall& c, const Shape& x) {
  Sizes s;
  TS_ASSIGN(const int64_t bits, c.integer("bits", kBits));
  TS_ASSIGN(s.n, c.integer("N", 0));
  TS_ASSIGN(s.k, c.integer("K", 0));
  TS_ASSIGN(s.block, c.integer("block_size", 0));
  if (bits != kBits) return bad_input(cat("bits = ", bits, "; ", kBits, " are supported"));
  constexpr int64_t kMost = int64_t{1} << 31;
  if (s.n < 1 || s.k < 1 || s.block < 2 || s.block % 2 != 0 || std::max({s.n, s.k, s.block}) >= kMost)
    return bad_input(cat("N = ", s.n, ", K = ", s.k, ", block_size = ", s.block,
                         ": positive numbers below 2^31 are wanted, the last one even"));
  if (x.size() < 2 || x.back() != s.k)
    return bad_input(cat("x is ", to_string(x), ", a matrix or more axes are wanted, the last one K = ", s.k));
  s.blocks = (s.k + s.block - 1) / s.block;
  return s;
}

// The elements of a constant operand, in order, of which there must be `count`.
Result<Buffer> read_constant(const OnnxCall& c, size_t operand, bool bytes, int64_t count, const char* what) {
  TS_ASSIGN(const ValueId v, c.operand(operand));
  const Place p = c.b.place(v);
  const Value& base = c.b.graph().at(p.base);
  if (!base.constant || base.type.quant.scaled())
    return bad_input(cat(what, " '", shown(c.node.inputs[operand]), "' must be a plain constant"));
  const Element element = base.type.quant.element;
  if (bytes ? element != Element::u8 : element != Element::f32)
    return bad_input(cat(what, " '", shown(c.node.inputs[operand]), "' are ", info(element).name, "; ",
                         bytes ? "uint8" : "floats", " are supported"));
  if (elements(p.region.shape) != count || elements(base.type.shape) < count)
    return bad_input(cat(what, " '", shown(c.node.inputs[operand]), "' are ", to_string(p.region.shape), "; ", count,
                         " numbers are wanted"));
  return gather_codes(base.data.data(), info(element).bits, p.region);
}

// Of each block: what its codes are zero at. Rows of packed zeros begin at whole bytes.
Result<std::vector<int>> read_zeros(const OnnxCall& c, const Sizes& s) {
  std::vector<int> zeros(static_cast<size_t>(s.n * s.blocks), static_cast<int>(kMiddle));
  if (!c.has(3)) return zeros;
  const int64_t row_bytes = (s.blocks * kBits + 7) / 8;
  TS_ASSIGN(const Buffer packed, read_constant(c, 3, true, s.n * row_bytes, "zero points"));
  for (int64_t row = 0; row < s.n; ++row) {
    for (int64_t b = 0; b < s.blocks; ++b)
      zeros[static_cast<size_t>(row * s.blocks + b)] =
          static_cast<int>(code_at(packed.data() + row * row_bytes, kBits, b));
  }
  return zeros;
}

// A column's block must be the one that its place says (g_idx of GPTQ without reordering).
Status check_order(const OnnxCall& c, const Sizes& s) {
  if (!c.has(4)) return {};
  const Place p = c.b.place(c.in[4]);
  const Type& type = c.b.graph().at(p.base).type;
  if (!c.b.is_constant(c.in[4]) || type.quant.scaled() || !p.region.whole() || elements(type.shape) != s.k)
    return bad_input("g_idx must be a constant with a number for each of K columns");
  const std::vector<double> at = c.b.graph().numbers(p.base);
  for (int64_t k = 0; k < s.k; ++k) {
    if (at[static_cast<size_t>(k)] != static_cast<double>(k / s.block))
      return bad_input(cat("g_idx puts column ", k, " into block ", at[static_cast<size_t>(k)],
                           "; only columns in their order are supported (quantize without act_order)"));
  }
  return {};
}

// The weight [n, k] as a constant with scales, decoded by a copy.
Result<ValueId> read_weight(OnnxCall& c, const Sizes& s) {
  const int64_t block_bytes = s.block * kBits / 8, count = s.n * s.blocks;
  TS_ASSIGN(const Buffer blob, read_constant(c, 1, true, count * block_bytes, "weights"));
  TS_ASSIGN(Buffer scales, read_constant(c, 2, false, count, "scales"));
  TS_ASSIGN(const std::vector<int> zeros, read_zeros(c, s));
  auto* scale = reinterpret_cast<float*>(scales.data());
  bool plain = true;
  std::vector<int> sign(static_cast<size_t>(count), 1);
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(scale[i]))
      return bad_input(cat("scale ", i, " of ", count, " is ", scale[i], "; scales must be finite"));
    sign[static_cast<size_t>(i)] = scale[i] > 0 ? 1 : scale[i] < 0 ? -1 : 0;
    scale[i] = scale[i] == 0 ? 1.0f : std::fabs(scale[i]);  // all of a block's numbers are 0 then
    plain = plain && sign[static_cast<size_t>(i)] == 1 && zeros[static_cast<size_t>(i)] == kMiddle;
  }
  // A small file must not become a large graph: one constant, read again and again.
  constexpr int64_t kTimes = 8;
  c.file.decoded_count += s.n * s.k;
  if (c.file.decoded_count > kMaxListed + kTimes * c.file.code_count)
    return bad_input(cat("the file's codes are decoded more than ", kTimes, " times over"));
  const QuantType type(plain ? Element::i4 : Element::i8,
                       {Granularity::kBlock, Element::f32, static_cast<int32_t>(s.block)});
  const int bits = info(type.element).bits;
  Buffer codes(static_cast<size_t>(packed_bytes(type.element, s.n * s.k)));
  for (int64_t row = 0; row < s.n; ++row) {
    for (int64_t k = 0; k < s.k; ++k) {
      const auto b = static_cast<size_t>(row * s.blocks + k / s.block);
      const int q = static_cast<int>(code_at(blob.data() + b * static_cast<size_t>(block_bytes), kBits, k % s.block));
      set_code(codes.data(), bits, row * s.k + k,
               static_cast<uint64_t>((q - zeros[b]) * sign[b]) & ((uint64_t{1} << bits) - 1));
    }
  }
  const std::string name = c.b.graph().at(c.b.place(c.in[1]).base).name;
  const ValueId id = c.b.graph().add_constant(name, Type{{s.n, s.k}, type}, Bytes::own(std::move(codes)));
  const ValueId held =
      c.b.graph().add_constant(name + ".scale", Type{{count}, Element::f32}, Bytes::own(std::move(scales)));
  c.b.graph().at(id).scale = held;
  TS_ASSIGN(const ValueId decoded, c.b.emit("copy", {id}, {}, c.name()));
  c.file.decoded[decoded] = id;
  return decoded;
}

}  // namespace

Result<Values> matmul_of_block_weights(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const Sizes sizes, read_sizes(c, c.b.shape(x)));
  TS_TRY(check_order(c, sizes));
  TS_ASSIGN(const ValueId w, read_weight(c, sizes));
  c.in[1] = w;
  const std::string name = c.name_by(1);
  TS_ASSIGN(ValueId y, product(c, x, w, name));
  if (c.has(5)) {
    TS_ASSIGN(y, c.b.map("add", {y, c.in[5]}, name + ".bias"));
  }
  return Values{y};
}

}  // namespace tessera
