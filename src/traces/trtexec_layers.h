// SPDX-License-Identifier: Apache-2.0
// Layers of a TensorRT engine, as its inspector (trtexec --exportLayerInfo) describes them.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "traces/classify.h"
#include "traces/profile.h"

namespace tessera {

struct EngineTensor {
  std::vector<int64_t> dims = {};      // empty where one is dynamic
  std::optional<double> numbers = {};  // product of dims
  std::string precision = {};          // "fp16" ...; empty: whole numbers, or not known
  double bits = 0;                     // of one number; 0: not known
};

struct EngineLayer {
  std::string name, type = {}, tactic = {};
  std::vector<EngineTensor> inputs = {}, outputs = {};
  bool detailed = false;  // more than its name is known
};
using EngineLayers = std::map<std::string, EngineLayer>;

Result<EngineLayers> parse_engine_layers(const nlohmann::json& j);

// Name, class, precision, and flops and bytes where the shapes tell them, from what is known of the layer.
void describe(const EngineLayer& layer, const Rules& rules, KernelTime& kernel);

}  // namespace tessera
