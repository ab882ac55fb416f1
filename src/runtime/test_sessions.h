// SPDX-License-Identifier: Apache-2.0
// What tests of sessions share: engines of counting_engine's graphs, and what their schedule gives.
#pragma once

#include <algorithm>
#include <vector>

#include "runtime/test_engine.h"

namespace tessera {

inline constexpr int64_t kRows = kCountedRows, kCols = kCountedCols;
inline constexpr size_t kCount = kCounted;

inline std::vector<float> after(const std::vector<float>& x, int steps) {
  std::vector<float> y = x;
  for (size_t i = 0; i < y.size(); ++i) y[i] += static_cast<float>(steps) * test_weight(static_cast<int64_t>(i));
  return y;
}

// The same graphs over one row of samples: `begin` has a plan for all four rows and one for the first two.
inline Engine bucketed_engine(Arch arch = Arch::cpu) {
  Engine e = counting_engine(arch);
  const int64_t rows = 4;
  const auto reshape = [](Plan& p, int64_t n) {
    p.batch = 1;
    for (PlanTensor& t : p.tensors) t = test_tensor(t.name, {1, n, kCols}, t.storage, t.index);
    p.arena_bytes = p.arena_bytes > 0 ? n * kCols * 4 : 0;
  };
  Buffer w(static_cast<size_t>(rows * kCols) * 4);
  for (int64_t i = 0; i < rows * kCols; ++i) {
    const float v = test_weight(i);
    std::memcpy(w.data() + 4 * i, &v, 4);
  }
  e.constants[0].data = Bytes::own(std::move(w));
  e.states[0].bytes = rows * kCols * 4;
  e.plans.push_back(e.plans[0]);
  for (Plan& p : e.plans) reshape(p, rows);
  reshape(e.plans[2], 2);
  e.plans[0].name = "begin.rows4", e.plans[0].sizes = {{"rows", 4}};
  e.plans[2].name = "begin.rows2", e.plans[2].sizes = {{"rows", 2}};
  return e;
}

// What the schedule leaves after x of a few rows, or of all.
inline void take_rows(std::vector<float>& kept, const std::vector<float>& x) {
  std::copy(x.begin(), x.end(), kept.begin());  // the rows behind stay
  for (size_t i = 0; i < kept.size(); ++i) kept[i] += 10 * test_weight(static_cast<int64_t>(i));
}

}  // namespace tessera
