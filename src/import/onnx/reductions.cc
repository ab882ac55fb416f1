// SPDX-License-Identifier: Apache-2.0
// Reductions over any axes: the reduced ones are brought to the back and folded into one. And what is made of them:
// norms of vectors, logarithms of sums, the place of an extreme.

#include "import/onnx/convert.h"

namespace tessera {

Result<ValueId> reduce_axes(OnnxCall& c, ValueId x, const std::vector<bool>& reduced, bool keep,
                            const std::string& fn) {
  const Shape shape = c.b.shape(x);
  std::vector<int64_t> perm, last;
  Shape folded, result;
  int64_t length = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    (reduced[i] ? last : perm).push_back(static_cast<int64_t>(i));
    if (reduced[i]) {
      length *= shape[i];
      if (keep) result.push_back(1);
    } else {
      folded.push_back(shape[i]);
      result.push_back(shape[i]);
    }
  }
  perm.insert(perm.end(), last.begin(), last.end());
  folded.push_back(length);
  TS_ASSIGN(x, c.b.permute(x, perm));
  TS_ASSIGN(x, c.b.reshape(x, folded, c.name() + ".rows"));
  TS_ASSIGN(x, c.b.emit("reduce", {x}, {{"fn", fn}}, c.name()));
  return c.b.reshape(x, result);
}

namespace {

// The axes that the node reduces; all where it names none; nothing where that means to do nothing.
Result<std::vector<bool>> reduced_axes(OnnxCall& c, ValueId x) {
  TS_ASSIGN(const std::vector<int64_t> axes, c.integers("axes", 1));
  TS_ASSIGN(const int64_t noop, c.integer("noop_with_empty_axes", 0));
  if (axes.empty() && noop != 0) return std::vector<bool>{};
  std::vector<bool> reduced(c.b.rank(x), axes.empty());
  for (int64_t axis : axes) {
    TS_ASSIGN(const size_t a, resolve_axis(axis, c.b.rank(x)));
    reduced[a] = true;
  }
  return reduced;
}

Result<ValueId> reduce(OnnxCall& c, ValueId x, const std::string& fn) {
  TS_ASSIGN(const std::vector<bool> reduced, reduced_axes(c, x));
  TS_ASSIGN(const int64_t keep, c.integer("keepdims", 1));
  if (reduced.empty() && c.b.rank(x) > 0) return x;
  return reduce_axes(c, x, reduced, keep != 0, fn);
}

Result<ValueId> reduce(OnnxCall& c, const std::string& fn) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  return reduce(c, x, fn);
}

Result<Values> mean(OnnxCall& c) { return single(reduce(c, "mean")); }
Result<Values> sum(OnnxCall& c) { return single(reduce(c, "sum")); }
Result<Values> max(OnnxCall& c) { return single(reduce(c, "max")); }
Result<Values> min(OnnxCall& c) { return single(reduce(c, "min")); }
Result<Values> sum_square(OnnxCall& c) { return single(reduce(c, "sum_squares")); }

// Products of halves, until one number is left along each axis.
Result<Values> product_of(OnnxCall& c) {
  TS_ASSIGN(ValueId x, c.operand(0));
  TS_ASSIGN(const std::vector<bool> reduced, reduced_axes(c, x));
  TS_ASSIGN(const int64_t keep, c.integer("keepdims", 1));
  Shape shape;
  for (size_t a = 0; a < reduced.size(); ++a) {
    if (!reduced[a] || keep != 0) shape.push_back(reduced[a] ? 1 : c.b.shape(x)[a]);
    if (!reduced[a]) continue;
    if (c.b.shape(x)[a] == 0) return bad_input(cat("ReduceProd over no elements, ", to_string(c.b.shape(x))));
    const int64_t at = static_cast<int64_t>(a);
    for (int64_t n = c.b.shape(x)[a]; n > 1; n = n / 2 + n % 2) {
      TS_ASSIGN(const ValueId first, c.b.slice(x, at, 0, 1, n / 2));
      TS_ASSIGN(const ValueId second, c.b.slice(x, at, n / 2, 1, n / 2));
      TS_ASSIGN(ValueId both, c.b.map("mul", {first, second}, c.name()));
      if (n % 2 != 0) {
        TS_ASSIGN(const ValueId last, c.b.slice(x, at, n - 1, 1, 1));
        TS_ASSIGN(both, c.b.concat({both, last}, at, c.name()));
      }
      x = both;
    }
  }
  if (reduced.empty() && c.b.rank(x) > 0) return Values{x};
  return single(c.b.reshape(x, shape));
}

Result<Values> l2(OnnxCall& c) {
  TS_ASSIGN(const ValueId squares, reduce(c, "sum_squares"));
  return single(c.b.map("sqrt", {squares}, c.name()));
}

Result<Values> l1(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId sizes, c.b.map("abs", {x}, c.name()));
  return single(reduce(c, sizes, "sum"));
}

Result<Values> log_sum(OnnxCall& c) {
  TS_ASSIGN(const ValueId total, reduce(c, "sum"));
  return single(c.b.map("log", {total}, c.name()));
}

// x - log sum e^x along marked axes, or the logarithm alone; about the maximum, so that nothing overflows.
Result<ValueId> log_sum_exp(OnnxCall& c, ValueId x, const std::vector<bool>& reduced, bool subtracted) {
  TS_ASSIGN(const ValueId top, reduce_axes(c, x, reduced, true, "max"));
  TS_ASSIGN(const ValueId below, c.b.map("sub", {x, top}, c.name()));
  TS_ASSIGN(const ValueId powers, c.b.map("exp", {below}, c.name()));
  TS_ASSIGN(const ValueId total, reduce_axes(c, powers, reduced, true, "sum"));
  TS_ASSIGN(const ValueId logarithm, c.b.map("log", {total}, c.name()));
  return subtracted ? c.b.map("sub", {below, logarithm}, c.name()) : c.b.map("add", {logarithm, top}, c.name());
}

Result<Values> reduce_log_sum_exp(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const std::vector<bool> reduced, reduced_axes(c, x));
  TS_ASSIGN(const int64_t keep, c.integer("keepdims", 1));
  if (reduced.empty() && c.b.rank(x) > 0) return Values{x};
  TS_ASSIGN(const ValueId y, log_sum_exp(c, x, reduced, false));
  Shape shape;
  for (size_t i = 0; i < reduced.size(); ++i) {
    if (!reduced[i] || keep != 0) shape.push_back(c.b.shape(y)[i]);
  }
  return single(c.b.reshape(y, shape));
}

Result<Values> log_softmax(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  const bool flattened = c.node.opset < 13;  // before opset 13: all axes from `axis` on together
  TS_ASSIGN(const int64_t axis_given, c.integer("axis", flattened ? 1 : -1));
  TS_ASSIGN(const size_t axis, resolve_axis(axis_given, c.b.rank(x)));
  std::vector<bool> reduced(c.b.rank(x), false);
  for (size_t i = axis; i < (flattened ? reduced.size() : axis + 1); ++i) reduced[i] = true;
  return single(log_sum_exp(c, x, reduced, true));
}

// x / |x| along an axis; a vector of zeros stays one.
Result<Values> lp_normalise(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const int64_t axis_given, c.integer("axis", -1));
  TS_ASSIGN(const int64_t p, c.integer("p", 2));
  if (p != 1 && p != 2) return bad_input(cat("LpNormalization with p = ", p, "; 1 and 2 are known"));
  TS_ASSIGN(const size_t axis, resolve_axis(axis_given, c.b.rank(x)));
  std::vector<bool> reduced(c.b.rank(x), false);
  reduced[axis] = true;
  ValueId terms = x;
  if (p == 1) {
    TS_ASSIGN(terms, c.b.map("abs", {x}, c.name()));
  }
  TS_ASSIGN(ValueId length, reduce_axes(c, terms, reduced, true, p == 1 ? "sum" : "sum_squares"));
  if (p == 2) {
    TS_ASSIGN(length, c.b.map("sqrt", {length}, c.name()));
  }
  const auto number = [&](double n) { return c.b.scalar(n, c.b.element(x)); };
  TS_ASSIGN(const ValueId zero, c.b.map("equal", {length, number(0)}, c.name()));
  TS_ASSIGN(length, c.b.map("where", {zero, number(1), length}, c.name()));
  return single(c.b.map("div", {x, length}, c.name()));
}

// The first (or last) place along an axis that holds the extreme: the least (or greatest) index of those that do.
Result<Values> place_of(OnnxCall& c, const std::string& extreme) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const int64_t axis_given, c.integer("axis", 0));
  TS_ASSIGN(const int64_t keep, c.integer("keepdims", 1));
  TS_ASSIGN(const int64_t last, c.integer("select_last_index", 0));
  TS_ASSIGN(const size_t axis, resolve_axis(axis_given, c.b.rank(x)));
  const int64_t size = c.b.shape(x)[axis];
  std::vector<bool> reduced(c.b.rank(x), false);
  reduced[axis] = true;
  TS_ASSIGN(const ValueId best, reduce_axes(c, x, reduced, true, extreme));
  TS_ASSIGN(const ValueId holds, c.b.map("equal", {x, best}, c.name()));
  TS_ASSIGN(const ValueId places, count_along(c, size, axis, c.b.rank(x)));
  const double none = last != 0 ? -1.0 : static_cast<double>(size);
  TS_ASSIGN(const ValueId found, c.b.map("where", {holds, places, c.b.scalar(none, Element::i64)}, c.name()));
  return single(reduce_axes(c, found, reduced, keep != 0, last != 0 ? "max" : "min"));
}

Result<Values> arg_max(OnnxCall& c) { return place_of(c, "max"); }
Result<Values> arg_min(OnnxCall& c) { return place_of(c, "min"); }

}  // namespace

std::span<const OnnxOp> onnx_reduction_ops() {
  static const OnnxOp kOps[] = {
      {"ReduceMean", mean},
      {"ReduceSum", sum},
      {"ReduceMax", max},
      {"ReduceMin", min},
      {"ReduceProd", product_of},
      {"ReduceSumSquare", sum_square},
      {"ReduceL2", l2},
      {"ReduceL1", l1},
      {"ReduceLogSum", log_sum},
      {"ReduceLogSumExp", reduce_log_sum_exp},
      {"LogSoftmax", log_softmax},
      {"LpNormalization", lp_normalise},
      {"ArgMax", arg_max},
      {"ArgMin", arg_min},
  };
  return kOps;
}

}  // namespace tessera
