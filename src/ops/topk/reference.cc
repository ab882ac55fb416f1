// SPDX-License-Identifier: Apache-2.0
#include "ops/topk/topk.h"

#include "base/parallel.h"

#define TS_OP_FOLDER topk
#include "ops/list_variants.inc"

namespace tessera {

TopkProblem TopkProblem::of(const Problem& p) {
  const Operand& x = p.in[0];
  TopkProblem t;
  t.cols = x.shape.back();
  t.rows = elements(Shape(x.shape.begin(), x.shape.end() - 1));
  t.k = p.attrs.integer("k");
  t.least = p.attrs.integer("least") != 0;
  t.x = x.type, t.y = p.out[0].type;
  return t;
}

namespace {

Result<std::vector<Type>> infer(const Problem& p) {
  const Operand* x = p.operand(0);
  if (x == nullptr || x->shape.empty()) return bad_input("topk: wants x[...,c]");
  const int64_t k = p.attrs.integer("k", -1);
  if (k < 0 || k > x->shape.back()) return bad_input(cat("topk: k = ", k, " of rows of ", x->shape.back(), " numbers"));
  Type y{.shape = x->shape, .quant = Element::i64};
  y.shape.back() = k;
  return std::vector<Type>{y};
}

void reference(const Problem& p, std::span<const Dense> in, std::span<Dense> out) {
  const TopkProblem t = TopkProblem::of(p);
  parallel_for(t.rows, 16, [&](int64_t begin, int64_t end) {
    std::vector<int64_t> order(static_cast<size_t>(t.cols));
    for (int64_t r = begin; r < end; ++r) {
      t.sort(in[0].v.data() + r * t.cols, order.data());
      for (int64_t j = 0; j < t.k; ++j)
        out[0].v[static_cast<size_t>(r * t.k + j)] = static_cast<double>(order[static_cast<size_t>(j)]);
    }
  });
}

double flops(const Problem& p) { return static_cast<double>(elements(p.in[0].shape)); }

}  // namespace

const OpInfo& topk_op() {
  static const OpInfo kInfo{.name = "topk",
                            .signature = "x[...,c] -> places[...,k]",
                            .infer = infer,
                            .reference = reference,
                            .flops = flops,
                            .variants = listed_variants()};
  return kInfo;
}

}  // namespace tessera
