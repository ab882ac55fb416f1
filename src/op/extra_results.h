// SPDX-License-Identifier: Apache-2.0
// Results of a matmul beside the first, made of its numbers before their last rounding: codes of it, and the moments of
// its rows (steps/row_moments.h), which the next layer's step `normalise` reads.
#pragma once

#include "op/problem.h"
#include "steps/row_moments.h"

namespace tessera {

// Attributes of a matmul that has such results, in this order.
inline constexpr const char* kCodesResult = "codes";
inline constexpr const char* kMomentsResult = "moments";
struct ExtraResults {
  int codes = 0, moments = 0;  // which result; 0: none
  static ExtraResults of(const Attrs& attrs);
};

// A norm of which this problem does one of both ends.
inline bool has_folded_norm(const Problem& p) {
  return p.out.size() > 1 || p.then.find(StepKind::normalise) != nullptr;
}
inline constexpr const char* kNoFoldedNorm = "neither writes moments of rows nor reads them";

}  // namespace tessera
