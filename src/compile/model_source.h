// SPDX-License-Identifier: Apache-2.0
// A model that is read once and gives a graph for each batch. Its graphs share the constants of the file, which stay
// mapped, and whatever is made of them: folded, transposed, in codes, packed (ir/derived_constants.h). So a second
// batch costs the passes over its nodes, and no weight is read, converted or held twice.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "import/onnx/onnx.h"
#include "ir/graph.h"
#include "models/family.h"
#include "rewrite/keep_caches.h"
#include "rewrite/port_types.h"

namespace tessera {

struct LoadOptions {
  bool exact = true;  // a model that fixes its batch must fix it to the one asked for
  // Whole shapes of inputs whose axes the model leaves open; before the batch, but a first size of 0 leaves that open.
  std::map<std::string, Shape> shapes;
  std::vector<StatePattern> states;  // inputs that a session keeps (rewrite/keep_caches.h)
  std::vector<PortType> ports = {};  // of inputs and outputs that are not f32 outside (rewrite/port_types.h)
  std::string family;                // of models/models.inc: the path is a checkpoint's folder; empty: an ONNX file
  std::string graph;                 // of a family that has several (models/zoo.h, FamilySizes)
  std::map<std::string, int64_t> sizes;
  std::optional<uint64_t> random = {};  // seed of a family's weights: the path is a config.json, or empty
  bool operator==(const LoadOptions&) const = default;
};

class ModelSource {
 public:
  // `family` and `random` as in LoadOptions.
  static Result<ModelSource> open(const std::string& path, const std::string& family = "",
                                  std::optional<uint64_t> random = {});

  // The model as written, with its batch fixed: no pass has seen it. A model that leaves its batch open gets `batch`.
  Result<Graph> written(int64_t batch, const LoadOptions& options = {});
  // In canonical form: f32, recognised, fused. The first few are kept: a build asks for each batch several times.
  Result<Graph> canonical(int64_t batch, const LoadOptions& options = {});
  // The graphs of a family that has several; empty for every other model.
  Result<FamilySchedule> schedule(const std::map<std::string, int64_t>& sizes);

 private:
  // With the ports that it has by itself.
  Result<Graph> imported(int64_t batch, const LoadOptions& options);
  // Whether the model leaves this axis of an input of its graph open.
  bool is_open(const Value& input, size_t axis) const;
  // That nothing in the model but its caches and masks depends on how long its past is (check_positions.h).
  Status check_lengths(int64_t batch, const LoadOptions& options, const Graph& written, const Graph& kept);
  struct Known {
    int64_t batch;
    LoadOptions options;
    Graph graph;
  };
  std::optional<OnnxFile> onnx_;
  std::optional<FamilyCheckpoint> family_;
  std::vector<Known> known_;
};

}  // namespace tessera
