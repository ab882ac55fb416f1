// SPDX-License-Identifier: Apache-2.0
// What `verify` found, as tables and as JSON. Arithmetic error: an engine's plan beside its golden plan on the same
// codes. Quantization error: the golden plan beside the model in f32.
#pragma once

#include <string>
#include <vector>

#include "cli/output.h"
#include "study/verify.h"

namespace tessera {

struct Check {
  std::string what;  // "golden values", "normal, seed 2", "in.npz"
  VerifyReport report;
};

Json check_json(const Check& check);
Json quantization_json(const QuantizationReport& report);

// `all`: every layer; else the few that are worst.
void print_checks(const std::vector<Check>& checks, bool all);
void print_quantization(const std::vector<QuantizationReport>& reports, bool all);

// The failure that says most: a layer, else golden values that layers do not explain, else an output; empty where there
// is none.
std::string failure_of(const std::vector<Check>& checks);

}  // namespace tessera
