// SPDX-License-Identifier: Apache-2.0
#include "verify/rounded_weights.h"

#include <gtest/gtest.h>

#include "import/onnx/onnx.h"
#include "io/npz.h"
#include "rewrite/canonicalise.h"
#include "testing/run_graph.h"

namespace tessera {
namespace {

Graph imported(const std::string& name) {
  const auto arrays = read_npz(TS_SOURCE_DIR "/tests/data/quantized/cases.npz");
  EXPECT_TRUE(arrays.ok()) << arrays.status().message();
  for (const Array& a : *arrays) {
    if (a.name != name + ".onnx") continue;
    auto graph = import_onnx(a.data, name);
    EXPECT_TRUE(graph.ok()) << graph.status().message();
    return *std::move(graph);
  }
  ADD_FAILURE() << "no case " << name;
  return {};
}

Graph canonical(Graph graph) {
  const Status status = canonicalise(graph);
  EXPECT_TRUE(status.ok()) << status.message();
  return graph;
}

testing::Numbers result(const Graph& graph) {
  const auto out = testing::run_graph(graph, testing::random_inputs(graph, 7));
  EXPECT_TRUE(out.ok()) << out.status().message();
  return out.ok() ? (*out)[0] : testing::Numbers{};
}

TEST(RoundedWeights, AreLeftOutOnBothSides) {
  for (const char* name : {"attention", "attention_half_scale", "attention_scaled_query"}) {
    const Graph written = imported(name), found = canonical(written);
    ASSERT_TRUE(rounds_weights(found)) << name;
    const testing::Numbers plain = result(without_rounded_weights(written));
    EXPECT_GT(testing::relative_error(result(written), plain), 1e-3) << name << ": the file rounds";
    Graph attention = with_plain_attention(found);
    EXPECT_FALSE(rounds_weights(attention)) << name;
    for (Node& n : attention.nodes) {  // q, k and v are rounded as the file says: here by nobody
      for (const char* key : {"type.0", "type.1", "type.2", "scale.0", "scale.1", "scale.2"}) n.attrs.erase(key);
    }
    EXPECT_LT(testing::relative_error(result(attention), plain), 0.1) << name;
  }
}

TEST(RoundedWeights, OtherScalesStay) {
  for (const char* name : {"attention_other_scale", "attention_i8", "attention_native", "e4m3_tensor"}) {
    const Graph written = imported(name);
    EXPECT_FALSE(rounds_weights(canonical(written))) << name;
    EXPECT_EQ(result(without_rounded_weights(written)), result(written)) << name;
  }
}

}  // namespace
}  // namespace tessera
