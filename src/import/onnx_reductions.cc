// SPDX-License-Identifier: Apache-2.0
// Reductions over any axes: the reduced ones are brought to the back and folded into one.
#include <numeric>

#include "import/onnx_convert.h"

namespace tessera {
namespace {

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

Result<ValueId> reduce(OnnxCall& c, const std::string& fn) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const std::vector<int64_t> axes, c.integers("axes", 1));
  TS_ASSIGN(const int64_t keep, c.integer("keepdims", 1));
  TS_ASSIGN(const int64_t noop, c.integer("noop_with_empty_axes", 0));
  if (axes.empty() && noop != 0) return x;
  std::vector<bool> reduced(c.b.rank(x), axes.empty());
  for (int64_t axis : axes) {
    TS_ASSIGN(const size_t a, resolve_axis(axis, c.b.rank(x)));
    reduced[a] = true;
  }
  return reduce_axes(c, x, reduced, keep != 0, fn);
}

Result<Values> mean(OnnxCall& c) { return single(reduce(c, "mean")); }
Result<Values> sum(OnnxCall& c) { return single(reduce(c, "sum")); }
Result<Values> max(OnnxCall& c) { return single(reduce(c, "max")); }
Result<Values> min(OnnxCall& c) { return single(reduce(c, "min")); }
Result<Values> sum_square(OnnxCall& c) { return single(reduce(c, "sum_squares")); }

Result<Values> l2(OnnxCall& c) {
  TS_ASSIGN(const ValueId squares, reduce(c, "sum_squares"));
  return single(c.b.map("sqrt", {squares}, c.name()));
}

Result<Values> global_average_pool(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  if (c.b.rank(x) < 3) return bad_input(cat("GlobalAveragePool of ", to_string(c.b.shape(x))));
  std::vector<bool> reduced(c.b.rank(x), true);
  reduced[0] = reduced[1] = false;
  return single(reduce_axes(c, x, reduced, true, "mean"));
}

}  // namespace

std::span<const OnnxOp> onnx_reduction_ops() {
  static const OnnxOp kOps[] = {
      {"ReduceMean", mean},
      {"ReduceSum", sum},
      {"ReduceMax", max},
      {"ReduceMin", min},
      {"ReduceSumSquare", sum_square},
      {"ReduceL2", l2},
      {"GlobalAveragePool", global_average_pool},
  };
  return kOps;
}

}  // namespace tessera
