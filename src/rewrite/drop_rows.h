// SPDX-License-Identifier: Apache-2.0
// Rows without readers are not computed. Where every read of a value takes the same few indices of one of its axes
// (the class token of each image), and its maker works on each index by itself (norms, linear layers, maps, the queries
// of an attention), the maker is given those alone; and so on upwards. Each row's numbers stay the same. A value is cut
// where at least half of it goes away and its maker reads the remaining rows where they lie. Contract: views are
// merged.
#pragma once

#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

Status drop_rows(Graph& graph);

}  // namespace tessera
