// SPDX-License-Identifier: Apache-2.0
// places[..., j] = where the j-th greatest number of x[..., :] stands (attr `least`: the j-th least), j < attr `k`. Of
// equal numbers the one that stands first comes first; a NaN is greater than any number. The numbers themselves are
// what a gather reads at these places.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>

#include "op/op.h"

namespace tessera {

struct TopkProblem {
  int64_t rows = 0, cols = 0, k = 0;
  bool least = false;
  QuantType x, y;

  // Contract: x is dense.
  static TopkProblem of(const Problem& p);

  // `order` becomes a list of all `cols` places, the first k of which are those that are asked for.
  template <class T>
  void sort(const T* row, int64_t* order) const {
    const auto before = [&](int64_t a, int64_t b) {
      const T x = row[a], y = row[b];
      if (std::isnan(x) || std::isnan(y)) {
        if (std::isnan(x) && std::isnan(y)) return a < b;
        return std::isnan(x) != least;
      }
      return x == y ? a < b : (x > y) != least;
    };
    std::iota(order, order + cols, int64_t{0});
    std::partial_sort(order, order + k, order + cols, before);
  }
};

}  // namespace tessera
