// SPDX-License-Identifier: Apache-2.0
// Gives every value its type. Each linear layer has the weight and the input of its precision (choose_precisions.h);
// attention reads q, k and v as asked; everything else is in the carrier (give_carrier.h). Types that the model was
// imported with stay as they are. An input in codes is rounded where it is made: its producer's program gets a
// `quantize` step, or, where the producer's result has other readers too, or no kernel of the target makes such codes,
// a `copy` does it. Error: one rounding to each type. Contract: the graph is canonical (rewrite/canonicalise.h) and in
// f32 but for imported weights.
#pragma once

#include "base/status.h"
#include "ir/graph.h"
#include "precision/choose_precisions.h"

namespace tessera {

Status quantize(Graph& graph, const QuantizeOptions& options);

// Codes and scales of a constant in this type, as a new constant of the graph. `layer` stands in messages.
Result<ValueId> quantize_constant(Graph& graph, ValueId constant, const QuantType& type, const std::string& layer);

}  // namespace tessera
