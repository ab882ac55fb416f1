// SPDX-License-Identifier: Apache-2.0
#include "compile/compile.h"

#include <algorithm>

#include "base/refused_layers.h"
#include "compile/advise.h"
#include "lower/boundary.h"
#include "lower/drop_port_copies.h"
#include "lower/finish_heads.h"
#include "lower/fold_norms.h"
#include "lower/fuse_gate.h"
#include "lower/join_gathers.h"
#include "lower/join_layers.h"
#include "lower/keep_states.h"
#include "lower/merge_groups.h"
#include "lower/pad_heads.h"
#include "lower/pad_products.h"
#include "lower/pool_norms.h"
#include "lower/quantize_in_epilogue.h"
#include "lower/spell_attention.h"
#include "rewrite/unfuse.h"

namespace tessera {

Result<Graph> import_model(const std::string& path, int64_t batch, const LoadOptions& options) {
  TS_ASSIGN(ModelSource source, ModelSource::open(path, options.family, options.random));
  return source.written(batch, options);
}

Result<Graph> load_model(const std::string& path, int64_t batch, const LoadOptions& options) {
  TS_ASSIGN(ModelSource source, ModelSource::open(path, options.family, options.random));
  return source.canonical(batch, options);
}

Result<Graph> lower_graph(Graph graph, const LowerOptions& options) {
  QuantizeOptions types = options.types;
  types.target = options.plan.target;
  TS_TRY(fold_norms(graph, types.folded_norms, types.plain_norms));
  TS_TRY(quantize(graph, types));
  drop_port_copies(graph);
  const bool cuda = info(options.plan.target).device == DeviceKind::kCuda;
  if (cuda) TS_TRY(join_gathers(graph));  // before layers are joined, whose vectors are neighbours then
  TS_ASSIGN(const Precision* base, base_precision(types.precision));
  // Layers that are joined or take over copies are asked with the widths that they will have.
  TS_TRY(pad_heads(graph, options.plan.target));
  TS_TRY(spell_attention(graph, options.plan.target));
  TS_TRY(merge_groups(graph, options.plan.target, base->carrier));
  TS_TRY(pad_products(graph, options.plan.target, base->carrier));
  quantize_in_epilogue(graph, options.plan.target);
  TS_TRY(fuse_gate(graph, options.plan.target));
  unfuse(graph, options.plan.target, base->carrier);
  // The CPU keeps every value of the model: calibration looks at them.
  if (cuda) TS_TRY(join_layers(graph, options.plan.target));
  if (cuda) TS_TRY(pool_norms(graph, options.plan.target));
  keep_states(graph);
  if (cuda) TS_TRY(finish_heads(graph, options.plan.target));
  if (cuda) add_boundary_copies(graph);
  return graph;
}

namespace {

bool has_plan(const Graph& graph, const LowerOptions& options) {
  std::vector<EngineConstant> passing;
  ConstantPool constants(passing);
  const auto lowered = lower_graph(graph, options);
  return lowered.ok() && make_plan(lowered.value(), options.plan, constants).ok();
}

}  // namespace

Result<Plan> lower(Graph graph, const LowerOptions& options, ConstantPool& pool) {
  TS_ASSIGN(const Graph lowered, lower_graph(graph, options));
  auto plan = make_plan(lowered, options.plan, pool);
  const RefusedLayers& failures = plan.status().layers();
  if (plan.ok() || failures == nullptr) return plan;
  // What to do about it stands before the reasons, which may be many.
  std::string text = plan.status().message();
  text.insert(std::min(text.find('\n'), text.size()), advise(graph, options, *failures, has_plan));
  return refused(std::move(text), *failures);
}

Result<Plan> lower_in_f32(const Graph& graph, ConstantPool& pool, bool as_reference) {
  LowerOptions lowering;
  lowering.types.precision = "fp32";
  lowering.types.keep_stated = true;
  lowering.plan.target = Arch::cpu;
  lowering.plan.batch = batch_of(graph);
  lowering.plan.name = as_reference ? kGoldenPlan : "f32";
  lowering.plan.as_reference = as_reference;
  return lower(graph, lowering, pool);
}

int64_t batch_of(const Graph& graph) {
  if (graph.inputs.empty() || graph.at(graph.inputs[0]).type.shape.empty()) return 1;
  return graph.at(graph.inputs[0]).type.shape[0];
}

}  // namespace tessera
