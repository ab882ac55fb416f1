// SPDX-License-Identifier: Apache-2.0
// Power of the checks: results that a broken kernel would give must be caught. Mutations change results (zero, negated,
// a factor of 1.01, a row, a tile ...) or are the results of a kernel that reads its operands wrongly (the end of k
// missing, bias of the next channel, k for v, no mask, statistics of another row ...). A mutation that changes bits and is
// accepted fails the test; one that changes none of many results says that the numbers are too tame, and fails it too.
// With TESSERA_POWER=FILE.json what was caught is added to that file: variant -> mutation -> [caught, changed].
#pragma once

#include <string>
#include <vector>

#include "testing/variant_harness.h"

namespace tessera {

// `got` is what a kernel gave, or what the judge says that it may give.
void expect_mutations_caught(const Variant& variant, const Case& c, const Judge& judge, const std::vector<HostTensor>& got);

// The same for whoever has no device: a fake kernel gives what the judge allows. Contract: the variant accepts the problem;
// its results have static scales or none.
void expect_power(const Variant& variant, const Problem& problem, uint64_t seed, Adjust adjust = nullptr);

// "9/9" for a bench: mutations of these results that were caught, of those that changed bits.
std::string mutations_caught(const Judge& judge, const std::vector<HostTensor>& got);

}  // namespace tessera
