// SPDX-License-Identifier: Apache-2.0
#include "archs/cpu/workers.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Workers, AreWokenForWorkThatIsWorthIt) {
  const auto pool = make_pool(4);
  const UsePool use(pool.get());
  constexpr int64_t kSquare = 1 << 10;  // rows, columns
  EXPECT_EQ(workers_for(0, 0), 1);
  EXPECT_EQ(workers_for(64, 192 * 64), 1) << "a layer of a model that runs in microseconds";
  EXPECT_EQ(workers_for(197, int64_t{768} * 768), 4);
  EXPECT_EQ(workers_for(1, int64_t{4096} * 4096), 4) << "one row reads all weights";
  EXPECT_EQ(workers_for(kSquare, int64_t{3} * kLeastProductsPerThread / kSquare), 3);
  EXPECT_EQ(workers_for(int64_t{1} << 20, int64_t{1} << 34), 4) << "no more than there are";
  const auto one = make_pool(1);
  const UsePool alone(one.get());
  EXPECT_EQ(workers_for(197, int64_t{768} * 768), 1);
}

}  // namespace
}  // namespace tessera
