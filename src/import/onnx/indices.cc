// SPDX-License-Identifier: Apache-2.0
// Operators that read or write by index. Indices known at build that walk evenly (a slice, a repeat, a grid of all
// positions, as exporters index masks) are a view; all others become rows of one table, by one flat index:
//   y[i...] = rows of x at sum over axes of ids[i...] * stride
// An index beyond its axis is an error where it is known at build; one that comes with the input is checked as a flat
// index only, by `gather`.
#include <algorithm>
#include <numeric>

#include "import/onnx/convert.h"
#include "ir/region.h"

namespace tessera {
namespace {

// ids of a constant, counted from the front and inside the table.
Result<std::vector<int64_t>> checked_ids(OnnxCall& c, ValueId ids, int64_t size) {
  TS_ASSIGN(std::vector<int64_t> out, c.b.integers(ids, "the indices"));
  for (int64_t& id : out) {
    if (id < -size || id >= size) return bad_input(cat("index ", id, " is outside an axis of ", size));
    if (id < 0) id += size;
  }
  return out;
}

bool is_listed(OnnxCall& c, ValueId ids) {
  return c.b.is_constant(ids) && elements(c.b.shape(ids)) <= kMaxListed && c.is_integer(ids);
}

// i64 ids counted from the front.
Result<ValueId> counted_from_front(OnnxCall& c, ValueId ids, int64_t size) {
  if (!c.is_integer(ids)) return bad_input("indices must be integers");
  if (is_listed(c, ids)) {
    TS_ASSIGN(const std::vector<int64_t> list, checked_ids(c, ids, size));
    return c.b.reshape(c.b.integer_list(list), c.b.shape(ids));
  }
  TS_ASSIGN(const ValueId wide, c.b.cast(ids, Element::i64, c.name()));
  TS_ASSIGN(const ValueId negative, c.b.map("less", {wide, c.b.scalar(0, Element::i64)}, c.name()));
  TS_ASSIGN(const ValueId wrapped,
            c.b.map("add", {wide, c.b.scalar(static_cast<double>(size), Element::i64)}, c.name()));
  return c.b.map("where", {negative, wrapped, wide}, c.name());
}

// The strides with which a list over `shape` walks: list[i, j, ...] = list[0] + i s0 + j s1 ...; empty where it does
// not walk evenly, or backwards.
std::vector<int64_t> even_walk(const std::vector<int64_t>& list, const Shape& shape) {
  const std::vector<int64_t> dense = dense_strides(shape);
  std::vector<int64_t> steps(shape.size(), 0);
  for (size_t a = 0; a < shape.size(); ++a) {
    if (shape[a] > 1) steps[a] = list[static_cast<size_t>(dense[a])] - list[0];
    if (steps[a] < 0) return {};
  }
  for (size_t i = 0; i < list.size(); ++i) {
    int64_t at = list[0], rest = static_cast<int64_t>(i);
    for (size_t a = 0; a < shape.size(); rest %= dense[a], ++a) at += rest / dense[a] * steps[a];
    if (at != list[i]) return {};
  }
  return steps;
}

// x by ids along an axis, as a view; kNoValue where no strides say it.
Result<ValueId> take_view(OnnxCall& c, ValueId x, size_t axis, ValueId ids) {
  if (!is_listed(c, ids) || elements(c.b.shape(ids)) == 0) return kNoValue;
  const Shape from = c.b.shape(x), index = c.b.shape(ids);
  TS_ASSIGN(const std::vector<int64_t> list, checked_ids(c, ids, from[axis]));
  const std::vector<int64_t> steps = even_walk(list, index), dense = dense_strides(from);
  if (steps.size() != index.size()) return kNoValue;
  Region region{.shape = {}, .strides = {}, .offset = list[0] * dense[axis]};
  const auto add = [&](int64_t size, int64_t stride) {
    region.shape.push_back(size);
    region.strides.push_back(stride);
  };
  for (size_t a = 0; a < axis; ++a) add(from[a], dense[a]);
  for (size_t a = 0; a < index.size(); ++a) add(index[a], steps[a] * dense[axis]);
  for (size_t a = axis + 1; a < from.size(); ++a) add(from[a], dense[a]);
  // Neighbours that are in order count as dense, whatever an axis of size 1 says.
  const Shape in_order = dense_strides(region.shape);
  for (size_t a = 0; a < region.shape.size(); ++a) {
    if (region.shape[a] == 1) region.strides[a] = in_order[a];
  }
  const Place place = c.b.place(x);
  const auto straight = composed(place.region, region);
  if (!straight) return kNoValue;
  return c.b.view(place.base, *straight);
}

}  // namespace

Result<ValueId> take(OnnxCall& c, ValueId x, size_t axis, ValueId ids) {
  TS_ASSIGN(const ValueId seen, take_view(c, x, axis, ids));
  if (seen != kNoValue) return seen;
  const int64_t at = static_cast<int64_t>(axis);
  if (axis == 0) return c.b.emit("gather", {x, ids}, {}, c.name());
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
  return c.b.permute(rows, back);
}

namespace {

Result<Values> gather(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId ids, c.operand(1));
  TS_ASSIGN(const int64_t axis_given, c.integer("axis", 0));
  TS_ASSIGN(const size_t axis, resolve_axis(axis_given, c.b.rank(x)));
  return single(take(c, x, axis, ids));
}

// Sums parts of a flat index: part * stride.
Result<ValueId> add_part(OnnxCall& c, ValueId sum, ValueId part, int64_t stride) {
  TS_ASSIGN(const ValueId scaled,
            c.b.map("mul", {part, c.b.scalar(static_cast<double>(stride), Element::i64)}, c.name()));
  return sum == kNoValue ? Result<ValueId>(scaled) : c.b.map("add", {sum, scaled}, c.name());
}

// Flat element numbers of x[i0, .., ids[i], ..], over the shape of ids.
Result<ValueId> element_numbers(OnnxCall& c, ValueId ids, Shape x, size_t axis) {
  const Shape shape = c.b.shape(ids), strides = dense_strides(x);
  if (shape.size() != x.size()) return bad_input(cat("indices ", to_string(shape), " into ", to_string(x)));
  TS_ASSIGN(const ValueId along, counted_from_front(c, ids, x[axis]));
  TS_ASSIGN(ValueId sum, add_part(c, kNoValue, along, strides[axis]));
  for (size_t a = 0; a < shape.size(); ++a) {
    if (a == axis) continue;
    if (shape[a] > x[a]) return bad_input(cat("indices ", to_string(shape), " into ", to_string(x)));
    TS_ASSIGN(const ValueId here, count_along(c, shape[a], a, shape.size()));
    TS_ASSIGN(sum, add_part(c, sum, here, strides[a]));
  }
  return sum;
}

Result<Values> gather_elements(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId ids, c.operand(1));
  TS_ASSIGN(const int64_t axis_given, c.integer("axis", 0));
  TS_ASSIGN(const size_t axis, resolve_axis(axis_given, c.b.rank(x)));
  TS_ASSIGN(const ValueId numbers, element_numbers(c, ids, c.b.shape(x), axis));
  TS_ASSIGN(const ValueId flat, c.b.reshape(x, {elements(c.b.shape(x))}, c.name()));
  return single(take(c, flat, 0, numbers));
}

// The k greatest (or least) numbers along an axis and where they stand; the order of those that are not sorted is free,
// so they are sorted, too.
Result<Values> top_k(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId count, c.operand(1));
  TS_ASSIGN(const std::vector<int64_t> k, c.b.integers(count, "k"));
  TS_ASSIGN(const int64_t axis_given, c.integer("axis", -1));
  TS_ASSIGN(const int64_t largest, c.integer("largest", 1));
  TS_ASSIGN(const size_t axis, resolve_axis(axis_given, c.b.rank(x)));
  const Shape shape = c.b.shape(x);
  if (k.size() != 1 || k[0] < 0 || k[0] > shape[axis])
    return bad_input(cat("TopK: k = ", to_string(k), " along an axis of ", shape[axis]));
  std::vector<int64_t> swap;
  for (size_t i = 0; i < shape.size(); ++i) swap.push_back(static_cast<int64_t>(i));
  std::swap(swap[axis], swap.back());
  TS_ASSIGN(const ValueId rows, c.b.permute(x, swap));
  TS_ASSIGN(const ValueId found, c.b.emit("topk", {rows}, {{"k", k[0]}, {"least", int64_t{largest == 0}}}, c.name()));
  const Shape turned = c.b.shape(rows);
  TS_ASSIGN(const ValueId numbers, element_numbers(c, found, turned, turned.size() - 1));
  TS_ASSIGN(const ValueId flat, c.b.reshape(rows, {elements(turned)}, c.name()));
  TS_ASSIGN(const ValueId values, take(c, flat, 0, numbers));
  TS_ASSIGN(const ValueId y, c.b.permute(values, swap));
  TS_ASSIGN(const ValueId places, c.b.permute(found, swap));
  return Values{y, places};
}

// Column k of an index table. Exporters join it from columns, some of them known at build: then it is that column.
Result<ValueId> column_of(OnnxCall& c, ValueId ids, int64_t k) {
  const std::vector<int> producers = c.b.graph().producers();
  const int maker = producers[static_cast<size_t>(ids)];
  if (maker >= 0) {
    const Node& join = c.b.graph().nodes[static_cast<size_t>(maker)];
    const int64_t last = static_cast<int64_t>(c.b.rank(ids)) - 1, axis = join.attrs.integer("axis");
    int64_t start = 0;
    for (size_t i = 0; join.op == "concat" && (axis == last || axis == -1) && i < join.inputs.size(); ++i) {
      const ValueId part = join.inputs[i];
      const int64_t size = c.b.shape(part).back();
      if (k < start + size) return c.b.slice(part, -1, k - start, 1, 1);
      start += size;
    }
  }
  return c.b.slice(ids, -1, k, 1, 1);
}

// Flat row numbers of x[i0, .., ids[.., 0], ids[.., 1], ..], over the shape of ids but its last axis; a row is what the
// index leaves of x. The first `batch` axes are common to both.
Result<ValueId> row_numbers(OnnxCall& c, ValueId ids, Shape x, size_t batch) {
  Shape shape = c.b.shape(ids);
  const size_t depth = shape.empty() ? 0 : static_cast<size_t>(shape.back());
  if (shape.empty() || depth < 1 || batch >= shape.size() || batch + depth > x.size())
    return bad_input(cat("indices ", to_string(shape), " into ", to_string(x)));
  shape.pop_back();
  const Shape strides = dense_strides(Shape(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(batch + depth)));
  ValueId sum = kNoValue;
  for (size_t k = 0; k < depth; ++k) {
    TS_ASSIGN(const ValueId one, column_of(c, ids, static_cast<int64_t>(k)));
    TS_ASSIGN(const ValueId part, c.b.reshape(one, shape));
    TS_ASSIGN(const ValueId along, counted_from_front(c, part, x[batch + k]));
    TS_ASSIGN(sum, add_part(c, sum, along, strides[batch + k]));
  }
  for (size_t a = 0; a < batch; ++a) {
    if (shape[a] != x[a]) return bad_input(cat("indices ", to_string(c.b.shape(ids)), " into ", to_string(x)));
    TS_ASSIGN(const ValueId here, count_along(c, shape[a], a, shape.size()));
    TS_ASSIGN(sum, add_part(c, sum, here, strides[a]));
  }
  return sum;
}

// x as a table whose rows are what the first `axes` axes number.
Result<ValueId> as_rows(OnnxCall& c, ValueId x, size_t axes) {
  const Shape& from = c.b.shape(x);
  const auto middle = from.begin() + static_cast<std::ptrdiff_t>(axes);
  Shape shape = {elements(Shape(from.begin(), middle))};
  shape.insert(shape.end(), middle, from.end());
  return c.b.reshape(x, shape, c.name());
}

Result<Values> gather_nd(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId ids, c.operand(1));
  TS_ASSIGN(const int64_t batch, c.integer("batch_dims", 0));
  if (batch < 0 || batch >= static_cast<int64_t>(c.b.rank(x))) return bad_input(cat("batch_dims ", batch));
  TS_ASSIGN(const ValueId numbers, row_numbers(c, ids, c.b.shape(x), static_cast<size_t>(batch)));
  TS_ASSIGN(const ValueId rows, as_rows(c, x, static_cast<size_t>(batch) + static_cast<size_t>(c.b.shape(ids).back())));
  return single(take(c, rows, 0, numbers));
}

// Rows of x, some of them replaced: rows of [x; updates] by a table of where each row comes from. `written` names no
// row twice, or the last one counts.
Result<ValueId> replace_rows(OnnxCall& c, ValueId x, const std::vector<int64_t>& written, ValueId updates) {
  const int64_t rows = c.b.shape(x)[0];
  std::vector<int64_t> source(static_cast<size_t>(rows));
  std::iota(source.begin(), source.end(), int64_t{0});
  for (size_t i = 0; i < written.size(); ++i) source[static_cast<size_t>(written[i])] = rows + static_cast<int64_t>(i);
  TS_ASSIGN(const ValueId both, c.b.concat({x, updates}, 0, c.name()));
  return take(c, both, 0, c.b.integer_list(source));
}

// The writes in turns, none of which names a row twice.
std::vector<std::vector<int64_t>> turns_of(const std::vector<int64_t>& written, int64_t rows) {
  std::vector<std::vector<int64_t>> turns;
  std::vector<size_t> times(static_cast<size_t>(rows), 0);
  for (size_t i = 0; i < written.size(); ++i) {
    const size_t turn = times[static_cast<size_t>(written[i])]++;
    if (turn == turns.size()) turns.emplace_back();
    turns[turn].push_back(static_cast<int64_t>(i));
  }
  return turns;
}

// Rows of x, some of them replaced by updates, or by what the node's reduction makes of both.
Result<ValueId> write_rows(OnnxCall& c, ValueId x, ValueId numbers, ValueId updates) {
  TS_ASSIGN(const std::string reduction, c.word("reduction", "none"));
  TS_ASSIGN(const std::vector<int64_t> written, c.b.integers(numbers, "the indices"));
  const int64_t rows = c.b.shape(x)[0];
  if (rows > kMaxListed) return bad_input(cat("a table of ", rows, " rows is too long to be written to by index"));
  if (c.b.shape(updates)[0] != static_cast<int64_t>(written.size()))
    return bad_input(cat(written.size(), " indices for ", c.b.shape(updates)[0], " updates"));
  if (reduction == "none") return replace_rows(c, x, written, updates);
  const bool known = reduction == "add" || reduction == "mul" || reduction == "min" || reduction == "max";
  if (!known) return bad_input(cat("reduction '", shown(reduction), "'; known: none, add, mul, min, max"));
  const std::vector<std::vector<int64_t>> turns = turns_of(written, rows);
  constexpr size_t kMostTurns = 64;
  if (turns.size() > kMostTurns)
    return bad_input(cat("one row is written ", turns.size(), " times; at most ", kMostTurns,
                         " are supported with reduction '", reduction, "'"));
  for (const std::vector<int64_t>& turn : turns) {
    std::vector<int64_t> here;
    for (const int64_t i : turn) here.push_back(written[static_cast<size_t>(i)]);
    TS_ASSIGN(const ValueId old, take(c, x, 0, c.b.integer_list(here)));
    TS_ASSIGN(const ValueId fresh, take(c, updates, 0, c.b.integer_list(turn)));
    TS_ASSIGN(const ValueId both, c.b.map(reduction, {old, fresh}, c.name()));
    TS_ASSIGN(x, replace_rows(c, x, here, both));
  }
  return x;
}

// What an index that comes with the input writes: no table of sources is known, so every place asks every index whether
// it is meant. That many questions are worth it for the few classes or tokens that models choose among.
constexpr int64_t kMostQuestions = int64_t{1} << 24;

// y = x with updates at ids, counted from the front, along an axis: ids and updates are as long as x along the others.
// Of several that write one place, the last counts.
Result<ValueId> write_along(OnnxCall& c, ValueId x, size_t axis, ValueId ids, ValueId updates) {
  const Shape shape = c.b.shape(x), index = c.b.shape(ids);
  const int64_t places = shape[axis], writers = index[axis];
  if (writers == 0) return x;
  if (!checked_elements({elements(shape), writers}, kMostQuestions))
    return bad_input(cat("indices ", to_string(index), " into ", to_string(shape),
                         " depend on the model's input, and are too many to be compared one by one"));
  // [..., places, ..., writers]: who writes where; the greatest number is the last writer.
  std::vector<int64_t> swap;
  for (size_t i = 0; i < shape.size(); ++i) swap.push_back(static_cast<int64_t>(i));
  std::swap(swap[axis], swap.back());
  TS_ASSIGN(ValueId asked, c.b.permute(ids, swap));
  TS_ASSIGN(asked, c.b.unsqueeze(asked, {-2}));
  TS_ASSIGN(const ValueId here, count_along(c, places, shape.size() - 1, shape.size() + 1));
  TS_ASSIGN(const ValueId number, count_along(c, writers, shape.size(), shape.size() + 1));
  TS_ASSIGN(const ValueId meant, c.b.map("equal", {asked, here}, c.name()));
  const ValueId nobody = c.b.scalar(-1, Element::i64);
  TS_ASSIGN(const ValueId named, c.b.map("where", {meant, number, nobody}, c.name()));
  TS_ASSIGN(ValueId writer, c.b.emit("reduce", {named}, {{"fn", std::string("max")}}, c.name()));
  TS_ASSIGN(writer, c.b.permute(writer, swap));
  TS_ASSIGN(const ValueId written, c.b.map("greater_equal", {writer, c.b.scalar(0, Element::i64)}, c.name()));
  TS_ASSIGN(const ValueId read, c.b.map("max", {writer, c.b.scalar(0, Element::i64)}, c.name()));
  TS_ASSIGN(const ValueId numbers, element_numbers(c, read, c.b.shape(updates), axis));
  TS_ASSIGN(const ValueId flat, c.b.reshape(updates, {elements(c.b.shape(updates))}, c.name()));
  TS_ASSIGN(const ValueId fresh, take(c, flat, 0, numbers));
  return c.b.map("where", {written, fresh, x}, c.name());
}

// Rows of x by numbers that come with the input.
Result<ValueId> write_asked_rows(OnnxCall& c, ValueId x, ValueId numbers, ValueId updates) {
  TS_ASSIGN(const std::string reduction, c.word("reduction", "none"));
  if (reduction != "none")
    return bad_input(cat("reduction '", shown(reduction), "' by indices that depend on the model's input"));
  const Shape shape = c.b.shape(x);
  const int64_t writers = elements(c.b.shape(numbers));
  if (c.b.shape(updates)[0] != writers || writers == 0)
    return bad_input(cat(writers, " indices for ", c.b.shape(updates)[0], " updates"));
  if (!checked_elements({shape[0], writers}, kMostQuestions))
    return bad_input(cat(writers, " indices into ", shape[0],
                         " rows depend on the model's input, and are too many to be compared one by one"));
  // A table of one column says which row of [x; updates] each row is.
  TS_ASSIGN(const ValueId own, count_along(c, shape[0], 0, 1));
  TS_ASSIGN(const ValueId fresh, count_along(c, writers, 0, 1));
  TS_ASSIGN(const ValueId behind,
            c.b.map("add", {fresh, c.b.scalar(static_cast<double>(shape[0]), Element::i64)}, c.name()));
  TS_ASSIGN(const ValueId flat, c.b.reshape(numbers, {writers}));
  TS_ASSIGN(const ValueId source, write_along(c, own, 0, flat, behind));
  TS_ASSIGN(const ValueId both, c.b.concat({x, updates}, 0, c.name()));
  return take(c, both, 0, source);
}

Result<Values> scatter_nd(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId ids, c.operand(1));
  TS_ASSIGN(const ValueId updates, c.operand(2));
  const Shape shape = c.b.shape(x), index = c.b.shape(ids);
  TS_ASSIGN(const ValueId numbers, row_numbers(c, ids, shape, 0));
  TS_ASSIGN(const ValueId rows, as_rows(c, x, static_cast<size_t>(index.back())));
  if (c.b.rank(updates) + 1 < index.size()) return bad_input(cat("updates ", to_string(c.b.shape(updates))));
  TS_ASSIGN(const ValueId fresh, as_rows(c, updates, index.size() - 1));
  TS_ASSIGN(const ValueId y,
            c.b.is_constant(numbers) ? write_rows(c, rows, numbers, fresh) : write_asked_rows(c, rows, numbers, fresh));
  return single(c.b.reshape(y, shape));
}

Result<Values> scatter_asked(OnnxCall& c, ValueId x, size_t axis, ValueId ids, ValueId updates) {
  TS_ASSIGN(const std::string reduction, c.word("reduction", "none"));
  const Shape shape = c.b.shape(x), index = c.b.shape(ids);
  bool whole = index.size() == shape.size() && c.b.shape(updates) == index;
  for (size_t i = 0; whole && i < shape.size(); ++i) whole = i == axis || index[i] == shape[i];
  if (!whole || reduction != "none")
    return bad_input(cat("indices ", to_string(index), " into ", to_string(shape), " with reduction '",
                         shown(reduction), "' depend on the model's input; that is supported without a reduction, ",
                         "where indices and table differ along the axis only"));
  TS_ASSIGN(const ValueId along, counted_from_front(c, ids, shape[axis]));
  return single(write_along(c, x, axis, along, updates));
}

Result<Values> scatter_elements(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId ids, c.operand(1));
  TS_ASSIGN(const ValueId updates, c.operand(2));
  TS_ASSIGN(const int64_t axis_given, c.integer("axis", 0));
  TS_ASSIGN(const size_t axis, resolve_axis(axis_given, c.b.rank(x)));
  const Shape shape = c.b.shape(x);
  if (!c.b.is_constant(ids)) return scatter_asked(c, x, axis, ids, updates);
  TS_ASSIGN(const ValueId numbers, element_numbers(c, ids, shape, axis));
  TS_ASSIGN(const ValueId flat, c.b.reshape(x, {elements(shape)}, c.name()));
  TS_ASSIGN(const ValueId fresh, c.b.reshape(updates, {elements(c.b.shape(updates))}, c.name()));
  TS_ASSIGN(const ValueId y, write_rows(c, flat, numbers, fresh));
  return single(c.b.reshape(y, shape));
}

}  // namespace

std::span<const OnnxOp> onnx_index_ops() {
  static const OnnxOp kOps[] = {
      {"Gather", gather},        {"GatherElements", gather_elements},   {"GatherND", gather_nd},
      {"ScatterND", scatter_nd}, {"ScatterElements", scatter_elements}, {"TopK", top_k},
  };
  return kOps;
}

}  // namespace tessera
