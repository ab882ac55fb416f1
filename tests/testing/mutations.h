// SPDX-License-Identifier: Apache-2.0
// Power of the checks: results that a broken kernel would give must be caught. Mutations change results (zero, negated,
// a factor of 1.01, a row, a tile ...) or are the results of a kernel that reads its operands wrongly (the end of k
// missing, bias of the next channel, k for v, no mask, statistics of another row ...). A mutation that changes bits and
// is accepted fails the test; one that changes none of many results says that the numbers are too tame, and fails it
// too. With TESSERA_POWER=FILE.json what was caught is added to that file: variant -> mutation -> [caught, changed].
#pragma once

#include <string>
#include <vector>

#include "testing/variant_harness.h"

namespace tessera {

// Mutated results of a case, as its judge sees them.
void expect_mutations_caught(const Variant& variant, const Case& c, const Judge& judge);

// Results and operands mutated, for whoever has no device too: a fake kernel gives what the judge allows. Large
// problems are cut to a few rows and columns. Contract: the variant accepts the problem.
void expect_power(const Variant& variant, const Problem& problem, uint64_t seed, Adjust adjust = nullptr);

// Of every variant of the op, on the problems that it accepts.
void expect_power_of_all(const OpInfo& op, const std::vector<Problem>& problems, Adjust adjust = nullptr);

// "8/8" for a bench: mutations of results like these that are caught, of those that change bits.
std::string mutations_caught(const Judge& judge, const std::vector<HostTensor>& like);

}  // namespace tessera
