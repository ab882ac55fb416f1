// SPDX-License-Identifier: Apache-2.0
// Models that state their types (QuantizeLinear and DequantizeLinear in every form, tests/data/quantized): nothing is
// found in their plans; a code that is not the file's, and a scale of an activation that is not, are.
#include <gtest/gtest.h>

#include <cstring>

#include "import/onnx/onnx.h"
#include "io/npz.h"
#include "precision/choose_precisions.h"
#include "precision/roles.h"
#include "rewrite/canonicalise.h"
#include "testing/planted.h"

namespace tessera {
namespace {

using namespace testing;

const std::vector<PlantedModel>& models() {
  static const std::vector<PlantedModel> all = [] {
    std::vector<PlantedModel> found;
    const auto arrays = read_npz(TS_SOURCE_DIR "/tests/data/quantized/cases.npz");
    EXPECT_TRUE(arrays.ok()) << arrays.status().message();
    for (const Array& a : *arrays) {
      if (!a.name.ends_with(".onnx")) continue;
      auto graph = import_onnx(a.data, a.name);
      EXPECT_TRUE(graph.ok() && canonicalise(*graph).ok()) << a.name;
      found.push_back(graph_model(a.name, *std::move(graph)));
    }
    return found;
  }();
  return all;
}

TEST(PlantedImported, NothingIsFoundWhereNothingIs) {
  int lowered = 0;
  for (const PlantedModel& m : models()) lowered += expect_none_found(m, {kImported});
  std::printf("%d lowerings of %zu models\n", lowered, models().size());
  EXPECT_GT(lowered, 20);
}

TEST(PlantedImported, OneCodeThatIsNotTheFiles) {
  const Fault fault{"one code off by two", [](Graph& g) -> std::string {
                      for (Node& n : g.nodes) {
                        if (!is_linear(g, n) || n.name.empty() || !g.at(n.inputs[1]).type.quant.scaled()) continue;
                        const std::string layer = n.name;
                        Value& w = own_constant(g, n, 1);
                        set_code(w, 3, two_steps_off(info(w.type.quant.element), code_at(w, 3)));
                        return layer;
                      }
                      return "";
                    }};
  expect_caught({fault}, models(), {kImported});
}

TEST(PlantedImported, AScaleThatTheModelDoesNotState) {
  const Fault fault{"activation scale a little larger", [](Graph& g) -> std::string {
                      for (const Node& n : g.nodes) {
                        const ValueId scale = n.op == "view" || n.name.empty() ? kNoValue : g.at(n.outputs[0]).scale;
                        if (scale == kNoValue) continue;
                        Buffer bytes(4);
                        const float other = static_cast<float>(g.numbers(scale)[0] * 1.001);
                        std::memcpy(bytes.data(), &other, 4);
                        g.at(scale).data = Bytes::own(std::move(bytes));
                        return n.name;
                      }
                      return "";
                    }};
  expect_caught({fault}, models(), {kImported});
}

}  // namespace
}  // namespace tessera
