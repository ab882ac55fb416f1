// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "rewrite/edit/replace.h"
#include "rewrite/recognise/recognise.h"
#include "rewrite/recognise/rotated_pairs.h"

namespace tessera {
namespace {

constexpr int kNone = -1;

// Which axes of x [lead..., d] are batch, tokens and heads.
struct Axes {
  int batch = kNone, tokens = kNone, heads = kNone;
};

// The table's size along x's axis `axis`: 1 where it broadcasts.
int64_t size_along(const Shape& table, size_t tail, size_t lead, int axis) {
  const auto from_back = static_cast<int64_t>(lead) - axis;  // 1: the last axis before the head
  const auto at = static_cast<int64_t>(table.size() - tail) - from_back;
  return at < 0 ? 1 : table[static_cast<size_t>(at)];
}

// Tokens are the axis along which angles change; heads, the other one, share them.
std::optional<Axes> axes_of(const Graph& graph, const TurnedPairs& found) {
  const size_t lead = found.x.region.shape.size() - 1;
  const auto changes = [&](int axis) {
    for (const AngleTable* t : {&found.cos, &found.sin}) {
      if (size_along(graph.at(t->value).type.shape, t->tail, lead, axis) > 1) return true;
    }
    return false;
  };
  if (lead == 1) return Axes{.tokens = 0};
  if (lead == 2) return changes(1) || !changes(0) ? Axes{.batch = 0, .tokens = 1} : Axes{.tokens = 0, .heads = 1};
  if (lead != 3 || (changes(1) && changes(2))) return std::nullopt;
  return changes(1) ? Axes{.batch = 0, .tokens = 1, .heads = 2} : Axes{.batch = 0, .tokens = 2, .heads = 1};
}

// [batch, tokens, heads, d] of what lies as [lead..., d].
Region tokens_first(const Region& r, const Axes& axes) {
  Region out{{}, {}, r.offset};
  for (const int axis : {axes.batch, axes.tokens, axes.heads, static_cast<int>(r.shape.size()) - 1}) {
    out.shape.push_back(axis == kNone ? 1 : r.shape[static_cast<size_t>(axis)]);
    out.strides.push_back(axis == kNone ? 0 : r.strides[static_cast<size_t>(axis)]);
  }
  return permuted(out, {0, 1, 2, 3});  // strides of axes of size 1 as everywhere else
}

// Numbers first, first + step, ... of the last axis of a value that is computed while running, worked out from as few
// numbers as that takes: functions of a value that was joined with itself or repeated become functions of that value.
class Narrower {
 public:
  explicit Narrower(GraphBuilder& builder) : b_(builder), m_(builder.graph()) {}

  Result<ValueId> narrowed(ValueId v, int64_t first, int64_t step, int64_t count) {
    const Shape shape = b_.shape(v);
    if (first == 0 && step == 1 && count == shape.back()) return v;
    const Place p = b_.place(v);
    if (p.base != v && p.region.whole() && b_.shape(p.base).back() == shape.back() &&
        elements(b_.shape(p.base)) == elements(shape)) {
      TS_ASSIGN(const ValueId inner, narrowed(p.base, first, step, count));
      Shape narrow = shape;
      narrow.back() = count;
      return b_.reshape(inner, narrow);
    }
    const Node* n = m_.maker(v);
    if (n != nullptr && n->op == "map" && n->then.empty()) {
      Node fresh = *n;
      if (const auto at = only_operand(fresh)) {
        TS_ASSIGN(fresh.inputs[*at], narrowed(fresh.inputs[*at], first, step, count));
        fresh.outputs.clear();
        return b_.emit(std::move(fresh));
      }
    }
    if (n != nullptr && n->op == "concat" && is_last_axis(n->attrs.integer("axis"), shape)) {
      int64_t begin = 0;
      for (const ValueId in : n->inputs) {
        const int64_t length = b_.shape(in).back(), last = first + (count - 1) * step;
        if (first >= begin && last < begin + length) return narrowed(in, first - begin, step, count);
        begin += length;
      }
    }
    return b_.slice(v, -1, first, step, count);
  }

 private:
  static bool is_last_axis(int64_t axis, const Shape& shape) {
    return axis == -1 || axis == static_cast<int64_t>(shape.size()) - 1;
  }
  // The one operand that is no number.
  std::optional<size_t> only_operand(const Node& map) const {
    std::optional<size_t> found;
    for (size_t i = 0; i < map.inputs.size(); ++i) {
      if (m_.number(map.inputs[i])) continue;
      if (found || b_.shape(map.inputs[i]) != b_.shape(map.outputs[0])) return std::nullopt;
      found = i;
    }
    return found;
  }

  GraphBuilder& b_;
  const Matcher m_;  // of the graph before anything is added: what is read was there
};

// Cosines or sines as [1 or batch, tokens, pairs]: a constant anew, or a view of what is computed while running.
Result<std::optional<ValueId>> angles(GraphBuilder& builder, const AngleTable& table, const Axes& axes, size_t lead,
                                      int64_t tokens) {
  const std::optional<ValueId> none;
  int wide = 0;  // axes of the tail that are longer than 1
  const Shape shape = builder.shape(table.value);
  for (size_t a = shape.size() - table.tail; a < shape.size(); ++a) wide += shape[a] > 1;
  const int64_t pairs = static_cast<int64_t>(table.at.size()), apart = pairs > 1 ? table.at[1] - table.at[0] : 1;
  bool even = apart > 0 && wide <= 1 && shape.back() > 1;
  for (int64_t i = 0; i < pairs; ++i) even = even && table.at[static_cast<size_t>(i)] == table.at[0] + i * apart;
  if (!even) return none;
  ValueId value = table.value;
  if (!builder.is_constant(value)) {
    TS_ASSIGN(value, Narrower(builder).narrowed(value, table.at[0], apart, pairs));
  } else {
    TS_ASSIGN(value, builder.slice(value, -1, table.at[0], apart, pairs));
  }
  const Place p = builder.place(value);
  const auto along = [&](int axis) -> std::pair<int64_t, int64_t> {  // size, stride
    if (axis == kNone || size_along(shape, table.tail, lead, axis) == 1) return {1, 0};
    const size_t at = shape.size() - table.tail - (lead - static_cast<size_t>(axis));
    return {shape[at], p.region.strides[at]};
  };
  const auto [batches, batch_stride] = along(axes.batch);
  const int64_t token_stride = along(axes.tokens).second;
  const Region region{{batches, tokens, pairs}, {batch_stride, token_stride, p.region.strides.back()}, p.region.offset};
  TS_ASSIGN(const ValueId v, builder.view(p.base, permuted(region, {0, 1, 2})));
  return std::optional(v);
}

Status replace(Graph& graph, size_t at, ValueId root, const TurnedPairs& found, const Axes& axes) {
  const size_t lead = found.x.region.shape.size() - 1;
  const Region x_region = tokens_first(found.x.region, axes);
  const std::string name = parent_layer(graph.nodes[at].name, "attn") + ".rotary";
  GraphBuilder builder(graph, at + 1);
  TS_ASSIGN(const auto cos, angles(builder, found.cos, axes, lead, x_region.shape[1]));
  TS_ASSIGN(const auto sin, angles(builder, found.sin, axes, lead, x_region.shape[1]));
  if (!cos || !sin || builder.shape(*cos) != builder.shape(*sin)) return {};
  TS_ASSIGN(const ValueId x, builder.view(found.x.base, x_region));
  TS_ASSIGN(ValueId y,
            builder.emit("rotary", {x, *cos, *sin}, {{"interleaved", int64_t{found.interleaved ? 1 : 0}}}, name));
  if (axes.heads == 1 && lead == 3) {
    TS_ASSIGN(y, builder.permute(y, {0, 2, 1, 3}));
  }
  TS_ASSIGN(y, builder.reshape(y, builder.shape(root)));
  return take_over(builder, root, y);
}

// concat(x[..., :p, :], rotary(x[..., p:, :])): tokens that are not turned are turned by an angle of 0; and
// concat(rotary(x[..., :2r]), x[..., 2r:]): the rest of a head passes through.
class Joined {
 public:
  Joined(Graph& graph, size_t at) : g_(graph), at_(at), m_(graph) {}

  Status run() {
    const Node node = g_.nodes[at_];
    const Shape& shape = g_.at(node.outputs[0]).type.shape;
    const int64_t rank = static_cast<int64_t>(shape.size());
    int64_t axis = node.attrs.integer("axis");
    axis_ = static_cast<size_t>(axis < 0 ? axis + rank : axis);
    if (rank != 4 || axis_ == 0 || !find_turned(node)) return {};
    // x in the order of the concatenation, from its first piece on.
    whole_ = x_.region;
    whole_.shape = shape;
    whole_.offset -= begin_ * whole_.strides[axis_];
    int64_t begin = 0;
    for (const ValueId in : node.inputs) {
      if (begin != begin_ && !untouched(in, begin)) return {};
      begin += g_.at(in).type.shape[axis_];
    }
    if (!in_range(whole_, elements(g_.at(x_.base).type.shape))) return {};
    return axis_ == 3 ? widen_head(node) : add_tokens(node);
  }

 private:
  // The one piece that a rotary makes, with its x seen in the order of the concatenation.
  bool find_turned(const Node& node) {
    int64_t begin = 0;
    for (const ValueId in : node.inputs) {
      const Place p = m_.place(in);
      const Node* maker = m_.made_by(p.base, "rotary");
      if (maker != nullptr && !g_.at(in).constant) {
        if (turned_ != nullptr) return false;
        turned_ = maker;
        begin_ = begin;
        const Region dense = dense_region(g_.at(p.base).type.shape), swapped = permuted(dense, {0, 2, 1, 3});
        heads_first_ = p.region == swapped && p.region != dense;
        if (!heads_first_ && p.region != dense) return false;
        x_ = m_.place(maker->inputs[0]);
        if (heads_first_) x_.region = permuted(x_.region, {0, 2, 1, 3});
      }
      begin += g_.at(in).type.shape[axis_];
    }
    return turned_ != nullptr && x_.region.shape[axis_] > 1;
  }

  bool untouched(ValueId piece, int64_t begin) const {
    const Place p = m_.place(piece);
    if (p.base != x_.base || p.region.offset != whole_.offset + begin * whole_.strides[axis_]) return false;
    for (size_t a = 0; a < 4; ++a) {
      if (p.region.shape[a] > 1 && p.region.strides[a] != whole_.strides[a]) return false;
    }
    return true;
  }

  Status add_tokens(const Node& node) {
    if (axis_ != (heads_first_ ? 2u : 1u)) return {};
    const ValueId cos = turned_->inputs[1], sin = turned_->inputs[2];
    if (!g_.at(cos).constant || !g_.at(sin).constant) return {};
    const int64_t tokens = g_.at(node.outputs[0]).type.shape[axis_];
    const ValueId all_cos = with_rest(cos, tokens, 1), all_sin = with_rest(sin, tokens, 0);
    return emit(node, all_cos, all_sin);
  }

  Status widen_head(const Node& node) {
    if (begin_ != 0) return {};
    return emit(node, turned_->inputs[1], turned_->inputs[2]);
  }

  ValueId with_rest(ValueId angles, int64_t tokens, double rest) {
    const Shape shape = g_.at(angles).type.shape;
    const std::vector<double> numbers = g_.numbers(angles);
    std::vector<float> all(static_cast<size_t>(shape[0] * tokens * shape[2]), static_cast<float>(rest));
    const int64_t block = shape[1] * shape[2];
    for (int64_t b = 0; b < shape[0]; ++b) {
      for (int64_t i = 0; i < block; ++i)
        all[static_cast<size_t>((b * tokens + begin_) * shape[2] + i)] =
            static_cast<float>(numbers[static_cast<size_t>(b * block + i)]);
    }
    const std::string name = g_.at(angles).name;
    return g_.add_constant(name, {shape[0], tokens, shape[2]}, all);
  }

  Status emit(const Node& node, ValueId cos, ValueId sin) {
    const Attrs attrs = turned_->attrs;
    const std::string name = turned_->name;
    GraphBuilder builder(g_, at_ + 1);
    const Region region = heads_first_ ? permuted(whole_, {0, 2, 1, 3}) : whole_;
    TS_ASSIGN(const ValueId x, builder.view(x_.base, region));
    TS_ASSIGN(ValueId y, builder.emit("rotary", {x, cos, sin}, attrs, name));
    if (heads_first_) {
      TS_ASSIGN(y, builder.permute(y, {0, 2, 1, 3}));
    }
    return take_over(builder, node.outputs[0], y);
  }

  Graph& g_;
  const size_t at_;
  const Matcher m_;
  size_t axis_ = 0;
  const Node* turned_ = nullptr;
  int64_t begin_ = 0;
  bool heads_first_ = false;
  Place x_{kNoValue, {}};
  Region whole_;
};

// The head's axes of what may be a rotary's result: a sum, pieces joined, or pairs stacked on an axis of their own.
std::vector<Shape> shapes_to_try(const Graph& graph, const Node& node) {
  const std::string fn = node.attrs.word("fn");
  if (node.op != "concat" && (node.op != "map" || (fn != "add" && fn != "sub"))) return {};
  Shape shape = graph.at(node.outputs[0]).type.shape;
  std::vector<Shape> out = {shape};
  if (node.op == "concat" && shape.size() > 2 && shape.back() == 2) {
    shape.pop_back();
    shape.back() *= 2;
    out.push_back(shape);
  }
  return out;
}

}  // namespace

Status recognise_rotary(Graph& graph) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const Shape& shape : shapes_to_try(graph, graph.nodes[i])) {
      const ValueId root = graph.nodes[i].outputs[0];
      const auto found = find_turned_pairs(graph, Matcher(graph), root, shape);
      if (!found || graph.at(found->x.base).type.quant != graph.at(root).type.quant) continue;
      if (const auto axes = axes_of(graph, *found)) TS_TRY(replace(graph, i, root, *found, *axes));
      break;
    }
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op == "concat") TS_TRY(Joined(graph, i).run());
  }
  return {};
}

}  // namespace tessera
