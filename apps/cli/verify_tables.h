// SPDX-License-Identifier: Apache-2.0
// What `verify` found, as tables.
#pragma once

#include <vector>

#include "cli/output.h"
#include "verify/verdicts.h"

namespace tessera {

// `all`: every layer; else the few that are worst.
void print_checks(const std::vector<VerifyCheck>& checks, bool all);
void print_quantization(const std::vector<QuantizationReport>& reports, bool all);

}  // namespace tessera
