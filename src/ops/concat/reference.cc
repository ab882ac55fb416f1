// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <utility>

#include "ir/region.h"
#include "ops/concat/concat.h"

#define TS_OP_FOLDER concat
#include "ops/list_variants.inc"

namespace tessera {
namespace {

// y as [outer, along the axis, inner]: each index of `outer` has one block.
struct Blocks {
  Blocks(const Shape& y, size_t axis) {
    for (size_t i = 0; i < y.size(); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : y[i];
    block = inner * y[axis];
  }
  // How many axes of a piece make up `outer`; nothing where no number of them does.
  std::optional<size_t> leading_axes(const Shape& piece) const {
    int64_t n = 1;
    for (size_t i = 0;; ++i) {
      if (n == outer) return i;
      if (i == piece.size()) return std::nullopt;
      n *= piece[i];
    }
  }
  // What a piece with so many elements per block takes of the axis.
  int64_t along(int64_t run) const { return inner == 0 ? 0 : run / inner; }

  int64_t outer = 1, inner = 1, block = 0;
};

}  // namespace

ConcatProblem ConcatProblem::of(const Problem& p) {
  ConcatProblem c;
  c.shape = p.out[0].shape;
  c.axis = p.attrs.integer("axis");
  if (c.axis < 0) c.axis += static_cast<int64_t>(c.shape.size());
  const Blocks blocks(c.shape, static_cast<size_t>(c.axis));
  int64_t begin = 0;
  for (const Operand& o : p.in) {
    Piece piece{.shape = o.shape,
                .strides = o.strides,
                .y_strides = dense_strides(o.shape),
                .y_offset = begin * blocks.inner,
                .type = o.type};
    const size_t lead = *blocks.leading_axes(o.shape);
    // An index before the axis skips a whole block of y, not only the piece's part of it.
    const int64_t run = elements(Shape(o.shape.begin() + static_cast<std::ptrdiff_t>(lead), o.shape.end()));
    for (size_t i = 0; i < lead; ++i) piece.y_strides[i] = run == 0 ? 0 : piece.y_strides[i] / run * blocks.block;
    begin += blocks.along(run);
    c.pieces.push_back(std::move(piece));
  }
  c.y = p.out[0].type;
  return c;
}

namespace {

// Attr `block` says what y is from `axis` on; the pieces must fill it. Contract: there is an operand.
Result<std::vector<Type>> infer_split(const Problem& p) {
  const Shape block = p.attrs.list("block");
  const int64_t axis = p.attrs.integer("axis");
  Shape shape = p.in[0].shape;
  for (const Operand& o : p.in) {
    if (o.present && o.shape.size() < shape.size()) shape = o.shape;
  }
  if (block.empty() || axis < 0 || shape.size() != static_cast<size_t>(axis) + block.size())
    return bad_input(
        cat("concat: x", to_string(shape), " has no axis ", axis, " from which on y is ", to_string(block)));
  std::copy(block.begin(), block.end(), shape.begin() + axis);
  if (!checked_elements(shape, kMaxElements) || elements(shape) == 0)
    return bad_input(cat("concat: the shape ", to_string(shape), " is none that split operands could fill"));
  const Blocks blocks(shape, static_cast<size_t>(axis));
  int64_t filled = 0;
  for (size_t i = 0; i < p.in.size(); ++i) {
    const Operand* o = p.operand(i);
    if (o == nullptr) return bad_input(cat("concat: operand ", i, " is missing"));
    const auto count = checked_elements(o->shape, kMaxElements);
    if (!count || *count == 0 || !blocks.leading_axes(o->shape) || *count % (blocks.outer * blocks.inner) != 0)
      return bad_input(
          cat("concat: operand ", i, to_string(o->shape), " is no part of ", to_string(shape), " along axis ", axis));
    filled += *count / (blocks.outer * blocks.inner);
  }
  if (filled != shape[static_cast<size_t>(axis)])
    return bad_input(cat("concat: the operands make ", filled, " along axis ", axis, " of ", to_string(shape)));
  return std::vector<Type>{{.shape = shape, .quant = result_element(p.in[0])}};
}

Result<std::vector<Type>> infer(const Problem& p) {
  const Operand* first = p.operand(0);
  if (first == nullptr) return bad_input("concat: wants one operand at least");
  if (p.attrs.has("block")) return infer_split(p);
  const int64_t rank = static_cast<int64_t>(first->shape.size());
  int64_t axis = p.attrs.integer("axis");
  if (axis < -rank || axis >= rank)
    return bad_input(cat("concat: axis ", axis, " is not one of x", to_string(first->shape)));
  if (axis < 0) axis += rank;
  const size_t at = static_cast<size_t>(axis);
  Shape shape = first->shape;
  shape[at] = 0;
  for (size_t i = 0; i < p.in.size(); ++i) {
    const Operand* o = p.operand(i);
    if (o == nullptr) return bad_input(cat("concat: operand ", i, " is missing"));
    Shape rest = o->shape;
    if (rest.size() != shape.size())
      return bad_input(cat("concat: operand ", i, to_string(o->shape), " has another number of axes than ",
                           to_string(first->shape)));
    const int64_t along = std::exchange(rest[at], shape[at]);
    if (rest != shape)
      return bad_input(cat("concat: operand ", i, to_string(o->shape), " differs from ", to_string(first->shape),
                           " beyond axis ", axis));
    shape[at] += along;
  }
  return std::vector<Type>{{.shape = shape, .quant = result_element(*first)}};
}

void reference(const Problem& p, std::span<const Dense> in, std::span<Dense> out) {
  const ConcatProblem c = ConcatProblem::of(p);
  const Blocks blocks(c.shape, static_cast<size_t>(c.axis));
  for (size_t i = 0; i < in.size(); ++i) {
    const int64_t run = blocks.outer == 0 ? 0 : static_cast<int64_t>(in[i].v.size()) / blocks.outer;
    for (int64_t o = 0; o < blocks.outer; ++o)
      std::copy_n(in[i].v.data() + o * run, run, out[0].v.data() + o * blocks.block + c.pieces[i].y_offset);
  }
}

double flops(const Problem&) { return 0; }

}  // namespace

const OpInfo& concat_op() {
  static const OpInfo kInfo{.name = "concat",
                            .signature = "x[...], more[...] ... -> y[...]",
                            .strided = StridedInputs::kAny,
                            .boundary = true,
                            .infer = infer,
                            .reference = reference,
                            .flops = flops,
                            .variants = listed_variants()};
  return kInfo;
}

}  // namespace tessera
