// SPDX-License-Identifier: Apache-2.0
#include "op/extra_results.h"
#include "op/f64_product.h"
#include "ops/matmul/matmul.h"

#define TS_OP_FOLDER matmul
#include "ops/list_variants.inc"

namespace tessera {

MatmulProblem MatmulProblem::of(const Problem& p) {
  const Operand &x = p.in[0], &w = p.in[1];
  MatmulProblem q;
  q.k = x.shape.back();
  q.n = w.shape[w.shape.size() - 2];
  q.cols = p.then.gated() ? q.n / 2 : q.n;
  const RowView rows = x.rows();
  q.x_row_stride = rows.row_stride;
  q.w_row_stride = w.layout == Layout::kRows ? w.rows().row_stride : q.k;
  if (w.shape.size() == 2) {
    q.m = elements(x.shape) / std::max<int64_t>(1, q.k);
  } else {
    q.m = x.shape[x.shape.size() - 2];
    for (size_t i = 0; i + 2 < w.shape.size(); ++i) q.batch *= w.shape[i];
  }
  q.x = x.type, q.w = w.type, q.y = p.out[0].type;
  q.constant_w = w.constant;
  q.then = &p.then;
  return q;
}

namespace {

// Beside a result that has them in another type; of codes that a gain multiplies also plain numbers of y's type.
bool is_extra_codes(const QuantType& type, const QuantType& y, bool gained) {
  return type == kE4m3PerTensor || type == QuantType(Element::i8, {Granularity::kTensor, Element::f32}) ||
         (gained && !type.scaled() && type == y);
}

Status check_gain(const Problem& p, const Type& y) {
  if (!p.attrs.has(kCodesGain)) return {};
  const int64_t at = p.attrs.integer(kCodesGain);
  if (ExtraResults::of(p.attrs).codes == 0) return bad_input("matmul: a gain multiplies codes, which it does not make");
  const Operand* gain = at < 2 ? nullptr : p.operand(static_cast<size_t>(at));
  if (gain == nullptr) return bad_input(cat("matmul: the gain of its codes is operand ", at, ", which is not there"));
  if (gain->type.scaled() || info(gain->type.element).kind != ElementKind::kFloat || !gain->dense() ||
      elements(gain->shape) != y.shape.back())
    return bad_input(cat("matmul: the gain of its codes is ", to_string(gain->type), to_string(gain->shape),
                         "; wanted a dense vector of ", y.shape.back(), " numbers"));
  return {};
}

Result<std::vector<Type>> infer(const Problem& p) {
  const Operand *x = p.operand(0), *w = p.operand(1);
  if (x == nullptr || w == nullptr) return bad_input("matmul: wants two operands, x[...,m,k] and w[n,k] or w[...,n,k]");
  const auto disagree = [&](const char* what) {
    return bad_input(cat("matmul: x", to_string(x->shape), " and w", to_string(w->shape), ": ", what));
  };
  if (x->shape.empty() || w->shape.size() < 2) return disagree("x needs an axis at least, w two");
  if (x->shape.back() == 0 || x->shape.back() != w->shape.back())
    return disagree("the last axes (k) must be the same and not 0");
  if (w->shape.size() > 2 &&
      (w->shape.size() != x->shape.size() || !std::equal(w->shape.begin(), w->shape.end() - 2, x->shape.begin()))) {
    return disagree("where w has more than two axes, its leading axes must be those of x");
  }
  Type y{.shape = x->shape, .quant = result_element(*x)};
  y.shape.back() = w->shape[w->shape.size() - 2];
  if (p.then.gated()) {
    if (y.shape.back() % 2 != 0) return disagree("a gate takes an even number of w's rows, two halves");
    y.shape.back() /= 2;
  }
  std::vector<Type> results{y};
  const ExtraResults extra = ExtraResults::of(p.attrs);
  TS_TRY(check_gain(p, y));
  if (extra.codes > 0) results.push_back({y.shape, kE4m3PerTensor});
  if (extra.moments > 0) {
    Type moments{.shape = y.shape, .quant = Element::f32};
    moments.shape.back() = moment_groups(y.shape.back());
    moments.shape.push_back(2);
    results.push_back(moments);
  }
  TS_TRY(check_kept(p, y.shape).at("matmul"));
  for (const KeptColumns& kept : kept_columns(p.attrs)) {
    const Operand& before = p.in[static_cast<size_t>(kept.before)];
    results.push_back({before.shape, before.type});
  }
  for (size_t i = 1; i < p.out.size() && i < results.size(); ++i) {
    const bool fits = static_cast<int>(i) == extra.codes ? is_extra_codes(p.out[i].type, p.out[0].type, extra.gain > 0)
                                                         : p.out[i].type == results[i].quant;
    if (!fits)
      return bad_input(cat("matmul: result ", i, " is ", to_string(p.out[i].type),
                           "; codes beside y are e4m3 or int8 with one static scale", extra.gain > 0 ? ", or as y" : "",
                           "; moments f32; kept results of the type that they had before"));
  }
  return results;
}

// The one of the kept results that `result` is; null: it is none.
const KeptColumns* kept_at(const ExtraResults& extra, const std::vector<KeptColumns>& all, size_t result) {
  const size_t first = static_cast<size_t>(extra.kept);
  return extra.kept > 0 && result >= first && result - first < all.size() ? &all[result - first] : nullptr;
}

// `first`: y, or what a gain makes of it (op/extra_results.h).
Dense extra_result(const Problem& p, size_t result, std::span<const Dense> in, const Dense& first) {
  const ExtraResults extra = ExtraResults::of(p.attrs);
  if (static_cast<int>(result) == extra.codes) return first;
  const std::vector<KeptColumns> all = kept_columns(p.attrs);
  if (const KeptColumns* kept = kept_at(extra, all, result)) return kept_result(p, *kept, in, first);
  const int64_t cols = first.shape.back(), rows = elements(first.shape) / std::max<int64_t>(1, cols),
                words = 2 * moment_groups(cols);
  Dense moments{p.out[result].shape, std::vector<double>(static_cast<size_t>(rows * words))};
  for (int64_t r = 0; r < rows; ++r) take_moments(first.v.data() + r * cols, cols, moments.v.data() + r * words);
  return moments;
}

std::vector<double> extra_result_errors(const Problem& p, size_t result, std::span<const Dense> in, const Dense& first,
                                        const std::vector<double>& errors) {
  const ExtraResults extra = ExtraResults::of(p.attrs);
  if (static_cast<int>(result) == extra.codes) return errors;
  const std::vector<KeptColumns> all = kept_columns(p.attrs);
  if (const KeptColumns* kept = kept_at(extra, all, result)) return kept_result_errors(p, *kept, in, errors);
  const int64_t cols = first.shape.back(), rows = elements(first.shape) / std::max<int64_t>(1, cols),
                words = 2 * moment_groups(cols);
  std::vector<double> e(static_cast<size_t>(rows * words));
  for (int64_t r = 0; r < rows; ++r)
    moment_errors(first.v.data() + r * cols, errors.data() + r * cols, cols, e.data() + r * words);
  return e;
}

void reference(const Problem& p, std::span<const Dense> in, std::span<Dense> out) {
  const MatmulProblem q = MatmulProblem::of(p);
  for (int64_t b = 0; b < q.batch; ++b) {
    f64_product(in[0].v.data() + b * q.m * q.k, in[1].v.data() + b * q.n * q.k, out[0].v.data() + b * q.m * q.n, q.m,
                q.n, q.k);
  }
}

int in_place(const Problem& p, size_t result) {
  const std::vector<KeptColumns> all = kept_columns(p.attrs);
  const KeptColumns* kept = kept_at(ExtraResults::of(p.attrs), all, result);
  return kept == nullptr ? -1 : kept->before;
}

int64_t terms(const Problem& p) { return std::max<int64_t>(1, p.in[0].shape.back()); }

double flops(const Problem& p) {
  const MatmulProblem q = MatmulProblem::of(p);
  return 2.0 * static_cast<double>(q.batch) * static_cast<double>(q.m) * static_cast<double>(q.n) *
         static_cast<double>(q.k);
}

}  // namespace

const OpInfo& matmul_op() {
  static const OpInfo kInfo{.name = "matmul",
                            .signature = "x[...,m,k], w[n,k] -> y[...,m,n]",
                            .strided = StridedInputs::kRows,
                            .takes_program = true,
                            .takes_gate = true,
                            .in_place = in_place,
                            .promises = 1,
                            .infer = infer,
                            .reference = reference,
                            .errors = matmul_errors,
                            .extra_result = extra_result,
                            .extra_result_errors = extra_result_errors,
                            .terms = terms,
                            .flops = flops,
                            .variants = listed_variants()};
  return kInfo;
}

}  // namespace tessera
