// SPDX-License-Identifier: Apache-2.0
// Seeded random weights of a family: a checkpoint of no file, whose tensors are made when they are taken, or a folder
// that other programs read. Every number is one of bf16, so that a file of bf16 and one of f32 hold the same model.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "import/checkpoints/checkpoint.h"

namespace tessera {

struct RandomTensor {
  std::string name;
  Shape shape;
  float mean = 0, deviation = 1;
};

// What a configuration makes of a family.
struct RandomModel {
  nlohmann::json config;  // with every size in it
  std::vector<RandomTensor> tensors;
};

// Mean and deviation by what the name says it is: activations keep their size from layer to layer, norms stay near 1.
RandomTensor random_tensor(std::string name, Shape shape);

// `given` over `known`, which has every key that there may be; a key that it does not have is an error.
Result<nlohmann::json> completed_config(const nlohmann::json& known, const nlohmann::json& given);

Result<Checkpoint> random_checkpoint(const std::string& family, const RandomModel& model, uint64_t seed);

// Writes model.safetensors in f32 or bf16, and config.json; the folder is made where it is not there. Bytes written.
Result<int64_t> write_random_checkpoint(const RandomModel& model, uint64_t seed, SafetensorsType type,
                                        const std::string& folder);

}  // namespace tessera
