// SPDX-License-Identifier: Apache-2.0
// Families by name: the canonical graph of a model whose weights a checkpoint holds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"
#include "models/zoo.h"

namespace tessera {

std::vector<std::string> family_names();
// "tokens: new tokens in a run; ..." of every family that has sizes.
std::string family_sizes();
// The number of a size as a user writes it: "16", or a word of a choice ("rope", "jax").
Result<int64_t> parse_family_size(const std::string& family, const std::string& name, const std::string& word);
// Random weights of the family by a configuration file; an empty path: the published model.
Result<RandomModel> random_model(const std::string& family, const std::string& config);
// A checkpoint of a family, opened once: its graphs share their constants and what is made of them.
class FamilyCheckpoint {
 public:
  static Result<FamilyCheckpoint> open(const std::string& family, const std::string& folder);
  // The same of seeded random weights; `config` as for random_model.
  static Result<FamilyCheckpoint> random(const std::string& family, const std::string& config, uint64_t seed);
  // f32 but for weights that the checkpoint holds in codes (models/layer_builder.h); the batch is fixed. The graph's
  // name says which files it was made from, and which of their tensors the family knows to have no effect; any other
  // tensor that it does not read is an error.
  Result<Graph> graph(const FamilySizes& sizes);
  // Empty where the family has one graph.
  Result<FamilySchedule> schedule(const FamilySizes& sizes);

 private:
  Status check(const FamilySizes& sizes) const;
  FamilyCheckpoint(const Family& family, std::string folder, Checkpoint checkpoint)
      : family_(&family), folder_(std::move(folder)), checkpoint_(std::move(checkpoint)) {}
  const Family* family_;
  std::string folder_;
  Checkpoint checkpoint_;
};

}  // namespace tessera
