// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "ops/softmax/softmax.h"

#define TS_OP_FOLDER softmax
#include "ops/list_variants.inc"

namespace tessera {

const OpInfo& softmax_op();
SoftmaxProblem SoftmaxProblem::of(const Problem& p) {
  const RowView rows = p.in[0].rows();
  SoftmaxProblem s;
  s.cols = rows.cols;
  s.rows = elements(p.in[0].shape) / std::max<int64_t>(1, s.cols);
  s.row_stride = rows.row_stride;
  s.x = p.in[0].type, s.y = p.out[0].type;
  return s;
}

namespace {

Result<std::vector<Type>> infer(const Problem& p) {
  TS_ASSIGN(std::vector<Type> y, infer_by_signature(softmax_op(), p));
  if (y[0].shape.back() < 1) return bad_input(cat("softmax: no elements in a row of x", to_string(y[0].shape)));
  return y;
}

void reference(const Problem& p, std::span<const Dense> in, std::span<Dense> out) {
  const SoftmaxProblem s = SoftmaxProblem::of(p);
  parallel_for(s.rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const double* x = in[0].v.data() + r * s.cols;
      double* y = out[0].v.data() + r * s.cols;
      const double top = *std::max_element(x, x + s.cols);
      if (top == -INFINITY) {  // no key at all
        std::fill_n(y, s.cols, 0.0);
        continue;
      }
      double sum = 0;
      for (int64_t c = 0; c < s.cols; ++c) sum += y[c] = std::exp(x[c] - top);
      for (int64_t c = 0; c < s.cols; ++c) y[c] /= sum;
    }
  });
}

int64_t terms(const Problem& p) { return std::max<int64_t>(1, p.in[0].shape.back()); }

double flops(const Problem& p) { return 5.0 * static_cast<double>(elements(p.out[0].shape)); }

}  // namespace

const OpInfo& softmax_op() {
  static const OpInfo kInfo{.name = "softmax",
                            .signature = "x[...,c] -> y[...,c]",
                            .strided = StridedInputs::kRows,
                            .infer = infer,
                            .reference = reference,
                            .errors = softmax_errors,
                            .terms = terms,
                            .flops = flops,
                            .variants = listed_variants()};
  return kInfo;
}

}  // namespace tessera
