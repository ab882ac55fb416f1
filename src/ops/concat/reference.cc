// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "ops/concat/concat.h"

#define TS_OP_FOLDER concat
#include "ops/list_variants.inc"

namespace tessera {

ConcatProblem ConcatProblem::of(const Problem& p) {
  ConcatProblem c;
  c.shape = p.out[0].shape;
  c.axis = p.attrs.integer("axis");
  if (c.axis < 0) c.axis += static_cast<int64_t>(c.shape.size());
  int64_t begin = 0;
  for (const Operand& o : p.in) {
    c.pieces.push_back({.begin = begin, .shape = o.shape, .strides = o.strides, .type = o.type});
    begin += o.shape[static_cast<size_t>(c.axis)];
  }
  c.y = p.out[0].type;
  return c;
}

namespace {

Result<std::vector<Type>> infer(const Problem& p) {
  const Operand* first = p.operand(0);
  if (first == nullptr) return bad_input("concat: wants one operand at least");
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
  const size_t axis = static_cast<size_t>(c.axis);
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < c.shape.size(); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : c.shape[i];
  const int64_t line = c.shape[axis] * inner;
  for (size_t i = 0; i < in.size(); ++i) {
    const int64_t run = c.pieces[i].shape[axis] * inner;
    for (int64_t o = 0; o < outer; ++o)
      std::copy_n(in[i].v.data() + o * run, run, out[0].v.data() + o * line + c.pieces[i].begin * inner);
  }
}

double flops(const Problem&) { return 0; }

}  // namespace

const OpInfo& concat_op() {
  static const OpInfo kInfo{.name = "concat",
                            .signature = "x[...], more[...] ... -> y[...]",
                            .strided = StridedInputs::kAny,
                            .infer = infer,
                            .reference = reference,
                            .flops = flops,
                            .variants = listed_variants()};
  return kInfo;
}

}  // namespace tessera
