// SPDX-License-Identifier: Apache-2.0
#include "sensitivity/sensitivity.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/progress.h"
#include "base/progress_sink.h"
#include "compile/compile.h"
#include "precision/roles.h"
#include "runtime/executor.h"

namespace tessera {
namespace {

bool is_float_port(const Plan& plan, const Port& port) {
  return info(plan.tensors[static_cast<size_t>(port.tensor)].desc.type.element).kind == ElementKind::kFloat;
}

Result<Plan> plan_in(const Graph& graph, const QuantizeOptions& types, Engine& engine) {
  ConstantPool pool(engine.constants);
  LowerOptions lowering;
  lowering.types = types;
  lowering.plan.target = Arch::cpu;
  lowering.plan.batch = batch_of(graph);
  return lower(graph, lowering, pool);
}

}  // namespace

Result<Trials> Trials::make(const Graph& graph, Samples samples) {
  Trials t;
  t.graph_ = &graph;
  t.samples_ = std::move(samples);
  QuantizeOptions fp32;
  fp32.precision = "fp32";
  fp32.keep_stated = true;
  TS_ASSIGN(t.want_, t.run(graph, fp32));
  if (std::all_of(t.want_.begin(), t.want_.end(), [](const std::vector<double>& port) { return port.empty(); }))
    return bad_input("the model has no floating-point output to compare");
  for (const std::vector<double>& port : t.want_) {
    if (!std::all_of(port.begin(), port.end(), [](double x) { return std::isfinite(x); }))
      return bad_input("the fp32 model gives NaN or Inf on these samples: there is nothing to compare with");
  }
  return t;
}

Result<Trials::Outputs64> Trials::run(const Graph& graph, const QuantizeOptions& types) const {
  Engine engine;
  TS_ASSIGN(const Plan plan, plan_in(graph, types, engine));
  TS_ASSIGN(const std::unique_ptr<Executor> executor, bind(engine, plan));
  Outputs outputs = make_outputs(plan);
  Outputs64 all(plan.outputs.size());
  for (int64_t first = 0; first < samples_.count; first += plan.batch) {
    const Filled inputs = fill_inputs(plan, samples_, first);
    TS_TRY(executor->run(inputs.pointers, outputs.pointers));
    const int64_t counted = std::min(plan.batch, samples_.count - first);
    for (size_t i = 0; i < plan.outputs.size(); ++i) {
      if (!is_float_port(plan, plan.outputs[i])) continue;
      std::vector<double> numbers = decode_output(plan, i, outputs.pointers[i]);
      numbers.resize(numbers.size() / static_cast<size_t>(plan.batch) * static_cast<size_t>(counted));
      all[i].insert(all[i].end(), numbers.begin(), numbers.end());
    }
  }
  return all;
}

Result<Closeness> Trials::measure(const Graph& graph, const QuantizeOptions& types) const {
  TS_ASSIGN(const Outputs64 got, run(graph, types));
  Closeness farthest;
  bool first = true;
  for (size_t i = 0; i < got.size(); ++i) {
    if (want_[i].empty()) continue;
    const Closeness c = compare(got[i], want_[i], samples_.count);
    if (first || !(c.cosine_mean >= farthest.cosine_mean)) farthest = c;
    first = false;
  }
  return farthest;
}

std::vector<TrialLayer> layers_of_blocks(Graph graph) {
  assign_roles(graph);
  std::vector<TrialLayer> layers;
  std::map<std::string, size_t> at;
  for (const Node& n : graph.nodes) {
    if (!is_linear(graph, n) || !in_block(n)) continue;
    const auto [it, fresh] = at.emplace(n.name, layers.size());
    if (fresh) layers.push_back({.name = n.name, .role = n.role});
    layers[it->second].weights += elements(graph.at(n.inputs[1]).type.shape);
  }
  return layers;
}

double weight_bytes(const Precision& precision, int64_t weights) {
  const auto bits = [](const ScaleLevel& level) {
    return level.granularity == Granularity::kBlock ? static_cast<double>(info(level.element).bits) / level.block : 0.0;
  };
  const double each =
      info(precision.weight.element).bits + bits(precision.weight.scale) + bits(precision.weight.scale2);
  return each / 8 * static_cast<double>(weights);
}

Result<Sensitivity> measure_sensitivity(const Trials& trials, const SensitivityOptions& options) {
  TS_ASSIGN(const Precision* precision, base_precision(options.types.precision));
  if (!precision->weight.scaled())
    return usage_error(cat("sensitivity to ", options.types.precision,
                           ": it has no scales; ask for fp8, nvfp4 or another with scales"));
  const Precision& carrier = plain_precision(precision->carrier);
  std::vector<TrialLayer> layers = layers_of_blocks(trials.graph());
  if (layers.empty()) return refused("this model has no linear layer in a block to rank");
  const bool attention = attention_has_codes(options.types.attention);
  std::optional<Progress> progress;
  if (!options.quiet) progress.emplace("measuring", 2 * static_cast<int64_t>(layers.size() + (attention ? 1 : 0)) + 2);
  const auto measured = [&](const QuantizeOptions& types) -> Result<Closeness> {
    TS_TRY(check_cancelled());
    auto closeness = trials.measure(types);
    if (progress) progress->advance();
    return closeness;
  };
  QuantizeOptions none = options.types;
  none.precision = carrier.name;
  none.attention.clear();
  Sensitivity s;
  s.samples = trials.samples();
  TS_ASSIGN(s.carrier, measured(none));
  TS_ASSIGN(s.all, measured(options.types));
  const auto try_both = [&](LayerCost& cost, const QuantizeOptions& alone, const QuantizeOptions& without) -> Status {
    const auto one = measured(alone), rest = measured(without);
    for (const auto* result : {&one, &rest}) {
      if (result->ok()) continue;
      if (result->status().code() != Code::kRefused && result->status().code() != Code::kUsage) return result->status();
      cost.refused = result->status().message();
    }
    if (one.ok()) cost.alone = *one;
    if (rest.ok()) cost.without = *rest;
    return {};
  };
  for (TrialLayer& layer : layers) {
    LayerCost cost{.layer = std::move(layer)};
    cost.bytes_saved = weight_bytes(carrier, cost.layer.weights) - weight_bytes(*precision, cost.layer.weights);
    QuantizeOptions alone = none, without = options.types;
    alone.allow.push_back({cost.layer.name, precision->name});
    without.allow.push_back({cost.layer.name, carrier.name});
    TS_TRY(try_both(cost, alone, without));
    s.layers.push_back(std::move(cost));
  }
  if (attention) {
    LayerCost cost{.layer = {.name = "attention", .role = "block.attention"}};
    QuantizeOptions alone = none, without = options.types;
    alone.attention = options.types.attention;
    without.attention.clear();
    TS_TRY(try_both(cost, alone, without));
    s.layers.push_back(std::move(cost));
  }
  std::stable_sort(s.layers.begin(), s.layers.end(),
                   [](const LayerCost& a, const LayerCost& b) { return a.alone.relative_l2 > b.alone.relative_l2; });
  return s;
}

}  // namespace tessera
