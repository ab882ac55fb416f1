// SPDX-License-Identifier: Apache-2.0
#include "ops/copy/copy.h"

#include <cmath>

#include "op/whole_numbers.h"
#include "tiles/strided.h"

#define TS_OP_FOLDER copy
#include "ops/list_variants.inc"

namespace tessera {

CopyProblem CopyProblem::of(const Problem& p) {
  return {.shape = p.in[0].shape, .strides = p.in[0].strides, .x = p.in[0].type, .y = p.out[0].type};
}

CopyProblem CopyProblem::merged() const {
  CopyProblem m = *this;
  std::vector<Shape> each = {strides};
  merge_axes(m.shape, each);
  m.strides = each[0];
  return m;
}

namespace {

Result<std::vector<Type>> infer(const Problem& p) {
  const Operand* x = p.operand(0);
  if (x == nullptr) return bad_input("copy: operand x is missing");
  Type y{.shape = x->shape, .quant = result_element(*x)};
  if (p.attrs.has("element")) {
    const std::string name = p.attrs.word("element");
    const auto element = find_element(name);
    if (!element) return bad_input(cat("copy: element \"", name, "\" is unknown"));
    y.quant = *element;
  }
  return std::vector<Type>{y};
}

// Floats become whole numbers towards zero, as everywhere else; encode would round to nearest.
void reference(const Problem& p, std::span<const Dense> in, std::span<Dense> out) {
  const bool truncate = is_whole(p.out[0].type) && !is_whole(p.in[0].type);
  for (size_t i = 0; i < in[0].v.size(); ++i) out[0].v[i] = truncate ? std::trunc(in[0].v[i]) : in[0].v[i];
}

int64_t terms(const Problem& p) { return p.in[0].type.scaled() ? 1 : 0; }

double flops(const Problem&) { return 0; }

}  // namespace

const OpInfo& copy_op() {
  static const OpInfo kInfo{.name = "copy",
                            .signature = "x[...] -> y[...]",
                            .strided = StridedInputs::kAny,
                            .boundary = true,
                            .infer = infer,
                            .reference = reference,
                            .errors = copy_errors,
                            .terms = terms,
                            .flops = flops,
                            .variants = listed_variants()};
  return kInfo;
}

}  // namespace tessera
