// SPDX-License-Identifier: Apache-2.0
#include "lower/pad_layer.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "ir/derived_constants.h"
#include "ir/gather_codes.h"
#include "ops/matmul/matmul.h"
#include "ops/ops.h"
#include "ops/runnable.h"
#include "precision/roles.h"

namespace tessera {
namespace {

size_t bytes_of(const QuantType& type) { return static_cast<size_t>(info(type.element).bits) / 8; }

PaddedPlaces as_they_are(int64_t count) {
  PaddedPlaces places(static_cast<size_t>(count));
  std::iota(places.begin(), places.end(), int64_t{0});
  return places;
}

std::string text_of(const PaddedPlaces& places) { return to_string(Shape(written(places))); }

// A matrix of `from` with its rows and columns in their places and `fill` elsewhere.
Buffer placed(const Bytes& from, size_t bytes, int64_t old_cols, const PaddedPlaces& rows, const PaddedPlaces& cols,
              const void* fill) {
  Buffer made(rows.size() * cols.size() * bytes);
  uint8_t* to = made.data();
  for (const int64_t r : rows) {
    for (const int64_t c : cols) {
      const void* element = r < 0 || c < 0 ? fill : from.data() + static_cast<size_t>(r * old_cols + c) * bytes;
      std::memcpy(to, element, bytes);
      to += bytes;
    }
  }
  return made;
}

// The constant [rows, cols], or [cols] as one row, as a new one with rows and columns in their places.
ValueId place_constant(Graph& g, ValueId id, Shape shape, const PaddedPlaces& rows, const PaddedPlaces& cols,
                       PaddedNumbers numbers, float fill = 0) {
  Value v = g.at(id);
  const int64_t old_cols = cols_of(v.type.shape);
  const size_t bytes = bytes_of(v.type.quant);
  // Zero is all zero bits in every element; the one other number is an f32.
  uint8_t element[8] = {};
  if (fill != 0) std::memcpy(element, &fill, sizeof(fill));
  v.type.shape = std::move(shape);
  if (numbers == PaddedNumbers::kMade) {
    const std::string recipe =
        cat("pad ", bytes, " ", old_cols, " ", text_of(rows), " ", text_of(cols), fill != 0 ? " ones" : "");
    const Bytes from = v.data;
    v.data = derive(g, recipe, {&from, 1}, [&]() -> Result<std::vector<Buffer>> {
               std::vector<Buffer> made;
               made.push_back(placed(from, bytes, old_cols, rows, cols, element));
               return made;
             }).value()[0];
  } else {
    v.data = {};
  }
  return g.add_value(std::move(v));
}

// The layer's attribute, which may be there from another padding.
void note_places(Node& layer, const char* attr, int64_t before, const PaddedPlaces& places) {
  PaddedPlaces all = places;
  const std::vector<int64_t> known = layer.attrs.list(attr);
  int64_t kept = 0;
  for (size_t t = 0; t + 2 < known.size(); t += 3) kept += known[t] * known[t + 1];
  if (const auto first = read_places(layer.attrs, attr, kept, before)) all = padded_again(*first, places);
  layer.attrs.set(attr, written(all));
}

void place_weight(Graph& g, Node& layer, const PaddedPlaces& rows, const PaddedPlaces& cols, PaddedNumbers numbers) {
  const ValueId w = layer.inputs[1];
  const ValueId scale = g.at(w).scale;
  const Shape shape = {static_cast<int64_t>(rows.size()), static_cast<int64_t>(cols.size())};
  const ValueId made = place_constant(g, w, shape, rows, cols, numbers);
  const bool of_rows = g.at(w).type.quant.scale.granularity == Granularity::kChannel;
  if (of_rows && rows.size() != static_cast<size_t>(g.at(w).type.shape[0]))
    g.at(made).scale = place_constant(g, scale, {shape[0]}, as_they_are(1), rows, numbers, 1.0f);
  layer.inputs[1] = made;
}

}  // namespace

bool can_pad(const Graph& g, const Node& layer) {
  if (!is_linear(g, layer) || layer.attrs.integer(kSparse24) != 0 || layer.then.gated()) return false;
  if (layer.attrs.integer("groups", 1) != 1) return false;
  const Value& w = g.at(layer.inputs[1]);
  const ScaleLevel& scale = w.type.quant.scale;
  if (w.type.shape.size() != 2 || info(w.type.quant.element).bits % 8 != 0 || w.type.quant.dynamic) return false;
  if (w.type.quant.scale2.granularity != Granularity::kNone) return false;
  const bool of_rows = scale.granularity == Granularity::kChannel;
  if (scale.granularity != Granularity::kNone && scale.granularity != Granularity::kTensor && !of_rows) return false;
  if (of_rows && (w.scale == kNoValue || g.at(w.scale).type.quant != QuantType(Element::f32))) return false;
  return std::all_of(layer.then.steps.begin(), layer.then.steps.end(), [&](const Step& s) {
    if (operand_of(s.kind) != StepOperand::kVector) return true;
    const Value& v = g.at(layer.inputs[static_cast<size_t>(s.operand)]);
    return v.constant && !v.type.quant.scaled() && elements(v.type.shape) == w.type.shape[0];
  });
}

bool keeps_zeros(const Program& then) {
  static constexpr StepSet kKeep = {StepKind::normalise, StepKind::bias, StepKind::scale, StepKind::quantize};
  return then.within(kKeep);  // a bias of padded rows is zero, too
}

void pad_rows(Graph& g, Node& layer, const PaddedPlaces& places, PaddedNumbers numbers) {
  const Shape shape = g.at(layer.inputs[1]).type.shape;
  for (const Step& s : layer.then.steps) {
    if (operand_of(s.kind) != StepOperand::kVector) continue;
    ValueId& vector = layer.inputs[static_cast<size_t>(s.operand)];
    vector = place_constant(g, vector, {static_cast<int64_t>(places.size())}, as_they_are(1), places, numbers);
  }
  place_weight(g, layer, places, as_they_are(shape[1]), numbers);
  note_places(layer, kPaddedRows, shape[0], places);
}

void pad_cols(Graph& g, Node& layer, const PaddedPlaces& places, PaddedNumbers numbers) {
  const Shape shape = g.at(layer.inputs[1]).type.shape;
  place_weight(g, layer, as_they_are(shape[0]), places, numbers);
  note_places(layer, kPaddedCols, shape[1], places);
}

ValueId pad_constant(Graph& g, ValueId constant, const Region& region, int64_t cols, PaddedNumbers numbers) {
  const QuantType type = g.at(constant).type.quant;
  const int64_t own = cols_of(region.shape), rows = elements(region.shape) / std::max<int64_t>(own, 1);
  Value dense = g.at(constant);
  dense.type.shape = region.shape;
  if (numbers == PaddedNumbers::kMade)
    dense.data = Bytes::own(gather_codes(dense.data.data(), info(type.element).bits, region));
  const ValueId id = g.add_value(std::move(dense));
  Shape shape = region.shape;
  shape.back() = cols;
  return place_constant(g, id, shape, as_they_are(rows), padded_groups(1, own, cols), numbers);
}

ValueId pad_value(Graph& g, ValueId value, int64_t cols, ValueId like, const std::string& layer,
                  std::vector<Node>& made) {
  Value v;
  v.name = g.at(like).name + ".padded";
  const Shape own_shape = g.at(value).type.shape, rows = g.at(like).type.shape;
  const bool split = own_shape.size() != rows.size();
  v.type = {split ? rows : own_shape, g.at(like).type.quant};
  v.scale = g.at(like).scale, v.scale2 = g.at(like).scale2;
  const int64_t own = v.type.shape.back();
  v.type.shape.back() = cols;
  Shape zeros = v.type.shape;
  zeros.back() = cols - own;
  Node node{.name = layer_name(g, cat(layer, ".pad")), .op = "copy", .inputs = {value}};
  if (cols > own) {
    const QuantType from = g.at(value).type.quant;
    const QuantType type = from.scaled() ? QuantType(Element::f16) : from;
    // One row of them is stored, which is read again and again.
    const Shape row{cols - own};
    const ValueId constant =
        g.add_constant(v.name + ".zeros", {row, type},
                       Bytes::own(Buffer(static_cast<size_t>(packed_bytes(type.element, cols - own)))));
    Value all;
    all.name = v.name + ".all_zeros", all.type = {zeros, type};
    const ValueId repeated = g.add_value(std::move(all));
    made.push_back(view_node(constant, repeated, expanded(dense_region(row), zeros)));
    node.op = "concat";
    node.inputs.push_back(repeated);
    node.attrs.set("axis", static_cast<int64_t>(zeros.size()) - 1);
    if (split) node.attrs.set("block", Shape{cols});
  }
  node.outputs = {g.add_value(std::move(v))};
  made.push_back(std::move(node));
  return made.back().outputs[0];
}

std::vector<StorageRead> reads_of(const Graph& g, const std::vector<int>& producers, ValueId base) {
  std::vector<StorageRead> reads;
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    if (g.nodes[n].op == "view") continue;
    for (size_t i = 0; i < g.nodes[n].inputs.size(); ++i) {
      const ValueId in = g.nodes[n].inputs[i];
      const bool known = in != kNoValue && static_cast<size_t>(in) < producers.size() && !g.at(in).constant;
      if (known && placement_of(g, producers, in).base == base) reads.push_back({n, i});
    }
  }
  return reads;
}

bool is_output(const Graph& g, const std::vector<int>& producers, ValueId base) {
  return std::any_of(g.outputs.begin(), g.outputs.end(),
                     [&](ValueId out) { return placement_of(g, producers, out).base == base; });
}

const Node* gather_of(const Matcher& m, ValueId v) {
  if (static_cast<size_t>(v) >= m.producers().size()) return nullptr;
  const Place p = m.place(v);
  return p.base != v && p.region.whole() ? m.made_by(p.base, "copy") : nullptr;
}

bool runs_on_own(const Graph& g, size_t node, Arch target) {
  const Problem p = problem_of(g, g.producers(), g.nodes[node]);
  const OpInfo& op = *find_op(p.op);
  return std::any_of(op.variants.begin(), op.variants.end(), [&](const Variant* v) {
    return v->arch == target && static_cast<bool>(runnable(op, *v, p, target));
  });
}

Node view_node(ValueId base, ValueId view, const Region& region) {
  return {.name = {},
          .op = "view",
          .inputs = {base},
          .outputs = {view},
          .attrs = {{"strides", region.strides}, {"offset", region.offset}}};
}

std::string layer_name(const Graph& g, const std::string& stem) {
  std::string name = stem;
  const auto taken = [&] {
    return std::any_of(g.nodes.begin(), g.nodes.end(), [&](const Node& n) { return n.name == name; });
  };
  for (int i = 2; taken(); ++i) name = cat(stem, "_", i);
  return name;
}

}  // namespace tessera
