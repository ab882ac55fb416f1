// SPDX-License-Identifier: Apache-2.0
// SigLIP's vision tower: patches with positions, pre-norm blocks with biases, tanh GELU, a norm at the end. All patches
// come out; there is no class token and no pooling.
#pragma once

#include <string>

#include "models/layer_builder.h"

namespace tessera {

struct SiglipSettings {
  int64_t image, patch, width, layers, heads, mlp;
  double eps;
  int64_t patches() const { return (image / patch) * (image / patch); }
};

// Tensors of the tower, and their shapes: for whoever checks that a checkpoint has them all.
std::vector<std::pair<std::string, Shape>> siglip_tensors(const std::string& module, const SiglipSettings& settings);

// images [n, 3, image, image] in [-1, 1] -> [n, patches, width]. `module`: "vision_tower.vision_model".
Result<ValueId> siglip_tower(LayerBuilder& layers, const std::string& module, const SiglipSettings& settings,
                             ValueId images);

}  // namespace tessera
