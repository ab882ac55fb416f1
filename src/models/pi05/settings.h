// SPDX-License-Identifier: Apache-2.0
// What a checkpoint of π0 or π0.5 says of itself: sizes from the shapes of its tensors, the rest from config.json as
// openpi, lerobot and our own small models write it, or the published model's.
#pragma once

#include <string>

#include "import/checkpoints/checkpoint.h"
#include "models/gemma_layers.h"
#include "models/random_weights.h"
#include "models/siglip_tower.h"

namespace tessera {

struct PolicySettings {
  bool pi05 = true;  // else π0: a state token, time in the action tokens, plain norms
  SiglipSettings vision;
  GemmaSettings language, expert;
  int64_t layers, vocabulary, action, horizon, prompt, steps;
  double rope_base, min_period, max_period;
  std::string prefix;     // of every tensor's name: "" (openpi) or "model." (lerobot)
  std::string embedding;  // the table of tokens, which some files keep under its head's name

  std::string paligemma() const { return prefix + "paligemma_with_expert.paligemma.model."; }
  std::string gemma_expert() const { return prefix + "paligemma_with_expert.gemma_expert.model."; }
};

// Every tensor that the model needs is there, in its shape; otherwise one sentence says which is not.
Result<PolicySettings> read_policy_settings(Checkpoint& checkpoint);

// Every tensor that the model needs, with its shape.
std::vector<std::pair<std::string, Shape>> policy_tensors(const PolicySettings& settings);
// Random weights in openpi's names. The configuration has the keys of our own small models; what it leaves out is the
// published model's.
Result<RandomModel> random_policy(const nlohmann::json& config);

}  // namespace tessera
