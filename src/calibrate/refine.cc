// SPDX-License-Identifier: Apache-2.0
#include "calibrate/refine.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/progress.h"
#include "calibrate/moments.h"
#include "precision/layer_weights.h"
#include "precision/migrate.h"
#include "precision/roles.h"

namespace tessera {
namespace {

// Layers that read the same value, in the order in which they run.
struct Group {
  ValueId x;
  std::vector<size_t> nodes;
};

std::vector<Group> group_layers(const Graph& g, const WeightTypeOf& type_of, const Refinements& what) {
  std::vector<Group> groups;
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    if (!is_refined(g, g.nodes[n], type_of, what)) continue;
    const ValueId x = g.nodes[n].inputs[0];
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& group) { return group.x == x; });
    if (same != groups.end()) {
      same->nodes.push_back(n);
    } else {
      groups.push_back({x, {n}});
    }
  }
  return groups;
}

// Factors of every group from the original model, then all of them at once: each is exact, so their order does not
// matter.
Status migrate_all(Graph& graph, const Samples& samples, const RefineOptions& options, Refined& out) {
  const Refinements& what = options.what;
  std::vector<Group> groups = group_layers(graph, options.type_of, what);
  TS_ASSIGN(PiecewiseRun run, PiecewiseRun::start(graph, samples, options.samples));
  std::optional<Progress> progress;
  if (!options.quiet) progress.emplace("migrating", static_cast<int64_t>(groups.size()));
  struct Found {
    std::vector<float> factors;
    std::string said;
  };
  std::vector<Found> found;
  for (Group& group : groups) {
    std::erase_if(group.nodes, [&](size_t n) {
      const Node& node = graph.nodes[n];
      return !options.type_of(node).scaled() || graph.at(node.inputs[1]).type.quant.scaled();
    });
    found.emplace_back();
    if (group.nodes.empty()) continue;
    TS_TRY(run.advance(graph, group.nodes.front()));
    TS_ASSIGN(InputMoments moments, run.moments(graph, group.x, /*squares=*/what.awq));
    std::vector<MigratedWeight> weights;
    for (size_t n : group.nodes)
      weights.push_back({weight_numbers(graph, graph.nodes[n].inputs[1]), options.type_of(graph.nodes[n])});
    Found& f = found.back();
    f.factors.assign(static_cast<size_t>(moments.cols), 1.0f);
    if (what.smooth) {
      f.factors = smooth_factors(moments, weights, what.smooth_exponent);
      f.said = cat("smoothed with exponent ", what.smooth_exponent);
      divide_moments(moments, f.factors);
      for (MigratedWeight& m : weights) {
        for (size_t i = 0; i < m.w.size(); ++i) m.w[i] *= f.factors[i % f.factors.size()];
      }
    }
    if (what.awq) {
      auto hessian = make_hessian(moments, what.damping, /*factored=*/false);
      if (!hessian.ok()) return hessian.status().at(cat("layer ", graph.nodes[group.nodes.front()].name));
      TS_ASSIGN(const AwqFactors awq, awq_factors(moments, *hessian, weights));
      for (size_t i = 0; i < f.factors.size(); ++i) f.factors[i] *= awq.factors[i];
      f.said +=
          cat(f.said.empty() ? "" : ", ", "awq with exponent ", awq.exponent, awq.by_weight ? " by weight" : "",
              " lowers the rounding error of weights to ", awq.before > 0 ? awq.after / awq.before : 1.0, " of it");
    }
    if (progress) progress->advance();
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].nodes.empty()) continue;
    const Migrated m = migrate(graph, groups[i].x, groups[i].nodes, found[i].factors);
    const std::string& layer = graph.nodes[groups[i].nodes.front()].name;
    out.notes.push_back(m.done ? cat("layer ", layer, ": ", found[i].said, ", ", m.how)
                               : cat("layer ", layer, ": not migrated: ", m.how));
    if (!m.done) continue;
    out.layers.push_back(m.maker);
    out.divided.push_back(m.maker);
    for (size_t n : groups[i].nodes) out.layers.push_back(graph.nodes[n].name);
  }
  out.changed = out.layers;
  return {};
}

}  // namespace

Result<Refined> refine_model(Graph& graph, const Samples* samples, const RefineOptions& options) {
  Refined out;
  if (!options.what.any()) return out;
  assign_roles(graph);
  if (options.what.needs_moments() && samples == nullptr)
    return usage_error("refining weights needs calibration data: give --calib FILE.npz");
  if (options.what.migrates()) TS_TRY(migrate_all(graph, *samples, options, out));
  Refinements what = options.what;
  what.smooth = what.awq = false;
  const std::vector<Group> groups = group_layers(graph, options.type_of, what);
  const auto looks_at_inputs = [&](const Group& group) {
    return std::any_of(group.nodes.begin(), group.nodes.end(),
                       [&](size_t n) { return !is_only_marked(graph, graph.nodes[n], options.type_of, what); });
  };
  const bool running = what.needs_moments() && std::any_of(groups.begin(), groups.end(), looks_at_inputs);
  if (groups.empty()) return out;
  Graph shadow;  // runs: weights as they stand, in f32
  std::optional<PiecewiseRun> run;
  if (running) {
    shadow = graph;
    TS_ASSIGN(run, PiecewiseRun::start(graph, *samples, options.samples));
    out.notes.push_back(cat("refined on ", run->samples(), run->samples() == 1 ? " sample" : " samples"));
  }
  std::optional<Progress> progress;
  if (!options.quiet) progress.emplace("refining", static_cast<int64_t>(groups.size()));
  for (const Group& group : groups) {
    std::optional<InputMoments> moments;
    if (running && looks_at_inputs(group)) {
      TS_TRY(run->advance(shadow, group.nodes.front()));
      TS_ASSIGN(moments, run->moments(shadow, group.x, /*squares=*/true));
    }
    std::vector<ValueId> before;
    for (size_t n : group.nodes) before.push_back(graph.nodes[n].inputs[1]);
    TS_ASSIGN(const std::vector<std::string> said,
              refine_layers(graph, group.nodes, moments ? &*moments : nullptr, options.type_of, what));
    out.notes.insert(out.notes.end(), said.begin(), said.end());
    for (size_t i = 0; i < group.nodes.size(); ++i) {
      const size_t n = group.nodes[i];
      out.layers.push_back(graph.nodes[n].name);
      const ValueId w = graph.nodes[n].inputs[1];
      if (w == before[i]) continue;
      out.changed.push_back(graph.nodes[n].name);
      if (!running) continue;
      shadow.nodes[n].inputs[1] =
          shadow.add_constant(graph.at(w).name, graph.at(w).type.shape, weight_numbers(graph, w));
    }
    if (progress) progress->advance();
  }
  return out;
}

Status carry_over(const Graph& from, const Refined& refined, Graph& to) {
  std::map<ValueId, ValueId> moved;
  const auto move = [&](ValueId id) {
    if (id == kNoValue) return kNoValue;
    const auto [it, fresh] = moved.emplace(id, kNoValue);
    if (fresh) it->second = to.add_constant(from.at(id).name, from.at(id).type, from.at(id).data);
    return it->second;
  };
  std::map<std::string, Node*> layers;
  for (Node& n : to.nodes) layers[n.name] = &n;
  const std::set<std::string> changed(refined.layers.begin(), refined.layers.end());
  for (const Node& n : from.nodes) {
    if (!changed.contains(n.name)) continue;
    const auto it = layers.find(n.name);
    if (it == layers.end() || it->second->op != n.op)
      return bad_input(cat("layer ", n.name, " of the refined graph is not in the other"));
    Node& node = *it->second;
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      const ValueId id = n.inputs[i];
      if (id == kNoValue || !from.at(id).constant) continue;
      const ValueId scale = move(from.at(id).scale), scale2 = move(from.at(id).scale2), value = move(id);
      to.at(value).scale = scale;
      to.at(value).scale2 = scale2;
      if (i < node.inputs.size()) {
        node.inputs[i] = value;
      } else {
        node.inputs.push_back(value);
      }
    }
    node.then = n.then;
    node.attrs = n.attrs;
  }
  return {};
}

}  // namespace tessera
