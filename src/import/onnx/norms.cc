// SPDX-License-Identifier: Apache-2.0
// Norms over the last axes, over the pixels of images and by channels, and Softmax.
#include <algorithm>
#include <utility>

#include "import/onnx/convert.h"

namespace tessera {
namespace {

Result<Values> softmax(OnnxCall& c) {
  TS_ASSIGN(ValueId x, c.operand(0));
  const bool flattened = c.node.opset < 13;  // before opset 13: all axes from `axis` on together
  TS_ASSIGN(const int64_t axis_given, c.integer("axis", flattened ? 1 : -1));
  const Shape shape = c.b.shape(x);
  TS_ASSIGN(const size_t axis, resolve_axis(axis_given, shape.size()));
  if (axis + 1 == shape.size()) return single(c.b.emit("softmax", {x}, {}, c.name()));
  if (flattened) {
    const auto middle = shape.begin() + static_cast<std::ptrdiff_t>(axis);
    TS_ASSIGN(x, c.b.reshape(x, {elements(Shape(shape.begin(), middle)), elements(Shape(middle, shape.end()))}));
    TS_ASSIGN(x, c.b.emit("softmax", {x}, {}, c.name()));
    return single(c.b.reshape(x, shape));
  }
  std::vector<int64_t> swap;
  for (size_t i = 0; i < shape.size(); ++i) swap.push_back(static_cast<int64_t>(i));
  std::swap(swap[axis], swap.back());
  TS_ASSIGN(x, c.b.permute(x, swap));
  TS_ASSIGN(x, c.b.emit("softmax", {x}, {}, c.name()));
  return single(c.b.permute(x, swap));
}

Result<Values> normalise(OnnxCall& c, const std::string& kind) {
  TS_ASSIGN(ValueId x, c.operand(0));
  TS_ASSIGN(const int64_t axis_given, c.integer("axis", -1));
  TS_ASSIGN(const double eps, c.number("epsilon", 1e-5));
  const Shape shape = c.b.shape(x);
  TS_ASSIGN(const size_t axis, resolve_axis(axis_given, shape.size()));
  const Shape inner(shape.begin() + static_cast<std::ptrdiff_t>(axis), shape.end());
  Shape rows(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(axis));
  rows.push_back(elements(inner));
  Values operands = {kNoValue, kNoValue, kNoValue};
  for (size_t i : {1, 2}) {
    if (!c.has(i)) continue;
    TS_ASSIGN(const ValueId full, c.b.expand(c.in[i], inner));
    TS_ASSIGN(operands[i], c.b.reshape(full, {elements(inner)}));
  }
  while (operands.back() == kNoValue && operands.size() > 1) operands.pop_back();
  TS_ASSIGN(operands[0], c.b.reshape(x, rows));
  const std::string name = c.has(1) ? c.name_by(1) : c.name();
  TS_ASSIGN(const ValueId y, c.b.emit("norm", operands, {{"kind", kind}, {"eps", eps}}, name));
  return single(c.b.reshape(y, shape));
}

// A vector of as many numbers as x has channels, as an operand of maps over x [b, channels, ...].
Result<ValueId> by_channel(OnnxCall& c, ValueId x, ValueId vector) {
  if (c.b.rank(x) < 2 || c.b.shape(vector) != Shape{c.b.shape(x)[1]})
    return bad_input(
        cat(c.node.op, " of ", to_string(c.b.shape(x)), " with a vector of ", to_string(c.b.shape(vector))));
  Shape along(c.b.rank(x) - 1, 1);
  along[0] = c.b.shape(x)[1];
  return c.b.reshape(vector, along);
}

// x a + t by channels.
Result<ValueId> scale_and_shift(OnnxCall& c, ValueId x, ValueId a, ValueId t) {
  TS_ASSIGN(const ValueId scale, by_channel(c, x, a));
  TS_ASSIGN(const ValueId shift, by_channel(c, x, t));
  TS_ASSIGN(const ValueId scaled, c.b.map("mul", {x, scale}, c.name()));
  return c.b.map("add", {scaled, shift}, c.name());
}

// The layer whose result x shows, channels first, and nobody else reads.
struct LayerBefore {
  Node product;             // matmul or conv2d with a constant weight [channels, k]
  ValueId bias = kNoValue;  // added to its result
  Region shown;             // x in the result
};

std::optional<LayerBefore> layer_before(OnnxCall& c, ValueId x) {
  const Graph& g = c.b.graph();
  const std::string& name = c.node.inputs[0];
  const auto readers = c.file.readers.find(name);
  if (c.file.outputs.contains(name) || readers == c.file.readers.end() || readers->second != 1) return std::nullopt;
  const Place place = c.b.place(x);
  LayerBefore out{.product = {}, .shown = place.region};
  const auto maker = [&](ValueId v) {
    const auto node = std::find_if(g.nodes.rbegin(), g.nodes.rend(), [&](const Node& n) { return n.outputs[0] == v; });
    return node == g.nodes.rend() ? nullptr : &*node;
  };
  const Node* node = maker(place.base);
  const int64_t channels = c.b.shape(x)[1];
  if (node != nullptr && node->op == "map" && node->attrs.word("fn") == "add" && node->inputs.size() == 2 &&
      g.at(node->inputs[1]).constant && c.b.shape(node->inputs[1]) == Shape{channels}) {
    out.bias = node->inputs[1];
    node = maker(node->inputs[0]);
  }
  if (node == nullptr || (node->op != "matmul" && node->op != "conv2d") || node->inputs.size() != 2)
    return std::nullopt;
  const Value& w = g.at(node->inputs[1]);
  const bool whole = elements(c.b.shape(x)) == elements(g.at(place.base).type.shape) && place.region.offset == 0;
  if (!w.constant || w.type.quant != QuantType(Element::f32) || w.type.shape.size() != 2 ||
      w.type.shape[0] != channels || g.at(node->outputs[0]).type.shape.back() != channels || !whole ||
      (channels > 1 && place.region.strides[1] != 1))
    return std::nullopt;
  out.product = *node;
  return out;
}

// The layer with its weights and its bias changed, so that it gives x a + t; kNoValue where there is no such layer.
Result<ValueId> folded_into_layer(OnnxCall& c, ValueId x, ValueId a, ValueId t) {
  std::optional<LayerBefore> layer = layer_before(c, x);
  if (!layer || !c.b.graph().at(a).constant || !c.b.graph().at(t).constant) return kNoValue;
  Node node = std::move(layer->product);
  const ValueId w = node.inputs[1];
  const std::string name = c.b.graph().at(w).name;
  TS_ASSIGN(const ValueId rows, c.b.reshape(a, {c.b.shape(a)[0], 1}));
  TS_ASSIGN(node.inputs[1], c.b.map("mul", {w, rows}, name));
  if (!c.b.graph().at(node.inputs[1]).constant) return kNoValue;  // too large to be folded
  node.outputs.clear();
  ValueId shift = t;
  if (layer->bias != kNoValue) {
    TS_ASSIGN(const ValueId scaled, c.b.map("mul", {layer->bias, a}, c.name()));
    TS_ASSIGN(shift, c.b.map("add", {scaled, t}, c.name()));
  }
  TS_ASSIGN(ValueId y, c.b.emit(std::move(node)));
  TS_ASSIGN(y, c.b.map("add", {y, shift}, c.name()));
  return c.b.view(y, layer->shown);
}

// Mean and variance of a constant's own channels, in the place of those that the file gives: standardised weights are
// exported so.
Status own_statistics(OnnxCall& c, ValueId x, Values& of) {
  if (!c.b.is_constant(x)) return bad_input("training_mode is set; only inference is supported: export in eval mode");
  if (c.b.rank(x) < 2) return bad_input(cat("BatchNormalization of ", to_string(c.b.shape(x))));
  std::vector<bool> reduced(c.b.rank(x), true);
  reduced[1] = false;
  TS_ASSIGN(of[2], reduce_axes(c, x, reduced, false, "mean"));
  TS_ASSIGN(const ValueId mean, by_channel(c, x, of[2]));
  TS_ASSIGN(const ValueId about_mean, c.b.map("sub", {x, mean}, c.name()));
  TS_ASSIGN(const ValueId squares, c.b.map("mul", {about_mean, about_mean}, c.name()));
  TS_ASSIGN(of[3], reduce_axes(c, squares, reduced, false, "mean"));
  return {};
}

// y = x a + t with a = scale / sqrt(var + eps) and t = bias - mean a: part of the layer before it where that can be.
Result<Values> batch_norm(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  Values of;
  for (size_t i = 1; i < 5; ++i) {
    TS_ASSIGN(const ValueId v, c.operand(i));
    of.push_back(v);
  }
  TS_ASSIGN(const double eps, c.number("epsilon", 1e-5));
  TS_ASSIGN(const int64_t training, c.integer("training_mode", 0));
  if (training != 0) TS_TRY(own_statistics(c, x, of));
  for (const ValueId v : of) TS_TRY(by_channel(c, x, v).status());
  TS_ASSIGN(ValueId deviation, c.b.map("add", {of[3], c.b.scalar(eps, c.b.element(of[3]))}, c.name()));
  TS_ASSIGN(deviation, c.b.map("sqrt", {deviation}, c.name()));
  TS_ASSIGN(const ValueId a, c.b.map("div", {of[0], deviation}, c.name()));
  TS_ASSIGN(const ValueId moved, c.b.map("mul", {of[2], a}, c.name()));
  TS_ASSIGN(const ValueId t, c.b.map("sub", {of[1], moved}, c.name()));
  TS_ASSIGN(const ValueId folded, folded_into_layer(c, x, a, t));
  if (folded != kNoValue) return Values{folded};
  return single(scale_and_shift(c, x, a, t));
}

// x [b, channels, ...] in groups of channels, each of mean 0 and variance 1 over its channels and pixels.
Result<ValueId> normalise_groups(OnnxCall& c, ValueId x, int64_t groups) {
  const Shape shape = c.b.shape(x);
  TS_ASSIGN(const double eps, c.number("epsilon", 1e-5));
  if (shape.size() < 2 || groups < 1 || shape[1] % groups != 0 || elements(shape) < 1)
    return bad_input(cat(groups, " groups of the channels of ", to_string(shape)));
  TS_ASSIGN(const ValueId rows, c.b.reshape(x, {shape[0], groups, elements(shape) / shape[0] / groups}, c.name()));
  TS_ASSIGN(const ValueId y, c.b.emit("norm", {rows}, {{"kind", std::string("layer")}, {"eps", eps}}, c.name()));
  return c.b.reshape(y, shape);
}

Result<Values> instance_norm(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId a, c.operand(1));
  TS_ASSIGN(const ValueId t, c.operand(2));
  TS_TRY(by_channel(c, x, a).status());
  TS_ASSIGN(const ValueId y, normalise_groups(c, x, c.b.shape(x)[1]));
  return single(scale_and_shift(c, y, a, t));
}

Result<Values> group_norm(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(ValueId a, c.operand(1));
  TS_ASSIGN(ValueId t, c.operand(2));
  TS_ASSIGN(const int64_t groups, c.integer("num_groups", 0));
  TS_ASSIGN(const ValueId y, normalise_groups(c, x, groups));
  const int64_t channels = c.b.shape(x)[1];
  for (ValueId* v : {&a, &t}) {  // opset 18: a number for each group
    if (c.b.shape(*v) != Shape{groups} || groups == channels) continue;
    TS_ASSIGN(*v, c.b.unsqueeze(*v, {1}));
    TS_ASSIGN(*v, c.b.expand(*v, {groups, channels / groups}));
    TS_ASSIGN(*v, c.b.reshape(*v, {channels}));
  }
  return single(scale_and_shift(c, y, a, t));
}

Result<Values> layer_norm(OnnxCall& c) { return normalise(c, "layer"); }
Result<Values> rms_norm(OnnxCall& c) { return normalise(c, "rms"); }

}  // namespace

std::span<const OnnxOp> onnx_norm_ops() {
  static const OnnxOp kOps[] = {
      {"Softmax", softmax},
      {"LayerNormalization", layer_norm},
      {"RMSNormalization", rms_norm},
      {"BatchNormalization", batch_norm},
      {"InstanceNormalization", instance_norm},
      {"GroupNormalization", group_norm},
  };
  return kOps;
}

}  // namespace tessera
