// SPDX-License-Identifier: Apache-2.0
// Operators that move or make numbers without computing on them: views, joins, constants. Shapes are known at build, so
// shape arithmetic folds away.
#include <algorithm>
#include <cmath>

#include "import/onnx_convert.h"

namespace tessera {
namespace {

constexpr int64_t kMaxListed = 1000000;  // entries of what is spelt out number by number

Result<Values> reshape(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId wanted, c.operand(1));
  TS_ASSIGN(Shape shape, c.b.integers(wanted, "the shape"));
  TS_ASSIGN(const int64_t allow_zero, c.integer("allowzero", 0));
  const Shape& from = c.b.shape(x);
  int64_t known = 1;
  size_t open = shape.size();
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0 && allow_zero == 0) {
      if (i >= from.size())
        return bad_input(cat("shape ", to_string(shape), " keeps axis ", i, " of ", to_string(from)));
      shape[i] = from[i];
    }
    if (shape[i] == -1) {
      if (open != shape.size()) return bad_input(cat("shape ", to_string(shape), " leaves two sizes open"));
      open = i;
      continue;
    }
    const auto product = checked_elements({known, shape[i]}, kMaxElements);
    if (!product) return bad_input(cat("shape ", to_string(shape), " is negative or too large"));
    known = *product;
  }
  if (open != shape.size()) {
    if (known == 0 || elements(from) % known != 0)
      return bad_input(cat("cannot reshape ", to_string(from), " to ", to_string(shape)));
    shape[open] = elements(from) / known;
  }
  return single(c.b.reshape(x, shape, c.name()));
}

Result<Values> flatten(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(int64_t axis, c.integer("axis", 1));
  const Shape& from = c.b.shape(x);
  const int64_t rank = static_cast<int64_t>(from.size());
  if (axis < -rank || axis > rank) return bad_input(cat("axis ", axis, " does not exist in ", to_string(from)));
  if (axis < 0) axis += rank;
  const int64_t rows = elements(Shape(from.begin(), from.begin() + axis)),
                cols = elements(Shape(from.begin() + axis, from.end()));
  return single(c.b.reshape(x, {rows, cols}, c.name()));
}

Result<Values> transpose(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(std::vector<int64_t> perm, c.integers("perm"));
  if (perm.empty()) {
    for (size_t i = c.b.rank(x); i-- > 0;) perm.push_back(static_cast<int64_t>(i));
  }
  return single(c.b.permute(x, perm));
}

Result<Values> concat(OnnxCall& c) {
  if (c.in.empty()) return bad_input("Concat without operands");
  for (size_t i = 0; i < c.in.size(); ++i) TS_TRY(c.operand(i).status());
  TS_ASSIGN(const int64_t axis, c.integer("axis", 0));
  return single(c.b.concat(c.in, axis, c.name()));
}

Result<Values> split(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const int64_t axis_given, c.integer("axis", 0));
  TS_ASSIGN(const size_t axis, resolve_axis(axis_given, c.b.rank(x)));
  TS_ASSIGN(std::vector<int64_t> sizes, c.integers("split", 1));
  const int64_t total = c.b.shape(x)[axis], parts = static_cast<int64_t>(c.node.outputs.size());
  if (sizes.empty() && parts > 0) {
    const int64_t each = (total + parts - 1) / parts;  // the last part may be smaller
    for (int64_t i = 0, left = total; i < parts; ++i, left -= std::min(left, each))
      sizes.push_back(std::min(left, each));
  }
  if (static_cast<int64_t>(sizes.size()) != parts)
    return bad_input(cat(sizes.size(), " sizes for ", parts, " results"));
  Values out;
  int64_t start = 0;
  for (int64_t size : sizes) {
    if (size < 0 || size > total - start)
      return bad_input(cat("sizes ", to_string(sizes), " do not add up to ", total));
    TS_ASSIGN(const ValueId part, c.b.slice(x, static_cast<int64_t>(axis), start, 1, size));
    out.push_back(part);
    start += size;
  }
  if (start != total) return bad_input(cat("sizes ", to_string(sizes), " do not add up to ", total));
  return out;
}

Result<Values> slice(OnnxCall& c) {
  TS_ASSIGN(ValueId x, c.operand(0));
  TS_ASSIGN(const std::vector<int64_t> starts, c.integers("starts", 1));
  TS_ASSIGN(const std::vector<int64_t> ends, c.integers("ends", 2));
  TS_ASSIGN(std::vector<int64_t> axes, c.integers("axes", 3));
  TS_ASSIGN(std::vector<int64_t> steps, c.integers("steps", 4));
  for (size_t i = axes.size(); i < starts.size() && !c.has(3) && !c.node.attrs.contains("axes"); ++i)
    axes.push_back(static_cast<int64_t>(i));
  if (steps.empty()) steps.assign(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    return bad_input("starts, ends, axes and steps differ in length");
  for (size_t i = 0; i < starts.size(); ++i) {
    TS_ASSIGN(const size_t axis, resolve_axis(axes[i], c.b.rank(x)));
    const int64_t size = c.b.shape(x)[axis], step = steps[i];
    if (step == 0 || step == INT64_MIN) return bad_input(cat("a slice with step ", step));
    const auto from_front = [&](int64_t at) {
      return at < 0 ? at + size : at;
    };  // at >= INT64_MIN, size >= 0: no overflow
    const int64_t start =
        std::clamp(from_front(starts[i]), int64_t{0}, step > 0 ? size : std::max<int64_t>(0, size - 1));
    const int64_t end = step > 0 ? std::clamp(from_front(ends[i]), int64_t{0}, size)
                                 : std::clamp(from_front(ends[i]), int64_t{-1}, size - 1);
    const int64_t distance = step > 0 ? end - start : start - end, stride = step > 0 ? step : -step;
    const int64_t count = distance <= 0 || size == 0 ? 0 : (distance - 1) / stride + 1;
    TS_ASSIGN(x, c.b.slice(x, static_cast<int64_t>(axis), start, step, count));
  }
  return Values{x};
}

// ids of a constant, counted from the front and inside the table.
Result<std::vector<int64_t>> checked_ids(OnnxCall& c, ValueId ids, int64_t size) {
  TS_ASSIGN(std::vector<int64_t> out, c.b.integers(ids, "the indices"));
  for (int64_t& id : out) {
    if (id < -size || id >= size) return bad_input(cat("index ", id, " is outside an axis of ", size));
    if (id < 0) id += size;
  }
  return out;
}

Result<Values> gather(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId ids, c.operand(1));
  TS_ASSIGN(const int64_t axis_given, c.integer("axis", 0));
  TS_ASSIGN(const size_t axis, resolve_axis(axis_given, c.b.rank(x)));
  const int64_t at = static_cast<int64_t>(axis);
  if (c.b.is_constant(ids) && elements(c.b.shape(ids)) <= kMaxListed &&
      info(c.b.element(ids)).kind == ElementKind::kInteger) {
    TS_ASSIGN(const std::vector<int64_t> list, checked_ids(c, ids, c.b.shape(x)[axis]));
    bool even = c.b.rank(ids) <= 1 && !list.empty();
    const int64_t step = list.size() > 1 ? list[1] - list[0] : 1;
    for (size_t i = 1; even && i < list.size(); ++i) even = step > 0 && list[i] - list[i - 1] == step;
    if (even) {  // an even walk along the axis is a slice
      TS_ASSIGN(const ValueId part, c.b.slice(x, at, list[0], step, static_cast<int64_t>(list.size())));
      return single(c.b.rank(ids) == 0 ? c.b.squeeze(part, {at}) : part);
    }
  }
  if (axis == 0) return single(c.b.emit("gather", {x, ids}, {}, c.name()));
  // Rows are what can be gathered: bring the axis to the front, and its result, which has the axes of ids, back to its
  // place.
  std::vector<int64_t> to_front = {at}, back;
  for (size_t i = 0; i < c.b.rank(x); ++i) {
    if (i != axis) to_front.push_back(static_cast<int64_t>(i));
  }
  const int64_t axes = static_cast<int64_t>(c.b.rank(ids));
  for (int64_t i = 0; i < at; ++i) back.push_back(axes + i);
  for (int64_t i = 0; i < axes; ++i) back.push_back(i);
  for (int64_t i = at + 1; i < static_cast<int64_t>(c.b.rank(x)); ++i) back.push_back(axes + i - 1);
  TS_ASSIGN(const ValueId table, c.b.permute(x, to_front));
  TS_ASSIGN(const ValueId rows, c.b.emit("gather", {table, ids}, {}, c.name()));
  return single(c.b.permute(rows, back));
}

Result<Values> unsqueeze(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const std::vector<int64_t> axes, c.integers("axes", 1));
  return single(c.b.unsqueeze(x, axes));
}

Result<Values> squeeze(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(std::vector<int64_t> axes, c.integers("axes", 1));
  if (axes.empty() && !c.has(1)) {
    for (size_t i = 0; i < c.b.rank(x); ++i) {
      if (c.b.shape(x)[i] == 1) axes.push_back(static_cast<int64_t>(i));
    }
  }
  return single(c.b.squeeze(x, axes));
}

Result<Values> expand(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId wanted, c.operand(1));
  TS_ASSIGN(const Shape shape, c.b.integers(wanted, "the shape"));
  if (!checked_elements(shape, kMaxElements))
    return bad_input(cat("shape ", to_string(shape), " is negative or too large"));
  TS_ASSIGN(const Shape both, broadcast_shape(c.b.shape(x), shape));
  return single(c.b.expand(x, both));
}

Result<Values> tile(OnnxCall& c) {
  TS_ASSIGN(ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId wanted, c.operand(1));
  TS_ASSIGN(const std::vector<int64_t> repeats, c.b.integers(wanted, "repeats"));
  if (repeats.size() != c.b.rank(x)) return bad_input(cat(repeats.size(), " repeats for ", to_string(c.b.shape(x))));
  for (size_t i = 0; i < repeats.size(); ++i) {
    if (repeats[i] == 1) continue;
    if (repeats[i] < 1 || repeats[i] > 4096) return bad_input(cat("axis ", i, " repeated ", repeats[i], " times"));
    if (c.b.shape(x)[i] == 1) {
      Shape shape = c.b.shape(x);
      shape[i] = repeats[i];
      TS_ASSIGN(x, c.b.expand(x, shape));
    } else {
      TS_ASSIGN(x, c.b.concat(Values(static_cast<size_t>(repeats[i]), x), static_cast<int64_t>(i), c.name()));
    }
  }
  return Values{x};
}

Result<Values> shape_of(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  const Shape& shape = c.b.shape(x);
  const int64_t rank = static_cast<int64_t>(shape.size());
  TS_ASSIGN(const int64_t start_given, c.integer("start", 0));
  TS_ASSIGN(const int64_t end_given, c.integer("end", rank));
  const int64_t start = std::clamp(start_given < 0 ? start_given + rank : start_given, int64_t{0}, rank);
  const int64_t end = std::clamp(end_given < 0 ? end_given + rank : end_given, start, rank);
  return Values{c.b.integer_list({shape.begin() + start, shape.begin() + end}, c.name())};
}

Result<Values> size_of(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  return single(c.b.reshape(c.b.integer_list({elements(c.b.shape(x))}, c.name()), {}));
}

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

}  // namespace

std::span<const OnnxOp> onnx_shape_ops() {
  static const OnnxOp kOps[] = {
      {"Reshape", reshape}, {"Flatten", flatten},     {"Transpose", transpose},
      {"Concat", concat},   {"Split", split},         {"Slice", slice},
      {"Gather", gather},   {"Unsqueeze", unsqueeze}, {"Squeeze", squeeze},
      {"Expand", expand},   {"Tile", tile},           {"Shape", shape_of},
      {"Size", size_of},    {"Constant", constant},   {"ConstantOfShape", constant_of_shape},
      {"Range", range},
  };
  return kOps;
}

}  // namespace tessera
