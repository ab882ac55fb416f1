// SPDX-License-Identifier: Apache-2.0
// The zoo: well-known architectures with seeded random weights, as ONNX files. They have the shapes and costs of the
// real models, and nothing to download. The same name and seed give the same bytes on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "import/checkpoints/checkpoint.h"
#include "ir/graph.h"

namespace tessera {

struct ZooEntry {
  std::string name, what;  // "vit-b-16", "224 px, patch 16, 197 tokens ... 86.6 M parameters"
};

// Sizes that a model of the zoo may be given instead of its own, to see how times grow. 0: its own.
struct ZooSizes {
  int64_t image = 0;  // pixels along a side: the number of tokens follows
  int64_t depth = 0;  // blocks
};

// Sizes of a graph that its checkpoint leaves open. 0: the family's own choice, and the only one where it has none.
struct FamilySizes {
  int64_t batch = 1;
  int64_t tokens = 0;  // new ones in a run
  int64_t cache = 0;   // rows of KV caches
};

// A family of models: what a folder of this room offers.
struct Family {
  std::vector<ZooEntry> (*entries)();
  // Bytes of a ModelProto. `name` is one of the entries. Sizes that the family cannot have are an error. A model that
  // is larger than an ONNX file may be writes its weights to `data` + ".data" and names that file; empty: is an error.
  Result<std::string> (*onnx)(const std::string& name, uint64_t seed, const ZooSizes& sizes, const std::string& data);
  // The graph whose weights a checkpoint holds, and the tensors that have no effect on it (`*` matches anything).
  Result<Graph> (*graph)(Checkpoint& checkpoint, const FamilySizes& sizes);
  std::vector<std::string> (*harmless)();
};

std::vector<ZooEntry> zoo_entries();
// For the file `path`, if weights need one of their own beside it.
Result<std::string> zoo_onnx(const std::string& name, uint64_t seed, const ZooSizes& sizes = {},
                             const std::string& path = "");

}  // namespace tessera
