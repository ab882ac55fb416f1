// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/buffer.h"
#include "base/parallel.h"
#include "ops/norm/norm.h"
#include "tiles/strided.h"

#define TS_OP_FOLDER norm
#include "ops/list_variants.inc"

namespace tessera {

const OpInfo& norm_op();

NormProblem NormProblem::of(const Problem& p) {
  const Operand& x = p.in[0];
  NormProblem n;
  n.cols = x.shape.back();
  n.rows = elements(x.shape) / std::max<int64_t>(1, n.cols);
  n.lead.assign(x.shape.begin(), x.shape.end() - 1);
  std::vector<Shape> strides = {Shape(x.strides.begin(), x.strides.end() - 1)};
  merge_axes(n.lead, strides);
  n.lead_strides = strides[0];
  n.kind = p.attrs.word("kind", "layer") == "rms" ? NormKind::kRms : NormKind::kLayer;
  n.eps = static_cast<float>(p.attrs.number("eps"));
  n.has_gain = p.operand(1) != nullptr;
  n.has_shift = p.operand(2) != nullptr;
  n.pooled = p.attrs.integer("pooled") != 0 && x.shape.size() >= 2;
  n.group = n.pooled ? std::max<int64_t>(1, x.shape[x.shape.size() - 2]) : 1;
  n.x = p.in[0].type, n.y = p.out[0].type;
  n.then = &p.then;
  return n;
}

namespace {

Result<std::vector<Type>> infer(const Problem& p) {
  const std::string kind = p.attrs.word("kind", "layer");
  if (kind != "layer" && kind != "rms")
    return bad_input(cat("norm: kind \"", kind, "\" is unknown; known: layer, rms"));
  const double eps = p.attrs.number("eps");
  if (!(eps >= 0) || !std::isfinite(eps))
    return bad_input(cat("norm: eps ", eps, " must be a number and not negative"));
  TS_ASSIGN(std::vector<Type> y, infer_by_signature(norm_op(), p));
  Shape& shape = y[0].shape;
  if (shape.back() < 1) return bad_input(cat("norm: no elements in a row of x", to_string(shape)));
  if (!p.attrs.has("pooled")) return y;
  const int64_t pooled = p.attrs.integer("pooled", -1);
  if (pooled != 0 && pooled != 1) return bad_input("norm: pooled must be the integer 0 or 1");
  if (pooled == 0) return y;
  if (shape.size() < 2)
    return bad_input(
        cat("norm: pooled takes the mean over the axis before the last, and x", to_string(shape), " has only one"));
  if (shape[shape.size() - 2] < 1) return bad_input(cat("norm: pooled over no rows, x", to_string(shape)));
  shape.erase(shape.end() - 2);
  return y;
}

// One row without gain and shift, added to `sums`.
void add_normalised(const NormProblem& n, const double* x, double* sums) {
  const double cols = static_cast<double>(n.cols);
  double mean = 0, var = 0;
  if (n.kind == NormKind::kLayer) {
    for (int64_t c = 0; c < n.cols; ++c) mean += x[c];
    mean /= cols;
  }
  for (int64_t c = 0; c < n.cols; ++c) var += (x[c] - mean) * (x[c] - mean);
  const double inverse = 1.0 / std::sqrt(var / cols + static_cast<double>(n.eps));
  for (int64_t c = 0; c < n.cols; ++c) sums[c] += (x[c] - mean) * inverse;
}

void reference(const Problem& p, std::span<const Dense> in, std::span<Dense> out) {
  const NormProblem n = NormProblem::of(p);
  const double group = static_cast<double>(n.group);
  parallel_for(n.rows / n.group, divide_up(16, n.group), [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) {
      double* y = out[0].v.data() + g * n.cols;
      std::fill_n(y, n.cols, 0.0);
      for (int64_t r = g * n.group; r < (g + 1) * n.group; ++r) add_normalised(n, in[0].v.data() + r * n.cols, y);
      for (int64_t c = 0; c < n.cols; ++c) {
        y[c] /= group;
        if (n.has_gain) y[c] *= in[1].v[static_cast<size_t>(c)];
        if (n.has_shift) y[c] += in[2].v[static_cast<size_t>(c)];
      }
    }
  });
}

int64_t terms(const Problem& p) {
  const NormProblem n = NormProblem::of(p);
  return std::max<int64_t>(1, n.cols + (n.pooled ? n.group : 0));
}

double flops(const Problem& p) { return 8.0 * static_cast<double>(elements(p.in[0].shape)); }

}  // namespace

const OpInfo& norm_op() {
  static const OpInfo kInfo{
      .name = "norm",
      .signature = "x[...,c], gain[c]?, shift[c]? -> y[...,c]",  // pooled: y without its second last axis
      .strided = StridedInputs::kLastAxis,
      .takes_program = true,
      .infer = infer,
      .reference = reference,
      .errors = norm_errors,
      .terms = terms,
      .flops = flops,
      .variants = listed_variants()};
  return kInfo;
}

}  // namespace tessera
