// SPDX-License-Identifier: Apache-2.0
// What zeros behind the end of a model's arrays change in its results: the model at a length and at a larger one, in
// f64 with each value rounded to f32, on seeded inputs; the second time they are padded with zeros, and results are
// cut. An input that acts as a mask (precision/masks.h), or is called one, is 1 at all tokens, so that its zeros hide
// what is added; ids are drawn from their tables, other inputs are random. Bound, relative L2: how far one rounding to
// f32 of every sum moves the results (golden_run.h, bound_from), and at most 2^-12.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

// What padding changes, or why that cannot be seen, in a sentence; empty: nothing. Both graphs are canonical, with the
// same inputs and outputs, of which `padded` has the larger shapes.
Result<std::string> what_padding_changes(const Graph& exact, const Graph& padded, uint64_t seed);

}  // namespace tessera
