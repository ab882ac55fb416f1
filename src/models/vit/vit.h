// SPDX-License-Identifier: Apache-2.0
// Vision transformers in their plain form: patches by a convolution, learnt positions, pre-norm blocks with erf GELU, a
// linear head. Tokens: (image / patch)^2, and a class token in front where there is one; without it the head reads the
// mean of the tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "import/checkpoints/checkpoint.h"
#include "ir/graph.h"
#include "models/zoo.h"

namespace tessera {

struct VitConfig {
  std::string name;
  int64_t image, patch, width, depth, heads, mlp, classes = 1000;
  bool class_token = true;
  int64_t channels = 3;

  int64_t patches() const { return (image / patch) * (image / patch); }
  int64_t tokens() const { return patches() + (class_token ? 1 : 0); }
  int64_t parameters() const;
};

const std::vector<VitConfig>& vit_configs();

// From a checkpoint with the names of Hugging Face's ViTForImageClassification or of timm's VisionTransformer.
Result<Graph> vit_graph(Checkpoint& checkpoint, const FamilySizes& sizes);
std::vector<std::string> vit_harmless();

}  // namespace tessera
