// SPDX-License-Identifier: Apache-2.0
// An explanation as text of at most 100 columns: the answer, then tables.
#pragma once

#include "explain/explain.h"

namespace tessera {

// `all`: every change of a layer, not only the largest.
void print_explanation(const Explanation& explanation, bool all);

}  // namespace tessera
