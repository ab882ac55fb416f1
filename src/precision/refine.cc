// SPDX-License-Identifier: Apache-2.0
#include "precision/refine.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "ops/matmul/matmul.h"
#include "precision/layer_weights.h"
#include "precision/roles.h"
#include "weights/clip_weights.h"

namespace tessera {
namespace {

std::string percent(double fraction) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f %%", 100 * fraction);
  return text;
}

bool is_24_as_it_stands(const Graph& graph, const Node& node, const Refinements& options) {
  return options.sparsity_of(node).pattern == SparsityPattern::k24 && has_24_zeros(graph, node.inputs[1]);
}

class Refiner {
 public:
  Refiner(Graph& graph, const InputMoments* moments, const Hessian* hessian, const Refinements& options)
      : g_(graph), moments_(moments), hessian_(hessian), options_(options) {}

  Result<std::string> run(Node& node, const QuantType& type) {
    const ValueId id = node.inputs[1];
    const Shape shape = g_.at(id).type.shape;
    const int64_t rows = shape[0], cols = shape[1];
    const std::vector<float> w = weight_numbers(g_, id);
    const auto bad = std::find_if(w.begin(), w.end(), [](float x) { return !std::isfinite(x); });
    if (bad != w.end()) {
      const int64_t at = bad - w.begin();
      return bad_input(cat("weight [", at / cols, ",", at % cols, "] is ", *bad, "; weights must be finite"));
    }
    if (moments_ != nullptr && moments_->cols != cols)
      return bad_input(cat("its moments are of ", moments_->cols, " columns, its weight has ", cols));
    const bool sparse = options_.sparse(node), as_it_stands = sparse && is_24_as_it_stands(g_, node, options_);
    Compensated made{w, {}, {}};
    std::string done;
    if (as_it_stands) {
      made.kept = kept_places(made.w);
      done = "2:4 in the model as it is";
    } else if (sparse) {
      const Sparsity how = options_.sparsity_of(node);
      if (how.method == SparsityMethod::kHessian) {
        made = compensate(*hessian_, {.w = w.data(), .rows = rows, .pattern = how.pattern, .sweeps = options_.sweeps});
      } else {
        prune_by_magnitude(how.pattern, made.w.data(), rows, cols);
        made.kept = kept_places(made.w);
      }
      done = cat(to_string(how), " changes its results by ", change(w, made.w, rows));
    }
    if (sparse) node.attrs.set(kSparse24, int64_t{1});
    const std::string name = g_.at(id).name;
    if (type.scaled() && (options_.clip || options_.compensate)) {
      std::vector<float> importance;
      if (moments_ != nullptr) {
        for (int64_t c = 0; c < cols; ++c) importance.push_back(moments_->xtx[static_cast<size_t>(c * cols + c)]);
      }
      std::optional<WeightGrid> grid;
      if (options_.clip) {
        TS_ASSIGN(grid, clip_weights(type, made.w.data(), rows, cols, importance));
      } else {
        TS_ASSIGN(grid, amax_grid(type, made.w.data(), rows, cols));
      }
      if (options_.compensate) {
        const std::vector<float> start = made.w;
        const std::vector<uint8_t> kept = made.kept;
        made = compensate(*hessian_, {.w = w.data(),
                                      .rows = rows,
                                      .kept = sparse ? &kept : nullptr,
                                      .start = start.data(),
                                      .grid = &*grid,
                                      .sweeps = options_.sweeps});
      } else {
        made.decoded.resize(w.size());
        grid->round_all(std::vector<float>(made.w).data(), made.decoded.data(), made.w.data());
      }
      node.inputs[1] = add_weight(g_, name, shape, type, grid->encode(made.decoded.data()));
      done += cat(done.empty() ? "" : "; ", to_string(type), options_.clip ? " with searched scales" : "",
                  options_.compensate ? ", rounded with compensation," : "", " changes its results by ",
                  change(w, made.w, rows));
    } else if (sparse) {
      node.inputs[1] = g_.add_constant(name, shape, made.w);
    }
    return cat("layer ", node.name, ": ", done);
  }

 private:
  // |E X| / |W X| over the calibration rows; without them |E| / |W|.
  std::string change(const std::vector<float>& from, const std::vector<float>& to, int64_t rows) const {
    std::vector<float> e(from.size());
    for (size_t i = 0; i < e.size(); ++i) e[i] = to[i] - from[i];
    if (hessian_ != nullptr) {
      const double all = error_under(*hessian_, from.data(), rows);
      return percent(all > 0 ? std::sqrt(error_under(*hessian_, e.data(), rows) / all) : 0);
    }
    double off = 0, all = 0;
    for (size_t i = 0; i < e.size(); ++i)
      off += static_cast<double>(e[i]) * e[i], all += static_cast<double>(from[i]) * from[i];
    return cat(percent(all > 0 ? std::sqrt(off / all) : 0), " (on white input)");
  }

  Graph& g_;
  const InputMoments* moments_;
  const Hessian* hessian_;
  const Refinements& options_;
};

}  // namespace

bool is_refined(const Graph& graph, const Node& node, const WeightTypeOf& type_of, const Refinements& options) {
  if (!is_linear_layer(graph, node)) return false;
  if (graph.at(node.inputs[1]).type.quant.scaled()) return is_only_marked(graph, node, type_of, options);
  if (options.sparse(node)) return true;
  return (options.clip || options.compensate || options.migrates()) && type_of(node).scaled();
}

bool is_only_marked(const Graph& graph, const Node& node, const WeightTypeOf& type_of, const Refinements& options) {
  if (!options.sparse(node) || !is_24_as_it_stands(graph, node, options)) return false;
  return graph.at(node.inputs[1]).type.quant.scaled() ||
         !(type_of(node).scaled() && (options.clip || options.compensate));
}

Result<std::vector<std::string>> refine_layers(Graph& graph, std::span<const size_t> nodes, const InputMoments* moments,
                                               const WeightTypeOf& type_of, const Refinements& options) {
  std::optional<Hessian> hessian;
  if (moments != nullptr) {
    const bool factored =
        options.compensate || (options.sparse() && options.sparsity.method == SparsityMethod::kHessian);
    auto made = make_hessian(*moments, options.damping, factored);
    if (!made.ok()) return made.status().at(cat("layer ", graph.nodes[nodes.front()].name));
    hessian = std::move(made).value();
  }
  std::vector<std::string> said;
  for (size_t n : nodes) {
    Node& node = graph.nodes[n];
    const QuantType type = type_of(node);
    if (is_only_marked(graph, node, type_of, options)) {
      node.attrs.set(kSparse24, int64_t{1});
      said.push_back(cat("layer ", node.name, ": 2:4 in the model as it is"));
      continue;
    }
    if (!(options.sparse(node)) && !(type.scaled() && (options.clip || options.compensate))) continue;
    auto sentence = Refiner(graph, moments, hessian ? &*hessian : nullptr, options).run(node, type);
    if (!sentence.ok()) return sentence.status().at(cat("layer ", node.name));
    said.push_back(std::move(sentence).value());
  }
  return said;
}

}  // namespace tessera
