// SPDX-License-Identifier: Apache-2.0
// What a ViT checkpoint's config.json and the shapes of its tensors say about the model.
#pragma once

#include <string>

#include "import/checkpoints/checkpoint.h"
#include "models/vit/names.h"

namespace tessera {

struct VitSettings {
  const VitNames* names = nullptr;
  int64_t channels = 3, image_h = 0, image_w = 0, patch_h = 0, patch_w = 0;
  int64_t width = 0, depth = 0, heads = 0, mlp = 0, classes = 0;
  bool class_token = true, qkv_bias = true, mean_of_tokens = false;
  double eps = 1e-6;
  std::string act = "gelu_erf";  // of ir/unary.inc

  int64_t patches() const { return (image_h / patch_h) * (image_w / patch_w); }
  int64_t tokens() const { return patches() + (class_token ? 1 : 0); }
};

// Names of a block's module: "blocks.{}.norm1" -> "blocks.3.norm1".
std::string name_in_block(const char* pattern, int64_t block);

// Settings that would make another function than the one we build are errors, whatever their name.
Result<VitSettings> read_vit_settings(const Checkpoint& checkpoint);

}  // namespace tessera
