// SPDX-License-Identifier: Apache-2.0
// What a step reads of a row that one gather picks of tables side by side (lower/join_gathers.h). Whose columns they
// are says the reader, as with constants (counterparts.h): its layer and the operand's role. All rows of those columns
// are held against the model, number by number; the row that is picked is then the model's.
//   vector of the model      columns of the table that the model picks the same row of
//   bias of a folded norm    b + w shift, of each row of the shift's table                       (lower/fold_one.h)
//   gain of codes            that of a norm over the layer's result
//   joined layers            one after the other
#pragma once

#include <optional>
#include <vector>

#include "plan/plan.h"
#include "verify/validate/model_values.h"
#include "verify/validate/validate_constants.h"

namespace tessera {

struct TableColumns {
  Counterpart columns;         // [columns, rows of the table]
  Place ids;                   // what picks the row
  std::optional<Place> place;  // the value of the model that they are
  std::vector<double> picked;  // where they are none: of the row that is picked
};

// Those that operand `operand` may stand for, none where the model picks no row there. `layer`: the layer of the model
// that the step computes.
Result<std::vector<TableColumns>> table_columns(ModelValues& model, const PlanStep& step, size_t operand,
                                                const Node& layer);

// The norm of the model over this value whose gain is that place; null: there is none.
const Node* norm_with_gain(const ModelValues& model, ValueId x, const Place& gain);
// Whether the norm's gain is no constant.
bool is_modulated(const ModelValues& model, const Node& norm);

}  // namespace tessera
