// SPDX-License-Identifier: Apache-2.0
// 2:4 sparsity of linear layers: of each four numbers along k at most two are not zero. Which ones are kept:
//   magnitude   the largest; of equal ones the lower places; nothing else changes
//   hessian     those that calibration data miss most, the others changed to make up for them (compensate.h)
// A pruned layer carries the attribute `sparse24` = 1, which lets variants store and multiply half of it.
#pragma once

#include <string>

#include "base/status.h"
#include "weights/compensate.h"

namespace tessera {

enum class SparsityMethod : uint8_t { kMagnitude, kHessian };

struct Sparsity {
  SparsityPattern pattern = SparsityPattern::kDense;
  SparsityMethod method = SparsityMethod::kMagnitude;
};
// "2:4" or "4:8" (pairs), and "magnitude" or "hessian".
Result<Sparsity> parse_sparsity(const std::string& pattern, const std::string& method);
std::string to_string(const Sparsity& sparsity);  // "2:4 by magnitude"

// Makes what is not kept +0. Pairs: of two pairs with the same sum of squares the lower one is kept.
void prune_by_magnitude(SparsityPattern pattern, float* w, int64_t rows, int64_t cols);
// 1 where a number is not zero; where a group has fewer than the pattern keeps, nothing more.
std::vector<uint8_t> kept_places(const std::vector<float>& w);

}  // namespace tessera
