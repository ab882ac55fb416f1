// SPDX-License-Identifier: Apache-2.0
// Weights that lose less: everything that calibration data can do for the weights of linear layers before quantize
// (precision/quantize.h) gives them their types. Per layer, in this order:
//   smooth, awq   columns of the weight are scaled up, and what makes its input down (migrate.h)
//   sparsity      half of the weight becomes zero (sparsify.h); one that is 2:4 already stays as it is
//   clip          scales that lose less than amax (clip_weights.h); with compensate as well it hardly matters
//   compensate    rounding one column is made good by the others (compensate.h)
// After clip or compensate the weight is a constant of its scaled type, codes and scales chosen here: quantize leaves
// it alone. Otherwise it stays f32. calibrate/refine.h runs the model and calls this layer by layer.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"
#include "ir/moments.h"
#include "precision/roles.h"
#include "weights/sparsify.h"

namespace tessera {

struct Refinements {
  Sparsity sparsity;
  bool smooth = false, awq = false, clip = false, compensate = false;
  double smooth_exponent = 0.5;
  double damping = 0.01;  // of the mean of X^T X's diagonal, added to it
  int sweeps = 8;         // each costs as much as pruning or rounding itself

  std::function<bool(const Node&)>
      is_sparse;  // layers that sparsity takes; none given: the linear layers of the blocks
  bool sparse(const Node& node) const { return sparse() && (is_sparse ? is_sparse(node) : in_block(node)); }

  std::function<SparsityPattern(const Node&)> pattern_of;  // of a sparse layer; none given: that of `sparsity`
  Sparsity sparsity_of(const Node& node) const {
    return {pattern_of ? pattern_of(node) : sparsity.pattern, sparsity.method};
  }

  bool sparse() const { return sparsity.pattern != SparsityPattern::kDense; }
  bool migrates() const { return smooth || awq; }
  bool any() const { return sparse() || migrates() || clip || compensate; }
  // Everything but magnitudes looks at what layers read.
  bool needs_moments() const {
    return (sparse() && sparsity.method == SparsityMethod::kHessian) || migrates() || clip || compensate;
  }
};

// The type that quantize will give a layer's weight; a plain one where it is not rounded to scales.
using WeightTypeOf = std::function<QuantType(const Node&)>;

// Nodes whose weight the options concern: sparsity takes the linear layers of the blocks, the others every linear layer
// whose weight will have scales. Numbers that have scales already (imported ones) are never changed; where they are 2:4
// and sparsity is asked for, the layer is marked.
// Contract: roles are assigned (roles.h).
bool is_refined(const Graph& graph, const Node& node, const WeightTypeOf& type_of, const Refinements& options);
// Whether such a node is only marked: its weight is 2:4 as it stands, and nothing else is asked for.
bool is_only_marked(const Graph& graph, const Node& node, const WeightTypeOf& type_of, const Refinements& options);

// sparsity, clip and compensate of layers (indices of nodes) that all read the value that `moments` are of; null where
// the options need none. Returns one sentence per layer. A layer that is only marked keeps its constant.
Result<std::vector<std::string>> refine_layers(Graph& graph, std::span<const size_t> nodes, const InputMoments* moments,
                                               const WeightTypeOf& type_of, const Refinements& options);

}  // namespace tessera
