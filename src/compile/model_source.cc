// SPDX-License-Identifier: Apache-2.0
#include "compile/model_source.h"

#include "ir/check.h"
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
  if (family_) {
    if (!options.shapes.empty() || !options.states.empty())
      return usage_error("--shape and --state: a family has its inputs and states, leave them out");
    return family_->graph({.batch = batch, .tokens = options.tokens, .cache = options.cache});
  }
  if (options.tokens != 0 || options.cache != 0)
    return usage_error("--tokens and --cache are sizes of a family (--family); an ONNX model takes --shape");
  return onnx_->graph({.batch = batch, .own_batch = !options.exact, .shapes = options.shapes});
}

Result<Graph> ModelSource::canonical(int64_t batch, const LoadOptions& options) {
  for (const Known& k : known_) {
    if (k.batch == batch && k.options == options) return k.graph;
  }
  TS_ASSIGN(Graph graph, written(batch, options));
  TS_TRY(canonicalise(graph));
  if (!options.states.empty()) {
    TS_TRY(keep_caches(graph, options.states));
    TS_TRY(check(graph));
  }
  // Nodes and names alone are this graph's own; a build has a few batches.
  constexpr size_t kMostKnown = 16;
  if (known_.size() < kMostKnown) known_.push_back({batch, options, graph});
  return graph;
}

}  // namespace tessera
