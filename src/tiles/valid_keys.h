// SPDX-License-Identifier: Apache-2.0
// Which keys of an attention exist where a number on the device says how many there are (ops/attention/attention.h has
// the meaning). Host and device, constexpr: tested on the CPU.
//   keys [0, old) were there before, [old, all) are the `fresh` ones right behind them; the others do not exist
//   the bias has the fresh ones at its end: key j < old reads column j, the others column j + gap
#pragma once

#include "types/small_float.h"

namespace tessera {

template <class Int>
struct ValidKeys {
  Int old, all, gap;

  // Keys that a query sees, from key 0 on; 0: none.
  TS_HOST_DEVICE constexpr Int seen_by(Int query, Int queries, bool causal) const {
    if (!causal) return all;
    const Int seen = query + all - queries + 1;
    return seen < 0 ? 0 : seen < all ? seen : all;
  }
  TS_HOST_DEVICE constexpr Int bias_column(Int key) const { return key < old ? key : key + gap; }
};

// Of `keys` that there is memory for. Whatever the number, no key outside that memory is valid.
template <class Int>
TS_HOST_DEVICE constexpr ValidKeys<Int> valid_keys(Int length, Int keys, Int fresh) {
  const Int most = keys - fresh, old = length < 0 ? 0 : length < most ? length : most;
  return {old, old + fresh, most - old};
}
// Without such a number: all keys.
template <class Int>
TS_HOST_DEVICE constexpr ValidKeys<Int> all_keys(Int keys) {
  return {keys, keys, 0};
}

}  // namespace tessera
