// SPDX-License-Identifier: Apache-2.0
// What a constant operand of a plan's step is in the model: the same operand of the layer that the step computes, by
// the step's layer and the operand's role, never by the constant's own name. Where passes make one constant of several,
// it is made again here, in f64:
//   folded norm    w diag(gain), each row less its mean (RMSNorm: as it is); bias + w shift      (steps/row_moments.h)
//   plain norm     the same: the norm's kernel has neither gain nor shift                        (lower/fold_norms.h)
//   adaRMS         weights as they are; what is in the bias: table_rows.h
//   gate           the rows of both layers, or both halves of one                                (lower/fuse_gate.h)
//   joined layers  the rows of all; 0 or 1 in a vector that one of them does not have            (lower/join_layers.h)
//   unfused steps  the vector of the step that a map took over                                   (rewrite/unfuse.h)
//   padding        zeros between its rows or columns, as the step says                           (ir/padding.h)
#pragma once

#include <vector>

#include "plan/plan.h"
#include "verify/validate/model_values.h"
#include "verify/validate/validate_constants.h"

namespace tessera {

// The norm whose result a layer of the model reads; null where it reads something else.
const Node* norm_before(const ModelValues& model, const Node& layer);
// The rotary that turns the whole result of a layer of the model; null where there is none.
const Node* rotary_behind(const ModelValues& model, const Node& layer);
// Whether the norm has neither gain nor shift.
bool is_plain(const Node& norm);

// Those that operand `operand` may stand for, the likeliest first; none where the model has no such constant there.
// `layer`: the layer of the model that the step computes, whole or in part. `plain`: it reads a norm without gain and
// shift. `stored`: the shape that the operand has.
std::vector<Counterpart> counterparts(const ModelValues& model, const PlanStep& step, size_t operand, const Node& layer,
                                      bool plain, const Shape& stored);

}  // namespace tessera
