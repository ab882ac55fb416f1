// SPDX-License-Identifier: Apache-2.0
// The one place that spells import -> rewrite -> precision -> lower -> plan. No running: ranges and golden values come
// from calibrate/ and verify/, as plain data.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"
#include "ir/ranges.h"
#include "plan/engine.h"
#include "plan/make_plan.h"
#include "precision/quantize.h"
#include "rewrite/keep_caches.h"

namespace tessera {

struct LoadOptions {
  bool exact = true;  // a model that fixes its batch must fix it to the one asked for
  // Whole shapes of inputs whose axes the model leaves open; before the batch, but a first size of 0 leaves that open.
  std::map<std::string, Shape> shapes;
  std::vector<StatePattern> states;  // inputs that a session keeps (rewrite/keep_caches.h)
  int64_t tokens = 0, cache = 0;     // of a family (models/zoo.h, FamilySizes)
  std::string family;                // of models/models.inc: `path` is a checkpoint's folder; empty: an ONNX file
};
// The model as written, with its batch fixed: no pass has seen it.
Result<Graph> import_model(const std::string& path, int64_t batch, const LoadOptions& options = {});
// An imported graph in canonical form, with its states.
Status prepare_model(Graph& graph, const LoadOptions& options);
// Reads a model with its batch fixed, and brings it to canonical form (f32, recognised, fused). A model that leaves its
// batch open gets `batch`.
Result<Graph> load_model(const std::string& path, int64_t batch, const LoadOptions& options = {});

struct LowerOptions {
  PlanOptions plan;
  QuantizeOptions types;
};
// The graph that a plan is made of: types given, and fused as kernels of the target take it. The graph is taken by
// value: each plan has its own.
Result<Graph> lower_graph(Graph graph, const LowerOptions& options);
// That, as a plan.
Result<Plan> lower(Graph graph, const LowerOptions& options, ConstantPool& pool);

// The model's own numbers, for whoever runs or measures it before types are chosen: f32 on the CPU, but for types that
// the graph states, whose roundings are part of the model. `as_reference`: the same by the references in f64.
Result<Plan> lower_in_f32(const Graph& graph, ConstantPool& pool, bool as_reference = false);

// Extent of the batch axis (first axis) of the graph's first input.
int64_t batch_of(const Graph& graph);

}  // namespace tessera
