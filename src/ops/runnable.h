// SPDX-License-Identifier: Apache-2.0
// The one question that passes and planner ask a target: may a variant run a problem there, in the precision that its
// operands are stored in? Passes ask with the types that a node has now, the planner with those that it will run in.
#pragma once

#include <vector>

#include "archs/arch.h"
#include "ir/graph.h"
#include "op/op.h"

namespace tessera {

// Whether products made in `computed` are what the arch promises for operands stored in this type.
//   GPU   the stored element, where the arch multiplies it (archs/archs.inc). Otherwise the element is storage only,
//   and
//         products are made in what the type says (w4a8: e4m3), else in an element that holds every code exactly:
//         "stored e2m1, computed fp16"
//   host  any: there the promise is about storage
// Integers without scales are indices: no precision applies.
bool keeps_promise(Arch arch, const QuantType& stored, Element computed);
// Whether `computed` keeps what the problem's own operands promise; what multiplies nothing keeps any promise.
bool keeps_promise(Arch arch, const OpInfo& op, const Problem& problem, Element computed);

// Whether the variant runs on the target, accepts the problem and keeps the promise; else its reason.
Verdict runnable(const OpInfo& op, const Variant& variant, const Problem& problem, Arch target);
// Whether any variant is. `and_fast`: one that is not slow at it (Variant::worthwhile).
bool runnable(const Problem& problem, Arch target, bool and_fast = false);
// `producers`: Graph::producers().
bool runnable(const Graph& graph, const std::vector<int>& producers, const Node& node, Arch target);

}  // namespace tessera
