// SPDX-License-Identifier: Apache-2.0
// The zoo: well-known architectures with seeded random weights, as ONNX files. They have the shapes and costs of the
// real models, and nothing to download. The same name and seed give the same bytes on every machine.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "import/checkpoints/checkpoint.h"
#include "ir/graph.h"
#include "models/random_weights.h"

namespace tessera {

struct ZooEntry {
  std::string name, what;  // "vit-b-16", "224 px, patch 16, 197 tokens ... 86.6 M parameters"
};

// Sizes that a model of the zoo may be given instead of its own, to see how times grow. 0: its own.
struct ZooSizes {
  int64_t image = 0;  // pixels along a side: the number of tokens follows
  int64_t depth = 0;  // blocks
};

// What a checkpoint leaves open of a graph.
struct FamilySizes {
  int64_t batch = 1;
  std::string graph = {};  // of a family that has several; empty: its only one
  // By name, as the family calls them (Family::sizes); those that are not there are the family's own choice.
  std::map<std::string, int64_t> named = {};
  int64_t get(const std::string& name, int64_t otherwise) const {
    const auto it = named.find(name);
    return it == named.end() ? otherwise : it->second;
  }
};

// A size that a family's graphs may be given. One with `words` is a choice: its number is the place of the word,
// counted from 1, and the first word is what the family does where nothing is said.
struct SizeName {
  const char *name, *what;  // "tokens", "new tokens in a run"
  std::vector<const char*> words = {};
};

// The graphs that make one answer of a model, and how often each runs, in order.
struct FamilySchedule {
  std::vector<std::string> graphs;
  std::vector<std::pair<std::string, int64_t>> runs;
  // Sizes that a graph may have a plan for each of several numbers of. Its states are then the front of those of the
  // largest, and graphs that are not named have those alone.
  std::map<std::string, std::vector<std::string>> buckets = {};
};

// A family of models: what a folder of this room offers.
struct Family {
  // Null: the zoo has none of it.
  std::vector<ZooEntry> (*entries)();
  // Bytes of a ModelProto. `name` is one of the entries. Sizes that the family cannot have are an error. A model that
  // is larger than an ONNX file may be writes its weights to `data` + ".data" and names that file; empty: is an error.
  Result<std::string> (*onnx)(const std::string& name, uint64_t seed, const ZooSizes& sizes, const std::string& data);
  // The graph whose weights a checkpoint holds, and the tensors that have no effect on it (`*` matches anything).
  Result<Graph> (*graph)(Checkpoint& checkpoint, const FamilySizes& sizes);
  std::vector<std::string> (*harmless)();
  std::vector<SizeName> sizes = {};
  // Null: one graph.
  Result<FamilySchedule> (*schedule)(Checkpoint& checkpoint, const FamilySizes& sizes) = nullptr;
  // What random weights of the family look like; an empty configuration is the published model. Null: it has none.
  Result<RandomModel> (*random)(const nlohmann::json& config) = nullptr;
};

std::vector<ZooEntry> zoo_entries();
// For the file `path`, if weights need one of their own beside it.
Result<std::string> zoo_onnx(const std::string& name, uint64_t seed, const ZooSizes& sizes = {},
                             const std::string& path = "");

}  // namespace tessera
