// SPDX-License-Identifier: Apache-2.0
// What a plan of an engine is made for: a batch size and, where the model's lengths have buckets, one of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tessera {

struct PlanCase {
  int64_t batch = 1;
  std::map<std::string, int64_t> sizes = {};  // by the family's names; empty: those of the build, no buckets
  // Larger buckets first: an engine's first plan takes whatever the others take.
  bool operator<(const PlanCase& other) const;
  bool operator==(const PlanCase&) const = default;
  std::string name() const;  // "batch8", "prompt48.views2.batch1"
};

// Every batch with every number of each size, in order, each once. No batch: 1.
std::vector<PlanCase> cases_of(const std::vector<int64_t>& batches,
                               const std::map<std::string, std::vector<int64_t>>& buckets);

}  // namespace tessera
