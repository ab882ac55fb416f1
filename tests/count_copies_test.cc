// SPDX-License-Identifier: Apache-2.0
// No copy and no cast is left in the CPU plans of the exported models (tests/data/models/make.py), in fp32 and in fp16.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "compile/compile.h"
#include "import/onnx/onnx.h"
#include "io/npz.h"
#include "plan/count_copies.h"
#include "rewrite/canonicalise.h"

namespace tessera {
namespace {

const std::string kFolder = TS_SOURCE_DIR "/tests/data/models/";

std::vector<std::string> models() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".onnx") out.push_back(entry.path().stem());
  }
  std::sort(out.begin(), out.end());
  return out;
}

class CountCopiesTest : public ::testing::TestWithParam<std::string> {};

TEST_P(CountCopiesTest, NoneIsLeft) {
  const auto arrays = read_npz(kFolder + GetParam() + ".npz");
  ASSERT_TRUE(arrays.ok()) << arrays.status().message();
  OnnxOptions options;
  for (const Array& a : *arrays) {
    if (!a.name.starts_with("expected_")) options.shapes[a.name] = a.shape;
  }
  auto graph = import_onnx(kFolder + GetParam() + ".onnx", options);
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  const Status status = canonicalise(*graph);
  ASSERT_TRUE(status.ok()) << status.message();
  // Attention has no soft cap: gemma2's is written out, with five copies (q, k, v twice, result) in each layer.
  // segformer_hand: patches of keys, two of Resize, the result with its channels first; unet_hand: two group norms,
  // twice each, the blocks of a transposed convolution, the result; swin, tinyvit, sam: windows and back, patches;
  // mvit, sam: what positions are multiplied with. Casts: of the result, whose copy makes f32 of 16 bits.
  const std::map<std::string, CopyCount> known = {
      {"segformer_hand", {.copies = 4, .casts = 1}}, {"unet_hand", {.copies = 6, .casts = 1}},
      {"swin_ts17", {.copies = 7, .casts = 0}},      {"tinyvit_ts17", {.copies = 6, .casts = 0}},
      {"mvit_ts17", {.copies = 6, .casts = 0}},      {"sam_ts17", {.copies = 10, .casts = 1}}};
  const auto of_images = known.find(GetParam());
  const CopyCount of_model = of_images != known.end() ? of_images->second : CopyCount{};
  const int64_t copies = GetParam().starts_with("gemma2") ? 10 : of_model.copies;
  for (const char* precision : {"fp32", "fp16"}) {
    Engine engine;
    ConstantPool pool(engine.constants);
    LowerOptions lowering;
    lowering.types.precision = precision;
    const auto plan = lower(*graph, lowering, pool);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    std::string moves;
    for (const PlanStep& s : plan->steps) moves += s.op == "copy" ? " " + s.layer : "";
    const int64_t casts = std::string(precision) != "fp32" ? of_model.casts : 0;
    const CopyCount wanted = {.copies = copies - casts, .casts = casts};
    EXPECT_EQ(count_copies(*plan), wanted) << precision << ":" << moves;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, CountCopiesTest, ::testing::ValuesIn(models()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tessera
