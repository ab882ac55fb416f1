// SPDX-License-Identifier: Apache-2.0
// Every float value takes the carrier's element (f32, f16, bf16), and constants are rounded to it. These keep f32: the
// caller's inputs and outputs, values that the graph calls exact, masks of attention, angles of rotary, moments of
// rows, and whatever reaches beyond the carrier (reach.h): nothing saturates by luck. A caller's value is read as it is
// where a kernel of the target can; else it meets the carrier in a copy. A value beyond the carrier has no such copy:
// where no kernel reads it as it is, the layer is refused.
#pragma once

#include <functional>
#include <optional>
#include <set>

#include "archs/arch.h"
#include "base/status.h"
#include "ir/graph.h"
#include "ir/ranges.h"

namespace tessera {

struct CarrierOptions {
  Element carrier = Element::f16;
  std::optional<Arch> target;      // nothing: every reader of a caller's value gets a cast
  std::set<ValueId> keep;          // values that have their type already
  const Ranges* ranges = nullptr;  // calibrated ones, where there are any
  // Reads that will get codes of their own: no cast for them.
  std::function<bool(size_t node, size_t input)> has_codes;
};
// Nodes may be added: new_places[n] is where node n is now. Refuses weights that the carrier cannot hold, and results
// beyond it that no kernel reads in f32.
Status give_carrier(Graph& graph, const CarrierOptions& options, std::vector<size_t>& new_places);

}  // namespace tessera
