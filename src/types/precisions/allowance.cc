// SPDX-License-Identifier: Apache-2.0
#include "types/precisions/allowance.h"

namespace tessera {

Result<Allowance> parse_allowance(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    return usage_error(cat("--allow '", text, "': wanted LAYER=PRECISION, for example 'blocks.*.mlp.fc2=fp16'"));
  }
  Allowance allowance{text.substr(0, equals), text.substr(equals + 1)};
  if (find_precision(allowance.precision) == nullptr) {
    return usage_error(
        cat("--allow '", text, "': precision '", allowance.precision, "' is unknown; accepted: ", precision_list()));
  }
  return allowance;
}

}  // namespace tessera
