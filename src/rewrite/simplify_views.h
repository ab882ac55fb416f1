// SPDX-License-Identifier: Apache-2.0
// Views of views become views of the value that owns the storage; views that show all of it unchanged vanish; a copy is
// skipped wherever its source is dense already or strides can say what is read of it. Copies without readers
// are left for drop_dead. Changes no number.
#pragma once

#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

Status simplify_views(Graph& graph);

}  // namespace tessera
