// SPDX-License-Identifier: Apache-2.0
#include "models/layer_builder.h"

namespace tessera {

ValueId LayerBuilder::input(const std::string& name, const Shape& shape, Element element) {
  Value v;
  v.name = name;
  v.type = {shape, element};
  b.graph().inputs.push_back(b.graph().add_value(std::move(v)));
  return b.graph().inputs.back();
}

Result<ValueId> LayerBuilder::constant(const std::string& name, const Shape& shape) {
  TS_ASSIGN(Bytes numbers, checkpoint_.tensors().take_f32(name, {shape}));
  return b.graph().add_constant(name, Type{shape, Element::f32}, std::move(numbers));
}

ValueId LayerBuilder::add_weight(const std::string& module, LinearWeight w, int64_t outputs, int64_t inputs) {
  Graph& g = b.graph();
  const auto add_scales = [&](const ScaleLevel& level, const char* suffix, Bytes bytes) {
    if (level.granularity == Granularity::kNone) return kNoValue;
    const Type type{{scale_count(level, outputs, inputs)}, level.element};
    return g.add_constant(cat(module, ".weight", suffix), type, std::move(bytes));
  };
  const ValueId scale = add_scales(w.type.scale, ".scale", std::move(w.scale));
  const ValueId scale2 = add_scales(w.type.scale2, ".scale2", std::move(w.scale2));
  const ValueId id = g.add_constant(module + ".weight", Type{{outputs, inputs}, w.type}, std::move(w.codes));
  g.at(id).scale = scale, g.at(id).scale2 = scale2;
  return id;
}

Result<ValueId> LayerBuilder::add_bias(const std::string& module, ValueId y, int64_t outputs) {
  TS_ASSIGN(const ValueId bias, constant(module + ".bias", {outputs}));
  return b.map("add", {y, bias}, module);
}

Result<ValueId> LayerBuilder::linear(const std::string& module, ValueId x, int64_t outputs, bool bias) {
  const int64_t inputs = b.shape(x).back();
  TS_ASSIGN(LinearWeight w, checkpoint_.linear(module, outputs, inputs));
  if (!w.input_factors.empty()) {
    const ValueId factors = b.graph().add_constant(module + ".pre_quant_scale", {inputs}, w.input_factors);
    TS_ASSIGN(x, b.map("mul", {x, factors}, module + ".pre_quant_scale"));
  }
  if (w.input) {
    ValueId scale = kNoValue, scale2 = kNoValue;
    if (w.input_scale)
      (w.input->dynamic ? scale2 : scale) = b.graph().add_constant(module + ".input_scale", {1}, {*w.input_scale});
    x = b.quantize(x, *w.input, scale, scale2, module + ".input");
    TS_ASSIGN(x, b.emit("copy", {x}, {}, module + ".input.decoded"));
  }
  const ValueId weight = add_weight(module, std::move(w), outputs, inputs);
  TS_ASSIGN(const ValueId y, b.emit("matmul", {x, weight}, {}, module));
  return bias ? add_bias(module, y, outputs) : Result<ValueId>(y);
}

Result<ValueId> LayerBuilder::layer_norm(const std::string& module, ValueId x, double eps) {
  const int64_t cols = b.shape(x).back();
  TS_ASSIGN(const ValueId gain, constant(module + ".weight", {cols}));
  TS_ASSIGN(const ValueId shift, constant(module + ".bias", {cols}));
  return b.emit("norm", {x, gain, shift}, {{"kind", std::string("layer")}, {"eps", eps}}, module);
}

Result<ValueId> LayerBuilder::patches(const std::string& module, ValueId image, int64_t patch_h, int64_t patch_w,
                                      int64_t width) {
  const Shape s = b.shape(image);
  const int64_t rows = s[2] / patch_h, cols = s[3] / patch_w, pixels = s[1] * patch_h * patch_w;
  TS_ASSIGN(const ValueId kernel, constant(module + ".weight", {width, s[1], patch_h, patch_w}));
  TS_ASSIGN(const ValueId weight, b.reshape(kernel, {width, pixels}));
  // [b, c, H, W] -> [b, c, h, ph, w, pw] -> [b, h, w, c, ph, pw]: the pixels of a patch in the order of the kernel's
  // weights.
  TS_ASSIGN(ValueId x, b.reshape(image, {s[0], s[1], rows, patch_h, cols, patch_w}));
  TS_ASSIGN(x, b.permute(x, {0, 2, 4, 1, 3, 5}));
  TS_ASSIGN(x, b.reshape(x, {s[0], rows * cols, pixels}, module + ".patches"));
  TS_ASSIGN(const ValueId y, b.emit("matmul", {x, weight}, {}, module));
  return add_bias(module, y, width);
}

}  // namespace tessera
