// SPDX-License-Identifier: Apache-2.0
// Operators that make tables: constants, ranges, masks. Almost always their operands are known at build, and the result
// is a constant; where they are not, the table is written out in maps.
#include <algorithm>
#include <cmath>

#include "import/onnx/convert.h"

namespace tessera {

Result<ValueId> count_along(OnnxCall& c, int64_t size, size_t axis, size_t rank) {
  if (size > kMaxListed) return bad_input(cat("an axis of ", size, " is too long to be numbered"));
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < size; ++i) numbers.push_back(i);
  Shape shape(rank, 1);
  shape[axis] = size;
  return c.b.reshape(c.b.integer_list(numbers), shape);
}

namespace {

Result<Values> constant(OnnxCall& c) {
  const auto& attrs = c.node.attrs;
  if (attrs.size() != 1) return bad_input("a Constant has exactly one value");
  const auto& [key, a] = *attrs.begin();
  using Kind = OnnxAttr::Kind;
  if (key == "value" && a.kind == Kind::kTensor) return Values{add_tensor(c.b, *a.tensor)};
  if (key == "value_float" && a.kind == Kind::kFloat) return Values{c.b.scalar(a.f, Element::f32)};
  if (key == "value_ints" && a.kind == Kind::kInts) return Values{c.b.integer_list(a.ints)};
  if (key == "value_int" && a.kind == Kind::kInt) return single(c.b.reshape(c.b.integer_list({a.i}), {}));
  if (key == "value_floats" && a.kind == Kind::kFloats) {
    const std::vector<float> numbers(a.floats.begin(), a.floats.end());
    return Values{c.b.graph().add_constant(c.name(), {static_cast<int64_t>(numbers.size())}, numbers)};
  }
  return bad_input(
      cat("a Constant given by '", shown(key), "' is not supported; value, value_float(s) and value_int(s) are"));
}

Result<Values> constant_of_shape(OnnxCall& c) {
  TS_ASSIGN(const ValueId wanted, c.operand(0));
  TS_ASSIGN(const Shape shape, c.b.integers(wanted, "the shape"));
  ValueId value = kNoValue;
  if (const auto it = c.node.attrs.find("value"); it == c.node.attrs.end()) {
    value = c.b.scalar(0, Element::f32);
  } else if (it->second.kind == OnnxAttr::Kind::kTensor && elements(it->second.tensor->type.shape) == 1) {
    TS_ASSIGN(value, c.b.reshape(add_tensor(c.b, *it->second.tensor), {}));
  } else {
    return bad_input("the value must be a tensor of one number");
  }
  return single(c.b.expand(value, shape));
}

Result<Values> range(OnnxCall& c) {
  double limits[3];
  Element element = Element::i64;
  for (size_t i = 0; i < 3; ++i) {
    TS_ASSIGN(const ValueId v, c.operand(i));
    const std::vector<double> numbers = c.b.graph().numbers(v);
    if (!c.b.graph().at(v).constant || numbers.size() != 1)
      return bad_input(cat("operand ", i, " of Range must be one number known at build"));
    limits[i] = numbers[0];
    element = c.b.element(v);
  }
  const double count = std::ceil((limits[1] - limits[0]) / limits[2]);
  if (!(count <= static_cast<double>(kMaxListed))) return bad_input("Range is endless or too long");
  std::vector<double> numbers;
  for (int64_t i = 0; i < static_cast<int64_t>(std::max(0.0, count)); ++i)
    numbers.push_back(limits[0] + static_cast<double>(i) * limits[2]);
  const int64_t n = static_cast<int64_t>(numbers.size());
  Buffer buffer(static_cast<size_t>(packed_bytes(element, n)));
  info(element).encode_f64(numbers.data(), n, buffer.data(), 0);
  return Values{c.b.graph().add_constant(c.name(), Type{{n}, element}, Bytes::own(std::move(buffer)))};
}

// Column - row of the last two axes, [m, n].
Result<ValueId> diagonals(OnnxCall& c, int64_t m, int64_t n) {
  TS_ASSIGN(const ValueId row, count_along(c, m, 0, 2));
  TS_ASSIGN(const ValueId column, count_along(c, n, 1, 2));
  return c.b.map("sub", {column, row}, c.name());
}

Result<Values> trilu(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const int64_t upper, c.integer("upper", 1));
  std::vector<int64_t> k = {0};
  if (c.has(1)) {
    TS_ASSIGN(k, c.b.integers(c.in[1], "the diagonal"));
  }
  const Shape& shape = c.b.shape(x);
  if (shape.size() < 2 || k.size() != 1) return bad_input(cat("Trilu of ", to_string(shape)));
  TS_ASSIGN(const ValueId diagonal, diagonals(c, shape[shape.size() - 2], shape.back()));
  TS_ASSIGN(const ValueId kept, c.b.map(upper != 0 ? "greater_equal" : "less_equal",
                                        {diagonal, c.b.scalar(static_cast<double>(k[0]), Element::i64)}, c.name()));
  return single(c.b.map("where", {kept, x, c.b.scalar(0, c.b.element(x))}, c.name()));
}

Result<Values> eye_like(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const int64_t k, c.integer("k", 0));
  TS_ASSIGN(const int64_t type, c.integer("dtype", -1));
  const auto element = type < 0 ? c.b.element(x) : element_of_onnx(type);
  if (!element || c.b.rank(x) != 2) return bad_input(cat("EyeLike of ", to_string(c.b.shape(x))));
  TS_ASSIGN(const ValueId diagonal, diagonals(c, c.b.shape(x)[0], c.b.shape(x)[1]));
  TS_ASSIGN(const ValueId ones,
            c.b.map("equal", {diagonal, c.b.scalar(static_cast<double>(k), Element::i64)}, c.name()));
  return single(c.b.cast(ones, *element, c.name()));
}

Result<Values> one_hot(OnnxCall& c) {
  TS_ASSIGN(const ValueId given, c.operand(0));
  TS_ASSIGN(const ValueId depth_given, c.operand(1));
  TS_ASSIGN(const ValueId values, c.operand(2));
  TS_ASSIGN(const int64_t axis_given, c.integer("axis", -1));
  TS_ASSIGN(const std::vector<int64_t> depth, c.b.integers(depth_given, "the depth"));
  if (depth.size() != 1 || depth[0] < 1 || c.b.shape(values) != Shape{2})
    return bad_input("OneHot wants one depth and the values [off, on]");
  TS_ASSIGN(const size_t axis, resolve_axis(axis_given, c.b.rank(given) + 1));
  TS_ASSIGN(ValueId ids, c.b.cast(given, Element::i64, c.name()));
  // An index counts from the back where it is negative; outside of the depth it marks nothing.
  TS_ASSIGN(const ValueId negative, c.b.map("less", {ids, c.b.scalar(0, Element::i64)}, c.name()));
  TS_ASSIGN(const ValueId wrapped,
            c.b.map("add", {ids, c.b.scalar(static_cast<double>(depth[0]), Element::i64)}, c.name()));
  TS_ASSIGN(ids, c.b.map("where", {negative, wrapped, ids}, c.name()));
  TS_ASSIGN(ids, c.b.unsqueeze(ids, {static_cast<int64_t>(axis)}));
  TS_ASSIGN(const ValueId places, count_along(c, depth[0], axis, c.b.rank(ids)));
  TS_ASSIGN(const ValueId hot, c.b.map("equal", {ids, places}, c.name()));
  Values off_on;
  for (int64_t i = 0; i < 2; ++i) {
    TS_ASSIGN(const ValueId one, c.b.slice(values, 0, i, 1, 1));
    TS_ASSIGN(const ValueId number, c.b.reshape(one, {}));
    off_on.push_back(number);
  }
  return single(c.b.map("where", {hot, off_on[1], off_on[0]}, c.name()));
}

// y[i] = sum of x[j] over j <= i: the rows of a triangle, summed. n^2 numbers, which suits the masks and positions that
// exporters count with it.
Result<Values> cumulative_sum(OnnxCall& c) {
  TS_ASSIGN(ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId axis_given, c.operand(1));
  TS_ASSIGN(const std::vector<int64_t> axes, c.b.integers(axis_given, "the axis"));
  TS_ASSIGN(const int64_t exclusive, c.integer("exclusive", 0));
  TS_ASSIGN(const int64_t reverse, c.integer("reverse", 0));
  if (axes.size() != 1) return bad_input("CumSum wants one axis");
  TS_ASSIGN(const size_t axis, resolve_axis(axes[0], c.b.rank(x)));
  std::vector<int64_t> swap;
  for (size_t i = 0; i < c.b.rank(x); ++i) swap.push_back(static_cast<int64_t>(i));
  std::swap(swap[axis], swap.back());
  TS_ASSIGN(x, c.b.permute(x, swap));
  const int64_t n = c.b.shape(x).back();
  TS_ASSIGN(const ValueId ahead, diagonals(c, n, n));  // j - i
  const char* seen =
      reverse != 0 ? (exclusive != 0 ? "greater" : "greater_equal") : (exclusive != 0 ? "less" : "less_equal");
  TS_ASSIGN(const ValueId counts, c.b.map(seen, {ahead, c.b.scalar(0, Element::i64)}, c.name()));
  TS_ASSIGN(const ValueId rows, c.b.unsqueeze(x, {-2}));
  TS_ASSIGN(const ValueId parts, c.b.map("where", {counts, rows, c.b.scalar(0, c.b.element(x))}, c.name()));
  TS_ASSIGN(const ValueId sums, c.b.emit("reduce", {parts}, {{"fn", std::string("sum")}}, c.name()));
  return single(c.b.permute(sums, swap));
}

Result<Values> non_zero(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  const Shape shape = c.b.shape(x);
  const std::vector<double> numbers = c.b.graph().numbers(x);
  if (!c.b.graph().at(x).constant || static_cast<int64_t>(numbers.size()) > kMaxListed)
    return bad_input(
        "the operand of NonZero must be a table known at build: its result's shape depends on it; end the export "
        "before it");
  std::vector<std::vector<int64_t>> places(shape.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] == 0) continue;
    int64_t rest = static_cast<int64_t>(i);
    for (size_t a = shape.size(); a-- > 0; rest /= shape[a]) places[a].push_back(rest % shape[a]);
  }
  std::vector<int64_t> flat;
  for (const auto& axis : places) flat.insert(flat.end(), axis.begin(), axis.end());
  const int64_t count = shape.empty() ? (numbers[0] != 0) : static_cast<int64_t>(places[0].size());
  return single(c.b.reshape(c.b.integer_list(flat, c.name()), {static_cast<int64_t>(shape.size()), count}));
}

}  // namespace

std::span<const OnnxOp> onnx_table_ops() {
  static const OnnxOp kOps[] = {
      {"Constant", constant}, {"ConstantOfShape", constant_of_shape},
      {"Range", range},       {"Trilu", trilu},
      {"EyeLike", eye_like},  {"OneHot", one_hot},
      {"NonZero", non_zero},  {"CumSum", cumulative_sum},
  };
  return kOps;
}

}  // namespace tessera
