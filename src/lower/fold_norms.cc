// SPDX-License-Identifier: Apache-2.0
#include "lower/fold_norms.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>

#include "base/parallel.h"
#include "ir/derived_constants.h"
#include "op/extra_results.h"
#include "ops/matmul/matmul.h"
#include "ops/runnable.h"
#include "precision/roles.h"
#include "rewrite/drop_dead.h"

namespace tessera {
namespace {

constexpr size_t kNone = static_cast<size_t>(-1);
// Errors of 8-bit codes may grow by an eighth, those of 16 bits twofold.
constexpr double kMostOffsetOfCodes = 0.5, kMostOffset = 1.75;

bool is_plain_constant(const Graph& g, ValueId id) {
  return g.at(id).constant && g.at(id).type.quant == QuantType(Element::f32);
}

// A norm with what stands before and behind it.
struct Fold {
  size_t norm = kNone, before = kNone;
  bool alone = false;  // the result of the layer before has no other reader: codes, where they are asked for, would be
                       // all that is left of it
  std::vector<size_t> behind;
};

class NormFinder {
 public:
  explicit NormFinder(const Graph& graph) : g_(graph), producers_(graph.producers()) {}

  std::optional<Fold> find(size_t norm) const {
    const Node& node = g_.nodes[norm];
    if (node.op != "norm" || !node.then.empty()) return std::nullopt;
    for (const auto& [name, unused] : node.attrs.all()) {
      if (name != "kind" && name != "eps") return std::nullopt;
    }
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != kNoValue && !(is_plain_constant(g_, node.inputs[i]) && is_finite(node.inputs[i])))
        return std::nullopt;
    }
    Fold f{.norm = norm};
    const auto x = whole(node.inputs[0]);
    const int maker = x ? producers_[static_cast<size_t>(*x)] : -1;
    if (maker < 0 || !is_linear(g_, g_.nodes[static_cast<size_t>(maker)])) return std::nullopt;
    f.before = static_cast<size_t>(maker);
    const Node& before = g_.nodes[f.before];
    if (before.outputs[0] != *x || before.then.gated() || !find_readers(node.outputs[0], f)) return std::nullopt;
    f.alone = !others_read(*x, norm);
    return f;
  }

  // The value whose whole rows v shows, in whichever grouping.
  std::optional<ValueId> whole(ValueId v) const {
    const Placement p = placement_of(g_, producers_, v);
    const Shape &shape = g_.at(v).type.shape, &base = g_.at(p.base).type.shape;
    if (shape.empty() || base.empty() || shape.back() != base.back() || elements(shape) != elements(base) ||
        p.offset != 0 || !is_dense(shape, p.strides))
      return std::nullopt;
    return p.base;
  }

 private:
  // What is not is told of the norm itself, by who reads it.
  bool is_finite(ValueId id) const {
    const std::vector<double> numbers = g_.numbers(id);
    return std::all_of(numbers.begin(), numbers.end(), [](double x) { return std::isfinite(x); });
  }

  bool in_storage(ValueId id, ValueId base) const {
    return id != kNoValue && !g_.at(id).constant && placement_of(g_, producers_, id).base == base;
  }

  bool others_read(ValueId x, size_t norm) const {
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (n == norm || g_.nodes[n].op == "view") continue;
      if (std::any_of(g_.nodes[n].inputs.begin(), g_.nodes[n].inputs.end(),
                      [&](ValueId in) { return in_storage(in, x); }))
        return true;
    }
    return false;
  }

  bool find_readers(ValueId y, Fold& f) const {
    for (ValueId out : g_.outputs) {
      if (in_storage(out, y)) return false;
    }
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const Node& reader = g_.nodes[n];
      if (reader.op == "view") continue;
      for (size_t i = 0; i < reader.inputs.size(); ++i) {
        if (!in_storage(reader.inputs[i], y)) continue;
        if (i != 0 || !takes_factors(reader) || whole(reader.inputs[0]) != y) return false;
        f.behind.push_back(n);
      }
    }
    return !f.behind.empty();
  }

  bool takes_factors(const Node& layer) const {
    // A bias that comes later than first would have to take the shift through what stands before it.
    if (!is_linear(g_, layer) ||
        !layer.then.within({StepKind::bias, StepKind::act, StepKind::scale, StepKind::residual}) ||
        layer.attrs.has("type.0"))
      return false;
    const ValueId w = layer.inputs[1];
    if (!is_plain_constant(g_, w) || g_.at(w).type.shape.size() != 2) return false;
    if (const Step* bias = layer.then.find(StepKind::bias);
        bias != nullptr && !is_plain_constant(g_, layer.inputs[static_cast<size_t>(bias->operand)]))
      return false;
    // Layers that a gate joins become one matmul, which is worth more (lower/fuse_gate.h).
    return std::none_of(g_.nodes.begin(), g_.nodes.end(), [&](const Node& n) {
      return n.op == "map" && std::any_of(n.inputs.begin(), n.inputs.end(),
                                          [&](ValueId in) { return in_storage(in, layer.outputs[0]); });
    });
  }

  const Graph& g_;
  const std::vector<int> producers_;
};

Node with_moments(Graph& g, Node layer) {
  if (layer.attrs.integer(kMomentsResult) != 0) return layer;
  Value v;
  v.name = g.at(layer.outputs[0]).name + ".moments";
  v.type = {g.at(layer.outputs[0]).type.shape, Element::f32};
  v.type.shape.back() = moment_groups(v.type.shape.back());
  v.type.shape.push_back(2);
  layer.attrs.set(kMomentsResult, int64_t{1});
  layer.outputs.push_back(g.add_value(std::move(v)));
  return layer;
}

std::vector<double> numbers_or(const Graph& g, const Node& norm, size_t input, int64_t cols, double otherwise) {
  if (norm.inputs.size() > input && norm.inputs[input] != kNoValue) return g.numbers(norm.inputs[input]);
  return std::vector<double>(static_cast<size_t>(cols), otherwise);
}

// The weight with gain and centring in it; `shift`, on return, what the norm's shift adds to each result.
std::vector<float> folded_weight(const std::vector<double>& w, const std::vector<double>& gain,
                                 std::vector<double>& shift, bool centre) {
  const size_t k = gain.size(), rows = w.size() / k;
  std::vector<float> made(w.size());
  std::vector<double> added(rows, 0.0);
  parallel_for(static_cast<int64_t>(rows), 16, [&](int64_t begin, int64_t end) {
    for (size_t r = static_cast<size_t>(begin); r < static_cast<size_t>(end); ++r) {
      double mean = 0;
      for (size_t c = 0; c < k; ++c) {
        mean += w[r * k + c] * gain[c] / static_cast<double>(k);
        added[r] += w[r * k + c] * shift[c];
      }
      for (size_t c = 0; c < k; ++c) made[r * k + c] = static_cast<float>(w[r * k + c] * gain[c] - (centre ? mean : 0));
    }
  });
  shift = std::move(added);
  return made;
}

// The same as a constant of the graph, made once for all graphs of the model.
ValueId fold_into_weight(Graph& g, const Node& norm, ValueId w, std::vector<double>& shift) {
  const int64_t k = g.at(w).type.shape[1];
  const bool rms = norm.attrs.word("kind", "layer") == "rms";
  std::string recipe = rms ? "fold rms norm" : "fold layer norm";
  std::vector<Bytes> from;
  for (const ValueId id :
       {w, norm.inputs.size() > 1 ? norm.inputs[1] : kNoValue, norm.inputs.size() > 2 ? norm.inputs[2] : kNoValue}) {
    recipe +=
        id == kNoValue ? std::string(" -") : cat(" ", to_string(g.at(id).type.quant), to_string(g.at(id).type.shape));
    from.push_back(id == kNoValue ? Bytes() : g.at(id).data);
  }
  const auto make = [&]() -> Result<std::vector<Buffer>> {
    std::vector<double> added = numbers_or(g, norm, 2, k, 0.0);
    const std::vector<float> made = folded_weight(g.numbers(w), numbers_or(g, norm, 1, k, 1.0), added, !rms);
    std::vector<Buffer> both;
    both.emplace_back(made.size() * sizeof(float));
    both.emplace_back(added.size() * sizeof(double));
    std::memcpy(both[0].data(), made.data(), both[0].size());
    std::memcpy(both[1].data(), added.data(), both[1].size());
    return both;
  };
  const std::vector<Bytes> both = derive(g, recipe, from, make).value();
  shift.resize(both[1].size() / sizeof(double));
  std::memcpy(shift.data(), both[1].data(), both[1].size());
  return g.add_constant(g.at(w).name, Type{g.at(w).type.shape, Element::f32}, both[0]);
}

// A constant that only has a shape: what is asked of kernels needs no numbers.
ValueId shape_alone(Graph& g, const std::string& name, const Shape& shape) {
  Value v;
  v.name = name;
  v.type = {shape, Element::f32};
  v.constant = true;
  return g.add_value(std::move(v));
}

enum class Numbers : uint8_t { kMade, kLeftOut };

// The layer after the norm with gain and centring in its weight, and the shift in its bias: what is left of the norm is
// the division by the deviation, whoever does it.
Node with_gain(Graph& g, const Node& norm, Node layer, Numbers numbers) {
  const ValueId w = layer.inputs[1];
  const int64_t n = g.at(w).type.shape[0];
  std::vector<double> shift(static_cast<size_t>(n));
  if (numbers == Numbers::kMade) {
    layer.inputs[1] = fold_into_weight(g, norm, w, shift);
  }
  if (norm.inputs.size() <= 2 || norm.inputs[2] == kNoValue) return layer;
  Step* bias = nullptr;
  for (Step& s : layer.then.steps) {
    if (s.kind == StepKind::bias) bias = &s;
  }
  std::string name = norm.name + ".shift";
  if (bias != nullptr) {
    name = g.at(layer.inputs[static_cast<size_t>(bias->operand)]).name;
    const std::vector<double> own = g.numbers(layer.inputs[static_cast<size_t>(bias->operand)]);
    for (size_t r = 0; r < shift.size(); ++r) shift[r] += own[r];
  }
  const std::vector<float> sum(shift.begin(), shift.end());
  const ValueId vector = numbers == Numbers::kMade ? g.add_constant(name, {n}, sum) : shape_alone(g, name, {n});
  if (bias != nullptr) {
    layer.inputs[static_cast<size_t>(bias->operand)] = vector;
  } else {
    layer.then.steps.insert(layer.then.steps.begin(),
                            {StepKind::bias, Unary::identity, static_cast<int>(layer.inputs.size())});
    layer.inputs.push_back(vector);
  }
  return layer;
}

// That, and the division: the layer reads `x` with its moments.
Node with_factors(Graph& g, const Node& norm, Node layer, ValueId x, ValueId moments, Numbers numbers) {
  layer = with_gain(g, norm, std::move(layer), numbers);
  layer.inputs[0] = x;
  layer.then.steps.insert(layer.then.steps.begin(),
                          {StepKind::normalise, Unary::identity, static_cast<int>(layer.inputs.size())});
  layer.inputs.push_back(moments);
  layer.attrs.set(kFoldedKind, norm.attrs.word("kind", "layer"));
  layer.attrs.set(kFoldedEps, norm.attrs.number("eps"));
  return layer;
}

void fold(Graph& g, const Fold& f, Numbers numbers) {
  g.nodes[f.before] = with_moments(g, g.nodes[f.before]);
  const Node norm = g.nodes[f.norm];
  const ValueId y = g.nodes[f.before].outputs[0], moments = g.nodes[f.before].outputs.back();
  std::vector<Node> nodes;
  std::map<Shape, ValueId> views{{g.at(y).type.shape, y}};  // one for each grouping: readers share their codes
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    if (n == f.norm) continue;
    if (std::find(f.behind.begin(), f.behind.end(), n) == f.behind.end()) {
      nodes.push_back(std::move(g.nodes[n]));
      continue;
    }
    const Shape shape = g.at(g.nodes[n].inputs[0]).type.shape;
    const auto [view, fresh] = views.emplace(shape, kNoValue);
    if (fresh) {
      Value seen;
      seen.name = cat(g.at(y).name, ".rows", views.size() > 2 ? cat("_", views.size() - 1) : "");
      seen.type = {shape, g.at(y).type.quant};
      view->second = g.add_value(std::move(seen));
      nodes.push_back({.name = {},
                       .op = "view",
                       .inputs = {y},
                       .outputs = {view->second},
                       .attrs = {{"strides", dense_strides(shape)}, {"offset", int64_t{0}}}});
    }
    nodes.push_back(with_factors(g, norm, std::move(g.nodes[n]), view->second, moments, numbers));
  }
  // Views of the norm's result were its readers' only.
  std::erase_if(nodes, [&](const Node& n) { return n.op == "view" && n.inputs[0] == norm.outputs[0]; });
  g.nodes = std::move(nodes);
}

// The norm stays a kernel, which only divides by the deviation.
void make_plain(Graph& g, const Fold& f) {
  const Node norm = g.nodes[f.norm];
  for (const size_t layer : f.behind) {
    Node made = with_gain(g, norm, g.nodes[layer], Numbers::kMade);
    g.nodes[layer] = std::move(made);
  }
  g.nodes[f.norm].inputs = {norm.inputs[0]};
  Value& y = g.at(norm.outputs[0]);
  y.name = plain_value(y.name);
}

// The layer as it will be asked for, with everything in the carrier but what its precision says; a result of the model
// is f32.
Problem typed(const Graph& g, const std::vector<int>& producers, const Node& layer, const Precision& p,
              Element carrier) {
  Problem problem = problem_of(g, producers, layer);
  const bool result = std::find(g.outputs.begin(), g.outputs.end(), layer.outputs[0]) != g.outputs.end();
  const Element side = result ? Element::f32 : carrier;
  for (Operand& o : problem.in) o.type = side;
  problem.in[0].type = p.activation.scaled() ? p.activation : QuantType(carrier);
  problem.in[1].type = p.weight;
  problem.out[0].type = side;
  if (const Step* step = problem.then.find(StepKind::normalise))
    problem.in[static_cast<size_t>(step->operand)].type = Element::f32;
  return problem;
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
  const auto runs_so = [&](const Graph& g, const std::vector<int>& producers, const Node& layer) {
    const LayerChoice& choice = choices.layers[named[layer.name][0]];
    if (choice.precision == nullptr || choice.sparse) return false;
    Problem p = typed(g, producers, layer, *choice.precision, choices.carrier);
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
    if (f->alone && codes) continue;
    // The residual stream has a few large channels, which a norm's gain makes small: steps that are the same for all
    // numbers are too coarse for the rest (ViT-B b1, cosine with fp32: 0.9906 folded, 0.9991 not; in FP8 0.9952 and
    // 0.9954).
    if (any_reads([](const QuantType& x) { return info(x.element).kind == ElementKind::kInteger; })) continue;
    const auto offset = offsets.find(graph.nodes[n].name);
    if (offset != offsets.end() && !(offset->second <= (codes ? kMostOffsetOfCodes : kMostOffset))) continue;
    if (options.ranges != nullptr) {
      const auto range = options.ranges->values.find(graph.at(graph.nodes[n].outputs[0]).name);
      if (range != options.ranges->values.end() && range->second.by_hand) continue;
    }
    Graph folded = graph;
    fold(folded, *f, Numbers::kLeftOut);
    const std::vector<int> producers = folded.producers();
    if (std::all_of(folded.nodes.begin(), folded.nodes.end(), [&](const Node& node) {
          const bool is_one = std::any_of(layers.begin(), layers.end(),
                                          [&](size_t layer) { return node.name == graph.nodes[layer].name; });
          return !is_one || runs_so(folded, producers, node);
        })) {
      names.insert(graph.nodes[n].name);
    }
  }
  return names;
}

std::vector<std::string> norms_between_layers(const Graph& graph) {
  std::vector<std::string> values;
  const NormFinder find(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (find.find(n)) values.push_back(graph.at(graph.nodes[n].outputs[0]).name);
  }
  return values;
}

Status fold_norms(Graph& graph, const std::set<std::string>& folded, const std::set<std::string>& plain) {
  const auto each = [&](const std::set<std::string>& norms, const auto& body) -> Status {
    for (const std::string& name : norms) {
      const auto node = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                     [&](const Node& n) { return n.op == "norm" && n.name == name; });
      const auto f = node == graph.nodes.end()
                         ? std::nullopt
                         : NormFinder(graph).find(static_cast<size_t>(node - graph.nodes.begin()));
      if (!f) return refused(cat("norm ", name, ": it cannot be folded into the layers around it"));
      body(*f);
    }
    return {};
  };
  TS_TRY(each(plain, [&](const Fold& f) { make_plain(graph, f); }));
  TS_TRY(each(folded, [&](const Fold& f) { fold(graph, f, Numbers::kMade); }));
  return drop_dead(graph);
}

}  // namespace tessera
