// SPDX-License-Identifier: Apache-2.0
// Gives every value its type. The precision asked for is the type of every linear layer of the blocks; embedding, head,
// norms and the residual stream are in the carrier (fp16 for fp8); the caller's inputs and outputs, masks of attention
// and angles of rotary stay f32. A quantized input is rounded where it is made: its producer's program gets a
// `quantize` step, or, where the producer's result has other readers too, a `copy` does it. Error: one rounding to each
// type.
// Contract: the graph is canonical (passes/canonicalise.h) and in f32.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "archs/arch.h"
#include "base/status.h"
#include "ir/graph.h"
#include "ir/ranges.h"

namespace tessera {

struct Precision {
  const char* name;
  QuantType weight, activation;
  Element carrier;
  bool needs_ranges() const { return activation.scaled() && !activation.dynamic; }
};
// Null for an unknown name.
const Precision* find_precision(const std::string& name);
std::vector<std::string> precision_names();

// "blocks.*.mlp.fc2=fp16": layers that the user accepts in another precision. `*` and `?` match any characters.
struct Allowance {
  std::string pattern, precision;
};
Result<Allowance> parse_allowance(const std::string& text);

struct QuantizeOptions {
  std::string precision = "fp16";
  std::vector<Allowance> allow;
  const Ranges* ranges = nullptr;
  // Where the caller's f32 inputs and outputs meet the carrier, a kernel of this arch that reads both spares a cast;
  // nothing: every reader gets a cast.
  std::optional<Arch> target;
};

// "embed", "block" or "head" for each matmul with a constant weight: no other layer (linear, norm, attention) before it; layers on both sides, or a residual
// that it adds to; no other layer after it.
void assign_roles(Graph& graph);
Status quantize(Graph& graph, const QuantizeOptions& options);

}  // namespace tessera
