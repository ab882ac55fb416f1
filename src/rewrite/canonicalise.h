// SPDX-License-Identifier: Apache-2.0
// The one list of passes that brings a graph, as imported or built, into the form that quantize and plan expect:
// constants folded, patterns recognised, epilogues fused, every operand readable as it lies, no dead nodes, and every
// layer and value with a name of its own. The graph is checked (ir/check.h, check_ops) before and after; its error is
// the sum of its passes': roundings fall in fewer places, none is added.
#pragma once

#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

Status canonicalise(Graph& graph);

}  // namespace tessera
