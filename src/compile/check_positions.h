// SPDX-License-Identifier: Apache-2.0
// Whether a model with caches computes something from the length of its past: position ids as Range(past, past + new),
// rows of a position table. In an engine, whose past_length is known only while running, such numbers would stay those
// of a full cache. Found by importing the model a second time with one row less of past: a number that is then another
// one depends on that length.
#pragma once

#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

// The same model as written, imported with another length of its past. Values of another shape (masks, the caches
// themselves) may differ; what they hold is checked by rewrite/keep_caches.h.
Status check_positions(const Graph& full, const Graph& shorter);

}  // namespace tessera
