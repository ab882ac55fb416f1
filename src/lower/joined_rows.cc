// SPDX-License-Identifier: Apache-2.0
#include "lower/joined_rows.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "ir/derived_constants.h"
#include "precision/roles.h"

namespace tessera {
namespace {

const Value& weight(const Graph& g, const Node& layer) { return g.at(layer.inputs[1]); }

constexpr StepKind kVectors[] = {StepKind::bias, StepKind::scale};

ValueId vector_id(const Node& layer, StepKind kind) {
  const Step* step = layer.then.find(kind);
  return step == nullptr ? kNoValue : layer.inputs[static_cast<size_t>(step->operand)];
}
const Value* vector_of(const Graph& g, const Node& layer, StepKind kind) {
  const ValueId v = vector_id(layer, kind);
  return v == kNoValue ? nullptr : &g.at(v);
}

bool same_scale(const Graph& g, ValueId a, ValueId b) {
  if (a == kNoValue || b == kNoValue) return a == b;
  return a == b || (g.at(a).type == g.at(b).type && same_bytes(g.at(a).data, g.at(b).data));
}

// Some of the bytes that are joined.
struct Piece {
  size_t from;  // which source; an empty one stands for what is missing
  size_t begin, bytes;
};

// Bytes of the rows of each layer's constant, which `get` gives; null where it has none: `missing` for each
// row.
template <class Get>
Bytes join(const Graph& g, std::span<const LayerRows> rows, const Get& get, const Buffer& missing) {
  std::vector<Bytes> from;
  std::vector<Piece> pieces;
  std::string recipe = "join";
  size_t all = 0;
  for (const LayerRows& r : rows) {
    const Value* value = get(*r.layer);
    const size_t row =
        value == nullptr ? missing.size() : value->data.size() / static_cast<size_t>(weight(g, *r.layer).type.shape[0]);
    from.push_back(value == nullptr ? Bytes() : value->data);
    pieces.push_back({from.size() - 1, static_cast<size_t>(r.first) * row, static_cast<size_t>(r.count) * row});
    recipe += cat(value == nullptr ? " -" : " ", pieces.back().begin, "+", pieces.back().bytes);
    all += pieces.back().bytes;
  }
  for (size_t i = 0; i < missing.size(); ++i) recipe += cat(i == 0 ? " else " : ",", missing.data()[i]);
  const auto make = [&]() -> Result<std::vector<Buffer>> {
    std::vector<Buffer> made;
    made.emplace_back(all);
    uint8_t* to = made[0].data();
    for (const Piece& p : pieces) {
      const Bytes& source = from[p.from];
      if (source.size() > 0) std::memcpy(to, source.data() + p.begin, p.bytes);
      for (size_t i = 0; source.size() == 0 && i < p.bytes; ++i) to[i] = missing.data()[i % missing.size()];
      to += p.bytes;
    }
    return made;
  };
  return derive(g, recipe, from, make).value()[0];
}

std::string joined_name(std::span<const LayerRows> rows, const auto& get) {
  std::vector<std::string> names;
  for (const LayerRows& r : rows) {
    if (const Value* v = get(*r.layer)) names.push_back(v->name);
  }
  return join_names(names);
}

int64_t count_of(std::span<const LayerRows> rows) {
  int64_t count = 0;
  for (const LayerRows& r : rows) count += r.count;
  return count;
}

}  // namespace

bool same_bytes(const Bytes& a, const Bytes& b) {
  return a.size() == b.size() && (a.data() == b.data() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

LayerRows all_rows(const Graph& graph, const Node& layer) { return {&layer, 0, weight(graph, layer).type.shape[0]}; }

bool has_rows(const Graph& graph, const Node& layer) {
  if (!is_matmul_layer(graph, layer)) return false;
  const Type& w = weight(graph, layer).type;
  const Granularity scales = w.quant.scale.granularity;
  return w.shape.size() == 2 && w.shape[0] > 0 && w.quant.scale2.granularity == Granularity::kNone &&
         (scales == Granularity::kNone || scales == Granularity::kTensor || scales == Granularity::kChannel);
}

bool fit_together(const Graph& graph, const Node& a, const Node& b) {
  const Value &v = weight(graph, a), &w = weight(graph, b);
  const Value &y = graph.at(a.outputs[0]), &z = graph.at(b.outputs[0]);
  if (a.inputs[0] != b.inputs[0] || a.asked != b.asked || a.role != b.role || !(a.attrs == b.attrs)) return false;
  if (v.type.quant != w.type.quant || v.type.shape[1] != w.type.shape[1] || y.type.quant != z.type.quant) return false;
  if (!same_scale(graph, y.scale, z.scale) || !same_scale(graph, y.scale2, z.scale2)) return false;
  for (const StepKind kind : kVectors) {
    const Value *c = vector_of(graph, a, kind), *d = vector_of(graph, b, kind);
    if (c != nullptr && d != nullptr && c->type.quant != d->type.quant) return false;
  }
  const Granularity scales = v.type.quant.scale.granularity;
  if (scales == Granularity::kNone) return true;
  if (v.scale == kNoValue || w.scale == kNoValue) return false;
  return scales == Granularity::kChannel || same_bytes(graph.at(v.scale).data, graph.at(w.scale).data);
}

bool vectors_fit_together(const Graph& graph, const std::vector<int>& producers, std::span<const LayerRows> rows) {
  for (const StepKind kind : kVectors) {
    const auto computed = [&](const LayerRows& r) {
      const Value* v = vector_of(graph, *r.layer, kind);
      return v != nullptr && !v->constant;
    };
    if (std::none_of(rows.begin(), rows.end(), computed)) continue;
    if (!std::all_of(rows.begin(), rows.end(), computed)) return false;
    std::optional<Placement> end;  // of the one before
    for (const LayerRows& r : rows) {
      const ValueId v = vector_id(*r.layer, kind);
      Placement p = placement_of(graph, producers, v);
      p.offset += r.first;
      if (!is_dense(graph.at(v).type.shape, p.strides)) return false;
      if (end && (end->base != p.base || end->offset != p.offset)) return false;
      p.offset += r.count;
      end = p;
    }
  }
  return true;
}

std::string join_names(std::span<const std::string> names) {
  std::string all;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i == 0 || names[i] != names[i - 1]) all += cat(i == 0 ? "" : "+", names[i]);
  }
  return all;
}

ValueId join_weights(Graph& graph, std::span<const LayerRows> rows) {
  const auto scale_of = [&](const Node& layer) -> const Value* { return &graph.at(weight(graph, layer).scale); };
  const auto weight_of = [&](const Node& layer) { return &weight(graph, layer); };
  Type type = weight(graph, *rows[0].layer).type;
  type.shape[0] = count_of(rows);
  ValueId scale = weight(graph, *rows[0].layer).scale;
  if (type.quant.scale.granularity == Granularity::kChannel) {
    const Type scales{{type.shape[0]}, graph.at(scale).type.quant};
    scale = graph.add_constant(joined_name(rows, scale_of), scales, join(graph, rows, scale_of, Buffer()));
  }
  const ValueId made = graph.add_constant(joined_name(rows, weight_of), type, join(graph, rows, weight_of, Buffer()));
  graph.at(made).scale = scale;
  return made;
}

ValueId join_vectors(Graph& graph, std::span<const LayerRows> rows, StepKind kind, std::vector<Node>& nodes) {
  const auto get = [&](const Node& layer) { return vector_of(graph, layer, kind); };
  const auto with =
      std::find_if(rows.begin(), rows.end(), [&](const LayerRows& r) { return get(*r.layer) != nullptr; });
  const Type type{{count_of(rows)}, get(*with->layer)->type.quant};
  if (!get(*with->layer)->constant) {
    const Placement p = placement_of(graph, graph.producers(), vector_id(*rows[0].layer, kind));
    Value all = *get(*rows[0].layer);
    all.name = joined_name(rows, get), all.type = type;
    const Attrs seen{{"strides", dense_strides(type.shape)}, {"offset", p.offset + rows[0].first}};
    const ValueId made = graph.add_value(std::move(all));
    nodes.push_back({.name = {}, .op = "view", .inputs = {p.base}, .outputs = {made}, .attrs = seen});
    return made;
  }
  const float neutral = kind == StepKind::scale ? 1.0f : 0.0f;
  Buffer missing(static_cast<size_t>(packed_bytes(type.quant.element, 1)));
  info(type.quant.element).encode(&neutral, 1, missing.data(), 0);
  return graph.add_constant(joined_name(rows, get), type, join(graph, rows, get, missing));
}

}  // namespace tessera
