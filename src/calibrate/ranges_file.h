// SPDX-License-Identifier: Apache-2.0
// Ranges as a file that people read, edit and use again: JSON, one value per line.
//   {"tessera": "ranges 1", "model": "vit", "weights": "90ab...", "method": "amax", "how": "...", "samples": 512,
//    "preprocess": "", "warnings": [], "checksum": "...",
//    "values": {"NAME": {"amax": 3.25, "percentiles": {"99": 2.5, ...}, "mse": {"e4m3": 3.1, ...}, "clip": 3}, ...}}
// `clip` is never written by the program: it is how a user sets one, whatever the method. Numbers read back bit-equal.
// `checksum` is of all the rest; where it does not fit, `how` says that the file was edited. `how` names the method in
// use.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "ir/graph.h"
#include "ir/ranges.h"

namespace tessera {

std::string print_ranges(const Ranges& ranges);
Result<Ranges> parse_ranges(std::string_view text);

// By its first bytes: JSON rather than an archive.
bool is_ranges_text(std::string_view text);

// Names of the values of a canonical graph that ranges are recorded for: floating-point inputs and results of nodes.
std::vector<std::string> ranged_values(const Graph& graph);
// Made for this model, and complete for their method: every value is there, and no other.
Status check_ranges(const Ranges& ranges, const Graph& graph);
// The same data by another method; `how` follows.
void use_method(Ranges& ranges, const RangeMethod& method);

}  // namespace tessera
