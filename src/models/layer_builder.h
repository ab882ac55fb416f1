// SPDX-License-Identifier: Apache-2.0
// Layers of a family's graph, each with its tensors taken from a checkpoint by the module's name; nodes have that name.
// The graph is f32 but for weights that the checkpoint holds in codes, which keep them; an input whose type the
// checkpoint states is rounded to it by a copy and decoded by another, as importers write it
// (rewrite/recognise/qdq.cc).
#pragma once

#include <string>

#include "import/checkpoints/checkpoint.h"
#include "ir/graph.h"
#include "ops/builder.h"

namespace tessera {

class LayerBuilder {
 public:
  LayerBuilder(Graph& graph, Checkpoint& checkpoint) : b(graph), checkpoint_(checkpoint) {
    graph.derived = checkpoint.tensors().derived();
  }

  // An input of the graph, the next one.
  ValueId input(const std::string& name, const Shape& shape, Element element);
  // A tensor of floats as an f32 constant.
  Result<ValueId> constant(const std::string& name, const Shape& shape);
  // y = x w^T + bias
  Result<ValueId> linear(const std::string& module, ValueId x, int64_t outputs, bool bias = true);
  Result<ValueId> layer_norm(const std::string& module, ValueId x, double eps);
  // image [b, c, h, w] -> [b, patches, width], by a convolution whose stride is its kernel, `patch_h` x `patch_w`.
  Result<ValueId> patches(const std::string& module, ValueId image, int64_t patch_h, int64_t patch_w, int64_t width);
  Result<ValueId> add(ValueId x, ValueId y, const std::string& name) { return b.map("add", {x, y}, name); }

  GraphBuilder b;

 private:
  ValueId add_weight(const std::string& module, LinearWeight weight, int64_t outputs, int64_t inputs);
  Result<ValueId> add_bias(const std::string& module, ValueId y, int64_t outputs);

  Checkpoint& checkpoint_;
};

}  // namespace tessera
