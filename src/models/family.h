// SPDX-License-Identifier: Apache-2.0
// Families by name: the canonical graph of a model whose weights a checkpoint holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"
#include "models/zoo.h"

namespace tessera {

std::vector<std::string> family_names();
// f32 but for weights that the checkpoint holds in codes (models/layer_builder.h); the batch is fixed. The graph's name
// says which files it was made from, and which of their tensors the family knows to have no effect; any other tensor
// that it does not read is an error.
Result<Graph> family_graph(const std::string& family, const std::string& folder, const FamilySizes& sizes);

}  // namespace tessera
