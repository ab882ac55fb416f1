// SPDX-License-Identifier: Apache-2.0
#include "lower/fold_norms.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/refused_layers.h"
#include "lower/fold_one.h"
#include "op/extra_results.h"
#include "ops/matmul/matmul.h"
#include "ops/runnable.h"
#include "rewrite/drop_dead.h"

namespace tessera {
namespace {

// Errors of 8-bit codes may grow by an eighth, those of 16 bits twofold.
constexpr double kMostOffsetOfCodes = 0.5, kMostOffset = 1.75;

// The layer as it will be asked for, with everything in the carrier but what its precision says; a result of the model
// is f32. `codes`: of what it writes beside its result, times a gain.
Problem typed(const Graph& g, const std::vector<int>& producers, const Node& layer, const Precision& p, Element carrier,
              const QuantType& codes) {
  Problem problem = problem_of(g, producers, layer);
  const bool result = std::find(g.outputs.begin(), g.outputs.end(), layer.outputs[0]) != g.outputs.end();
  const Element side = result ? Element::f32 : carrier;
  for (Operand& o : problem.in) o.type = side;
  problem.in[0].type = p.activation.scaled() ? p.activation : QuantType(carrier);
  problem.in[1].type = p.weight;
  problem.out[0].type = side;
  if (const Step* step = problem.then.find(StepKind::normalise))
    problem.in[static_cast<size_t>(step->operand)].type = Element::f32;
  const ExtraResults extra = ExtraResults::of(layer.attrs);
  if (extra.gain > 0) {
    problem.out[static_cast<size_t>(extra.codes)].type = codes;
    const auto gain = static_cast<size_t>(extra.gain);
    if (g.at(layer.inputs[gain]).exact) problem.in[gain].type = Element::f32;
  }
  return problem;
}

// What the layers behind a norm ask their input to be, where all ask the same; else the carrier.
QuantType asked_by(const std::vector<size_t>& behind, const Choices& choices) {
  const Precision* first = choices.layers[behind[0]].precision;
  const bool same =
      first != nullptr && first->activation.scaled() && std::all_of(behind.begin(), behind.end(), [&](size_t layer) {
        const Precision* p = choices.layers[layer].precision;
        return p != nullptr && p->activation == first->activation;
      });
  return same ? first->activation : QuantType(choices.carrier);
}

}  // namespace

Result<std::set<std::string>> foldable_norms(Graph graph, const QuantizeOptions& options, const RowOffsets& offsets) {
  std::set<std::string> names;
  TS_ASSIGN(const Choices choices, choose_precisions(graph, options));
  std::map<std::string, std::vector<size_t>> named;
  for (size_t n = 0; n < graph.nodes.size(); ++n) named[graph.nodes[n].name].push_back(n);
  const auto has_name = [&](size_t n) {
    return !graph.nodes[n].name.empty() && named[graph.nodes[n].name].size() == 1;
  };
  const auto runs_so = [&](const Graph& g, const std::vector<int>& producers, const Node& layer,
                           const QuantType& codes) {
    const LayerChoice& choice = choices.layers[named[layer.name][0]];
    if (choice.precision == nullptr || choice.sparse) return false;
    Problem p = typed(g, producers, layer, *choice.precision, choices.carrier, codes);
    if (options.promoted && p.in[1].type.element == Element::e4m3) p.attrs.set(kPromoted, int64_t{1});
    return runnable(p, *options.target, /*and_fast=*/true);
  };
  const NormFinder find(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const auto f = find.find(n);
    if (!f) continue;
    std::vector<size_t> layers = f->behind;
    layers.push_back(f->before);
    // Plans of an engine know norms and layers by their names.
    if (!has_name(n) || !std::all_of(layers.begin(), layers.end(), has_name)) continue;
    const auto any_reads = [&](auto such) {
      return std::any_of(f->behind.begin(), f->behind.end(), [&](size_t layer) {
        return choices.layers[layer].precision != nullptr && such(choices.layers[layer].precision->activation);
      });
    };
    const bool codes = any_reads([](const QuantType& x) { return x.scaled(); });
    if (f->alone && (codes || f->modulated)) continue;
    // The residual stream has a few large channels, which a norm's gain makes small: steps that are the same for all
    // numbers are too coarse for the rest (ViT-B b1, cosine with fp32: 0.9906 folded, 0.9991 not; in FP8 0.9952 and
    // 0.9954).
    if (any_reads([](const QuantType& x) { return info(x.element).kind == ElementKind::kInteger; })) continue;
    const auto offset = offsets.find(graph.nodes[n].name);
    if (offset != offsets.end() && !(offset->second <= (codes ? kMostOffsetOfCodes : kMostOffset))) continue;
    if (options.ranges != nullptr) {
      const std::string& y = graph.at(graph.nodes[n].outputs[0]).name;
      const auto range = options.ranges->values.find(y);
      if (range != options.ranges->values.end() && range->second.by_hand) continue;
      if (f->modulated && codes && !options.ranges->values.contains(gained_value(y))) continue;
    }
    Graph folded = graph;
    fold(folded, *f, Numbers::kLeftOut);
    const std::vector<int> producers = folded.producers();
    if (std::all_of(folded.nodes.begin(), folded.nodes.end(), [&](const Node& node) {
          const bool is_one = std::any_of(layers.begin(), layers.end(),
                                          [&](size_t layer) { return node.name == graph.nodes[layer].name; });
          return !is_one || runs_so(folded, producers, node, asked_by(f->behind, choices));
        })) {
      names.insert(graph.nodes[n].name);
    }
  }
  return names;
}

namespace {

std::vector<std::string> results_of_norms(const Graph& graph, bool modulated) {
  std::vector<std::string> values;
  const NormFinder find(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const auto f = find.find(n);
    if (f && f->modulated.has_value() == modulated) values.push_back(graph.at(graph.nodes[n].outputs[0]).name);
  }
  return values;
}

}  // namespace

std::vector<std::string> norms_between_layers(const Graph& graph) { return results_of_norms(graph, false); }
std::vector<std::string> modulated_norms(const Graph& graph) { return results_of_norms(graph, true); }

Status fold_norms(Graph& graph, const std::set<std::string>& folded, const std::set<std::string>& plain) {
  const auto each = [&](const std::set<std::string>& norms, const auto& body) -> Status {
    for (const std::string& name : norms) {
      const auto node = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                     [&](const Node& n) { return n.op == "norm" && n.name == name; });
      const auto f = node == graph.nodes.end()
                         ? std::nullopt
                         : NormFinder(graph).find(static_cast<size_t>(node - graph.nodes.begin()));
      if (!f) {
        const std::string why = "it cannot be folded into the layers around it";
        return refused(cat("norm ", name, ": ", why), {{name, "norm", "", {{"", why}}}});
      }
      body(*f);
    }
    return {};
  };
  TS_TRY(each(plain, [&](const Fold& f) { make_plain(graph, f); }));
  TS_TRY(each(folded, [&](const Fold& f) { fold(graph, f, Numbers::kMade); }));
  return drop_dead(graph);
}

}  // namespace tessera
