// SPDX-License-Identifier: Apache-2.0
#include "precision/layer_weights.h"

#include <algorithm>

namespace tessera {

bool is_linear_layer(const Graph& graph, const Node& node) {
  return node.op == "matmul" && node.inputs.size() > 1 && graph.at(node.inputs[1]).constant &&
         graph.at(node.inputs[1]).type.shape.size() == 2;
}

ValueId add_weight(Graph& graph, const std::string& name, const Shape& shape, const QuantType& type,
                   QuantizedArray arrays) {
  const int64_t cols = shape.back(), rows = elements(shape) / std::max<int64_t>(cols, 1);
  const auto add_scales = [&](const ScaleLevel& level, const char* suffix, Buffer& bytes) {
    if (level.granularity == Granularity::kNone) return kNoValue;
    return graph.add_constant(name + suffix, Type{{scale_count(level, rows, cols)}, level.element},
                              Bytes::own(std::move(bytes)));
  };
  const ValueId scale = add_scales(type.scale, ".scale", arrays.scale);
  const ValueId scale2 = add_scales(type.scale2, ".scale2", arrays.scale2);
  const ValueId id = graph.add_constant(cat(name, ".", info(type.element).name), Type{shape, type},
                                        Bytes::own(std::move(arrays.codes)));
  graph.at(id).scale = scale;
  graph.at(id).scale2 = scale2;
  return id;
}

bool has_24_zeros(const Graph& graph, ValueId weight) {
  const Value& value = graph.at(weight);
  const int64_t cols = value.type.shape.back(), rows = value.type.shape[0];
  if (cols < 4) return false;  // any such matrix would be
  std::vector<double> codes(static_cast<size_t>(cols));
  for (int64_t r = 0; r < rows; ++r) {
    // Scales are not zero: a number is where its code is.
    info(value.type.quant.element).decode_f64(value.data.data(), r * cols, cols, codes.data());
    for (int64_t c = 0; c < cols; c += 4) {
      const auto group = codes.begin() + c;
      if (std::count_if(group, group + std::min<int64_t>(4, cols - c), [](double x) { return x != 0; }) > 2)
        return false;
    }
  }
  return rows > 0;
}

std::vector<float> weight_numbers(const Graph& graph, ValueId weight) {
  const Value& value = graph.at(weight);
  const int64_t cols = value.type.shape.back(), count = elements(value.type.shape);
  const auto bytes_of = [&](ValueId id) -> const void* { return id == kNoValue ? nullptr : graph.at(id).data.data(); };
  std::vector<float> numbers(static_cast<size_t>(count));
  dequantize_array(value.type.quant, value.data.data(), bytes_of(value.scale), bytes_of(value.scale2),
                   count / std::max<int64_t>(cols, 1), cols, numbers.data());
  return numbers;
}

}  // namespace tessera
