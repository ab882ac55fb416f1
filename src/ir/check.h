// SPDX-License-Identifier: Apache-2.0
// Verifier: what every pass may rely on and must leave behind. Each value is made once and before it is read, constants
// hold as many bytes as their type says, views stay inside their base, programs name operands that are there. That
// types follow from the ops is checked a level higher (ops/builder.h: check_ops).
#pragma once

#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

Status check(const Graph& graph);

}  // namespace tessera
