// SPDX-License-Identifier: Apache-2.0
#include "import/checkpoints/layout.h"

#include <cmath>
#include <cstring>

#include "types/e4m3.h"

namespace tessera {

Bytes as_bytes(const std::vector<float>& numbers) {
  Buffer buffer(numbers.size() * sizeof(float));
  if (!numbers.empty()) std::memcpy(buffer.data(), numbers.data(), buffer.size());
  return Bytes::own(std::move(buffer));
}

Result<LinearWeight> plain_linear(CheckpointTensors& tensors, const std::string& module, int64_t outputs,
                                  int64_t inputs) {
  LinearWeight w;
  TS_ASSIGN(w.codes, tensors.take_f32(module + ".weight", {{outputs, inputs}}));
  return w;
}

Result<Bytes> take_e4m3(CheckpointTensors& tensors, const std::string& name, int64_t outputs, int64_t inputs) {
  TS_ASSIGN(Bytes codes, tensors.take(name, {{outputs, inputs}}, {SafetensorsType::F8_E4M3}));
  for (size_t i = 0; i < codes.size(); ++i) {
    if (!std::isnan(E4m3::decode(codes.data()[i]))) continue;
    return bad_input(cat("tensor '", name, "': code [", static_cast<int64_t>(i) / inputs, ",",
                         static_cast<int64_t>(i) % inputs, "] is NaN; weights must be finite"));
  }
  return codes;
}

Result<Bytes> take_e2m1(CheckpointTensors& tensors, const std::string& name, int64_t outputs, int64_t inputs) {
  if (inputs % 2 != 0)
    return bad_input(cat("tensor '", name, "': 4-bit codes of ", inputs, " columns would share bytes between rows"));
  return tensors.take(name, {{outputs, inputs / 2}}, {SafetensorsType::U8});
}

Result<Bytes> take_row_scales(CheckpointTensors& tensors, const std::string& name, Granularity granularity,
                              int64_t outputs) {
  const bool rows = granularity == Granularity::kChannel;
  TS_ASSIGN(const std::vector<float> scales,
            tensors.take_scales(name, rows ? std::vector<Shape>{{outputs, 1}, {outputs}}
                                           : std::vector<Shape>{Shape{}, Shape{1}, Shape{1, 1}}));
  return as_bytes(scales);
}

}  // namespace tessera
