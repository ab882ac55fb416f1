// SPDX-License-Identifier: Apache-2.0
#include "calibrate/row_offsets.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ir/text.h"
#include "rewrite/canonicalise.h"

namespace tessera {
namespace {

// Rows of 0 ... 3 and of 10 ... 13: means of 1.5 and 11.5, a variance of 1.25 each.
TEST(RowOffsets, AreMeansInDeviations) {
  auto graph = parse_graph(R"(graph rows {
  in %x: f32[2,4]
  const %gain: f32[4] = seed(1)
  %layer: f32[2,4] = norm(%x, %gain) {eps=0.0, kind="layer"} @"layer"
  %rms: f32[2,4] = norm(%x, %gain) {eps=0.0, kind="rms"} @"rms"
  %y: f32[2,4] = map(%layer, %rms) {fn="add"} @"y"
  out %y
})");
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  ASSERT_TRUE(canonicalise(*graph).ok());
  Samples samples;
  samples.count = 2;
  Buffer numbers(8 * sizeof(float));
  const float rows[8] = {0, 1, 2, 3, 10, 11, 12, 13};
  std::memcpy(numbers.data(), rows, sizeof(rows));
  samples.data.push_back(Bytes::own(std::move(numbers)));
  const auto offsets = measure_row_offsets(*graph, samples);
  ASSERT_TRUE(offsets.ok()) << offsets.status().message();
  ASSERT_EQ(offsets->size(), 1u) << "an RMSNorm subtracts nothing";
  EXPECT_NEAR(offsets->at("layer"), std::sqrt((1.5 * 1.5 + 11.5 * 11.5) / 2 / 1.25), 1e-6);
}

}  // namespace
}  // namespace tessera
