// SPDX-License-Identifier: Apache-2.0
#include "base/refused_layers.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(RefusedLayers, TravelWithTheirStatus) {
  const Status s = refused("one layer", {{"fc1", "matmul", "fp8", {{"matmul/cpu", "too wide"}}}});
  for (const Status& now : {s, s.at("model.onnx"), s.extended("\n  advice"), Result<int>(s).status()}) {
    EXPECT_EQ(now.code(), Code::kRefused);
    ASSERT_NE(now.layers(), nullptr);
    ASSERT_EQ(now.layers()->size(), 1u);
    EXPECT_EQ((*now.layers())[0].layer, "fc1");
    EXPECT_EQ((*now.layers())[0].refusals, (std::vector<Refusal>{{"matmul/cpu", "too wide"}}));
  }
  EXPECT_EQ(s.at("model.onnx").message(), "model.onnx: one layer");
  EXPECT_EQ(s.extended("\n  advice").message(), "one layer\n  advice");
  EXPECT_EQ(refused("no layer").layers(), nullptr);
  EXPECT_EQ(refused("no layer", {}).layers(), nullptr);
  EXPECT_TRUE(Status().extended("more").ok());
}

}  // namespace
}  // namespace tessera
