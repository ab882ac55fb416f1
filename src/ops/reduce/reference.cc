// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/parallel.h"
#include "op/whole_numbers.h"
#include "ops/reduce/reduce.h"

#define TS_OP_FOLDER reduce
#include "ops/list_variants.inc"

namespace tessera {

ReduceProblem ReduceProblem::of(const Problem& p) {
  const Operand& x = p.in[0];
  ReduceProblem r;
  r.fn = p.attrs.word("fn");
  r.shape.assign(x.shape.begin(), x.shape.end() - 1);
  r.strides.assign(x.strides.begin(), x.strides.end() - 1);
  r.length = x.shape.back();
  r.length_stride = x.strides.back();
  r.x = x.type, r.y = p.out[0].type;
  return r;
}

namespace {

constexpr const char* kFunctions[] = {"mean", "sum", "max", "min", "sum_squares"};

Result<std::vector<Type>> infer(const Problem& p) {
  const std::string fn = p.attrs.word("fn");
  if (std::find(std::begin(kFunctions), std::end(kFunctions), fn) == std::end(kFunctions)) {
    return bad_input(cat("reduce: function \"", fn, "\" is unknown; known: mean, sum, max, min, sum_squares"));
  }
  TS_ASSIGN(std::vector<Type> y, infer_by_signature(reduce_op(), p));
  const Shape& x = p.in[0].shape;
  if (x.back() < 1 && fn != "sum" && fn != "sum_squares")
    return bad_input(cat("reduce: ", fn, " over no elements, x", to_string(x)));
  return y;
}

double reduce_row(const std::string& fn, const double* x, int64_t n) {
  if (fn == "max" || fn == "min") {
    const double sign = fn == "max" ? 1 : -1;
    double best = sign * x[0];
    for (int64_t i = 1; i < n; ++i) best = std::isnan(x[i]) || sign * x[i] > best ? sign * x[i] : best;
    return sign * best;
  }
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += fn == "sum_squares" ? x[i] * x[i] : x[i];
  return fn == "mean" ? sum / static_cast<double>(n) : sum;
}

void reference(const Problem& p, std::span<const Dense> in, std::span<Dense> out) {
  const std::string fn = p.attrs.word("fn");
  const int64_t length = in[0].shape.back();
  const bool integer = is_whole(p.out[0].type);
  parallel_for(static_cast<int64_t>(out[0].v.size()), 64, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const double y = reduce_row(fn, in[0].v.data() + r * length, length);
      out[0].v[static_cast<size_t>(r)] = integer ? std::trunc(y) : y;  // a mean of integers divides towards zero
    }
  });
}

int64_t terms(const Problem& p) {
  const std::string fn = p.attrs.word("fn");
  if (fn == "max" || fn == "min" || is_whole(p.in[0].type)) return 0;
  return std::max<int64_t>(1, p.in[0].shape.back());
}

double flops(const Problem& p) { return static_cast<double>(elements(p.in[0].shape)); }

}  // namespace

const OpInfo& reduce_op() {
  static const OpInfo kInfo{.name = "reduce",
                            .signature = "x[...,c] -> y[...]",
                            .strided = StridedInputs::kAny,
                            .infer = infer,
                            .reference = reference,
                            .errors = reduce_errors,
                            .terms = terms,
                            .flops = flops,
                            .variants = listed_variants()};
  return kInfo;
}

}  // namespace tessera
