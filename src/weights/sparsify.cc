// SPDX-License-Identifier: Apache-2.0
#include "weights/sparsify.h"

#include <algorithm>

#include "types/sparse24.h"

namespace tessera {

Result<Sparsity> parse_sparsity(const std::string& pattern, const std::string& method) {
  Sparsity out;
  if (pattern == "2:4") {
    out.pattern = SparsityPattern::k24;
  } else if (pattern == "4:8") {
    out.pattern = SparsityPattern::k48Pairs;
  } else {
    return usage_error(cat("sparsity '", pattern, "' is unknown; accepted: 2:4, 4:8 (in pairs)"));
  }
  if (method == "hessian") {
    out.method = SparsityMethod::kHessian;
  } else if (method != "magnitude") {
    return usage_error(cat("sparsity by '", method, "' is unknown; accepted: magnitude, hessian"));
  }
  return out;
}

std::string to_string(const Sparsity& sparsity) {
  if (sparsity.pattern == SparsityPattern::kDense) return "dense";
  return cat(sparsity.pattern == SparsityPattern::k24 ? "2:4" : "4:8 in pairs",
             sparsity.method == SparsityMethod::kHessian ? " by hessian" : " by magnitude");
}

void prune_by_magnitude(SparsityPattern pattern, float* w, int64_t rows, int64_t cols) {
  if (pattern == SparsityPattern::kDense) return;
  if (pattern == SparsityPattern::k24) return prune24(w, rows, cols);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; c += 4) {
      float* group = w + r * cols + c;
      const int n = static_cast<int>(std::min<int64_t>(4, cols - c));
      double pair[2] = {};
      for (int i = 0; i < n; ++i) pair[i / 2] += static_cast<double>(group[i]) * group[i];
      const int pruned = pair[1] > pair[0] ? 0 : 1;
      for (int i = 2 * pruned; i < std::min(n, 2 * pruned + 2); ++i) group[i] = 0;
    }
  }
}

std::vector<uint8_t> kept_places(const std::vector<float>& w) {
  std::vector<uint8_t> kept(w.size());
  for (size_t i = 0; i < w.size(); ++i) kept[i] = w[i] != 0;
  return kept;
}

}  // namespace tessera
