// SPDX-License-Identifier: Apache-2.0
// A checkpoint: a folder with config.json and weights as safetensors (model.safetensors.index.json says which files
// where there is one). It gives named tensors, and the weights of linear layers with their type whatever the layout:
// plain floats, or one of checkpoints/layouts.inc, told by hf_quant_config.json or config.json's quantization_config.
// Codes and scales of quantized weights are handed out bit for bit as stored; only scales that a layout stores as a
// reciprocal, or in another float than the type has, are converted, in f32.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "import/checkpoints/checkpoint_tensors.h"
#include "types/quant_type.h"

namespace tessera {

// The weight of y = x w^T, w [outputs, inputs], as types/quantize_array.h has it, and what the layer asks of x.
struct LinearWeight {
  QuantType type;                    // plain weights: f32
  Bytes codes, scale, scale2;        // empty where the type has no such level
  std::optional<QuantType> input;    // type of x; none: as it comes
  std::optional<float> input_scale;  // of that type: its static scale, or its second level's
  std::vector<float> input_factors;  // x is multiplied by these first, one per column; empty: by nothing
};

class CheckpointLayout;

class Checkpoint {
 public:
  static Result<Checkpoint> open(const std::string& folder);
  // Plain tensors of no folder. `name`: what describe() says.
  static Checkpoint of(std::string name, nlohmann::json config, CheckpointTensors tensors);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  const nlohmann::json& config() const { return config_; }  // config.json, an object
  CheckpointTensors& tensors() { return tensors_; }
  const CheckpointTensors& tensors() const { return tensors_; }

  // `<module>.weight` and whatever the layout keeps beside it.
  Result<LinearWeight> linear(const std::string& module, int64_t outputs, int64_t inputs);

  // Every tensor was taken but those that match one of these names (`*` matches anything); the others are an error.
  // Returns the names that were left.
  Result<std::vector<std::string>> finish(const std::vector<std::string>& harmless) const;

  // "vit-base (ModelOpt NVFP4, model.safetensors)": the folder, the layout and the files.
  std::string describe() const;

 private:
  Checkpoint();
  std::string folder_;
  nlohmann::json config_;
  CheckpointTensors tensors_;
  std::unique_ptr<CheckpointLayout> layout_;
};

// A JSON file that holds an object.
Result<nlohmann::json> read_json_object(const std::string& path);

}  // namespace tessera
