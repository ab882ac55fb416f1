// SPDX-License-Identifier: Apache-2.0
// A layout: how a tool that quantizes models names and stores the weights of linear layers. One file per layout;
// layouts.inc lists them. Each looks at the configuration files and, where they speak of it, reads weights.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "import/checkpoints/checkpoint.h"
#include "import/checkpoints/json_fields.h"

namespace tessera {

class CheckpointLayout {
 public:
  virtual ~CheckpointLayout() = default;
  virtual std::string describe() const = 0;  // "ModelOpt NVFP4"
  virtual Result<LinearWeight> linear(CheckpointTensors& tensors, const std::string& module, int64_t outputs,
                                      int64_t inputs) const = 0;
};

// The files that say how weights are stored; null where there is none, or where it does not speak of that.
struct LayoutConfig {
  nlohmann::json quantization;  // config.json: quantization_config
  nlohmann::json hf_quant;      // hf_quant_config.json
};
using OpenedLayout = Result<std::unique_ptr<CheckpointLayout>>;  // null: not this layout

// w [outputs, inputs] in floats of any width, as f32.
Result<LinearWeight> plain_linear(CheckpointTensors& tensors, const std::string& module, int64_t outputs,
                                  int64_t inputs);

// Codes of e4m3, one per byte; a NaN among them is an error (tools that do not clamp leave them).
Result<Bytes> take_e4m3(CheckpointTensors& tensors, const std::string& name, int64_t outputs, int64_t inputs);
// Codes of e2m1, two per byte, the even column in the low nibble.
Result<Bytes> take_e2m1(CheckpointTensors& tensors, const std::string& name, int64_t outputs, int64_t inputs);
// Scales that cover a tensor or each of its rows, as f32.
Result<Bytes> take_row_scales(CheckpointTensors& tensors, const std::string& name, Granularity granularity,
                              int64_t outputs);
Bytes as_bytes(const std::vector<float>& numbers);

}  // namespace tessera
