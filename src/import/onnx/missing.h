// SPDX-License-Identifier: Apache-2.0
// What a model has that is not supported, and what its owner can do about it.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "import/onnx/reader.h"

namespace tessera {

bool is_if(const OnnxNode& node);

// Names that follow from the file alone: its tensors, and what nodes make of nothing else.
std::unordered_set<std::string> constant_names(const OnnxModel& model);

// One sentence for all operators that are missing: every one once, with how many nodes want it and the first of them,
// then what helps; empty where none is.
std::string unsupported_operators(const std::vector<OnnxNode>& nodes, const std::unordered_set<std::string>& constants);

}  // namespace tessera
