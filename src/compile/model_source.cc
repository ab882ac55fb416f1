// SPDX-License-Identifier: Apache-2.0
#include "compile/model_source.h"

#include "rewrite/canonicalise.h"

namespace tessera {

Result<ModelSource> ModelSource::open(const std::string& path, const std::string& family) {
  ModelSource source;
  if (family.empty()) {
    TS_ASSIGN(source.onnx_, OnnxFile::open(path));
  } else {
    TS_ASSIGN(source.family_, FamilyCheckpoint::open(family, path));
  }
  return source;
}

Result<Graph> ModelSource::written(int64_t batch, const LoadOptions& options) {
  if (onnx_) return onnx_->graph({.batch = batch, .own_batch = !options.exact, .shapes = options.shapes});
  if (!options.shapes.empty()) return usage_error("--shape: the inputs of a family have their shapes, leave it out");
  return family_->graph(batch);
}

Result<Graph> ModelSource::canonical(int64_t batch, const LoadOptions& options) {
  for (const Known& k : known_) {
    if (k.batch == batch && k.exact == options.exact && k.shapes == options.shapes) return k.graph;
  }
  TS_ASSIGN(Graph graph, written(batch, options));
  TS_TRY(canonicalise(graph));
  // Nodes and names alone are this graph's own; a build has a few batches.
  constexpr size_t kMostKnown = 16;
  if (known_.size() < kMostKnown) known_.push_back({batch, options.exact, options.shapes, graph});
  return graph;
}

}  // namespace tessera
