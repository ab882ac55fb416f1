// SPDX-License-Identifier: Apache-2.0
// Of nodes that do the same to the same operands, the first serves all: exporters write a mask or a scalar anew for
// every layer. Small constants that hold the same bytes count as one operand. Changes no number.
#pragma once

#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

Status share_equal(Graph& graph);

}  // namespace tessera
