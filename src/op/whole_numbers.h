// SPDX-License-Identifier: Apache-2.0
// Integers without scales are whole numbers, and ops compute on them as such: floats become them towards zero, a mean
// divides towards zero, sums are exact. Integer codes under scales stand for any number, as codes of floats do.
#pragma once

#include "types/quant_type.h"

namespace tessera {

inline bool is_whole(const QuantType& type) {
  return info(type.element).kind == ElementKind::kInteger && !type.scaled();
}

}  // namespace tessera
