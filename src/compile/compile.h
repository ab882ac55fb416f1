// SPDX-License-Identifier: Apache-2.0
// The one place that spells import -> rewrite -> precision -> lower -> plan. No running: ranges and golden values come
// from calibrate/ and verify/, as plain data.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "compile/model_source.h"
#include "ir/graph.h"
#include "ir/ranges.h"
#include "plan/engine.h"
#include "plan/make_plan.h"
#include "precision/quantize.h"

namespace tessera {

// One graph of a model (compile/model_source.h), as written: no pass has seen it.
Result<Graph> import_model(const std::string& path, int64_t batch, const LoadOptions& options = {});
// The same in canonical form.
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
