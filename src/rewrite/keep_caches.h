// SPDX-License-Identifier: Apache-2.0
// Pairs of an input and an output become states (ir/graph.h). The form that exporters give a KV cache,
//   present = concat(past, new) along the tokens        attention(q, present, ...)
// where past has as many rows as the model was imported with, becomes a cache of present's size, of which a number that
// is known only while running says how much is valid:
//   after = write(before, new) at row past_length        attention(q, after, ..., past_length) {fresh = rows of new}
// so that a plan serves every length up to its own, and nothing is copied. `past_length` is a new input, i32 [batch].
// Keys of the cache are in the order of their arrival; masks keep the order of the model, whose columns are the past's
// rows first (ops/attention/attention.h). With past_length = rows of past, both forms compute the same.
// An output of its input's own shape (a running mean) becomes a state as it is.
// Error: 0. Contract: the graph is canonical.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"

namespace tessera {

inline constexpr const char* kPastLength = "past_length";

// Names of an input and of the output that the next run finds in its place; a `*` stands for the same text in both.
struct StatePattern {
  std::string input, output;
  bool operator==(const StatePattern&) const = default;
};
// "past_key_values.*=present.*"
Result<StatePattern> parse_state_pattern(const std::string& text);

// An error where a pattern fits no input, its output is missing, or a past is read by more than its own attention.
Status keep_caches(Graph& graph, const std::vector<StatePattern>& patterns);

}  // namespace tessera
