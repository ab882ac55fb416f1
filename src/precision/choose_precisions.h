// SPDX-License-Identifier: Apache-2.0
// Which precision each layer was asked for: the precision of the command line for the layers of the blocks, its carrier
// for embedding and head, and f32 where the graph calls the weight exact; then the rules of a recipe, then what the
// user allows; later ones win. Rules and allowances that match nothing are errors, and so is a request that no layer
// would realise. An allowance replaces all that was asked of a layer; a precision without scales also ends its 2:4
// sparsity.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "archs/arch.h"
#include "base/status.h"
#include "ir/graph.h"
#include "ir/ranges.h"
#include "precision/recipe.h"
#include "types/precisions/allowance.h"

namespace tessera {

struct QuantizeOptions {
  std::string precision = "fp16";  // "imported": types as the model has them, fp16 elsewhere
  bool keep_stated = false;  // types that the graph holds already stay, whatever the precision; so with "imported"
  std::vector<Rule> rules;   // of a recipe
  std::vector<Allowance> allow;
  std::string attention;  // a name of types/precisions/precisions.inc; empty: the carrier, or as imported
  bool sparse = false;    // 2:4 in every layer of the blocks, unless a rule says otherwise
  // FP8 products are summed in f32, or promoted to f32 at least every 128 products (ops/matmul/matmul.h).
  bool promoted = false;
  // Norms that this plan folds, and those that only other plans of the engine fold: kernels here, over the same weights
  // (lower/fold_norms.h).
  std::set<std::string> folded_norms, plain_norms;
  const Ranges* ranges = nullptr;
  bool part = false;           // one of several graphs of a model: what a rule or an allowance names may be in another
  std::optional<Arch> target;  // whose kernels are asked what they can read and make; nothing: all of it
};

struct LayerChoice {
  const Precision* precision = nullptr;  // null where the node is no linear layer
  bool sparse = false;
  std::string pattern = {};              // of a sparse layer, where a rule says it: "2:4", "4:8"
  bool named = false;                    // a rule or an allowance named the layer
  const Precision* attention = nullptr;  // of an attention node that gets codes; null: the carrier, or as imported
};
struct Choices {
  Element carrier = Element::f16;
  std::vector<LayerChoice> layers;          // per node
  std::vector<bool> rule_used, allow_used;  // whether each matched a layer
};

// Assigns roles (precision/roles.h) on the way. Contract: the graph is canonical.
Result<Choices> choose_precisions(Graph& graph, const QuantizeOptions& options);
// The precision of the command line: an error that lists them where it is unknown.
Result<const Precision*> base_precision(const std::string& name);
// Whether the graph itself states types: weights with scales, or what a layer's input is to be rounded to.
bool states_types(const Graph& graph);
// Whether this precision of attention is one of codes, whose scales are calibrated; not where it is empty or unknown.
bool attention_has_codes(std::string_view attention);
// Whether any layer could want a calibrated scale.
bool needs_ranges(const QuantizeOptions& options);

}  // namespace tessera
