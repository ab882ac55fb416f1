// SPDX-License-Identifier: Apache-2.0
// Weights as plans store them: names, sizes, and 2:4 sparsity that must be there.
#include "plan/make_plan.h"

#include <gtest/gtest.h>

#include <cstring>

#include "ops/matmul/matmul.h"
#include "types/quantize_array.h"
#include "types/sparse24.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 24, kCols = 64;

// One linear layer over a quantized weight; `numbers` of f32 go in as they are.
Graph linear(const QuantType& type, const std::vector<float>& numbers, bool sparse) {
  Graph g;
  const auto add = [&](const char* name, const QuantType& quant, const Shape& shape, Buffer data) {
    Value v;
    v.name = name, v.type = {.shape = shape, .quant = quant}, v.constant = true, v.data = Bytes::own(std::move(data));
    g.values.push_back(std::move(v));
    return static_cast<ValueId>(g.values.size()) - 1;
  };
  QuantizedArray q = quantize_array(type, numbers.data(), kRows, kCols).value();
  Value x, y;
  x.name = "x", x.type = {.shape = {1, kCols}, .quant = Element::f32};
  y.name = "y", y.type = {.shape = {1, kRows}, .quant = Element::f32};
  g.values = {x, y};
  const ValueId w = add("w", type, {kRows, kCols}, std::move(q.codes));
  const auto attach = [&](const ScaleLevel& level, Buffer scales, ValueId Value::*to, const char* name) {
    if (level.granularity == Granularity::kNone) return;
    const ValueId s = add(name, level.element, {scale_count(level, kRows, kCols)}, std::move(scales));
    g.values[static_cast<size_t>(w)].*to = s;
  };
  attach(type.scale, std::move(q.scale), &Value::scale, "w.scale");
  attach(type.scale2, std::move(q.scale2), &Value::scale2, "w.scale2");
  g.inputs = {0}, g.outputs = {1};
  Node node;
  node.name = "layer", node.op = "matmul", node.inputs = {0, w}, node.outputs = {1};
  if (sparse) node.attrs.set(kSparse24, int64_t{1});
  g.nodes = {node};
  return g;
}

std::vector<float> numbers(bool sparse) {
  std::vector<float> v(static_cast<size_t>(kRows * kCols));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i * 37 % 101) - 50.5f;
  if (sparse) prune24(v.data(), kRows, kCols);
  return v;
}

TEST(MakePlan, NamesWhatIsStored) {
  const std::pair<const char*, const char*> kNames[] = {{"f32", "f32"},
                                                        {"e4m3:channel(f32)", "e4m3"},
                                                        {"e4m3:block32(e8m0)", "mxfp8"},
                                                        {"e4m3:block32(e8m0,floor)", "mxfp8"},
                                                        {"e2m1:block16(e4m3):tensor(f32)", "nvfp4"},
                                                        {"e2m1:block16(e4m3):tensor(f32):as(e4m3)", "nvfp4"},
                                                        {"i8:channel(f32)", "i8"}};
  for (const auto& [text, name] : kNames) {
    const QuantType type = *parse_quant_type(text);
    for (bool sparse : {false, true}) {
      std::vector<EngineConstant> constants;
      ConstantPool pool(constants);
      const Graph g = linear(type, numbers(sparse), sparse);
      const auto plan = make_plan(g, {.target = Arch::cpu}, pool);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      EXPECT_EQ(plan->steps[0].stored, sparse ? cat(name, " 2:4") : name);
      const PlanTensor& w = plan->tensors[static_cast<size_t>(plan->steps[0].in[1])];
      EXPECT_EQ(w.desc.layout == Layout::kSparse24, sparse);
      const auto bytes = static_cast<int64_t>(constants[static_cast<size_t>(w.index)].data.size());
      EXPECT_EQ(bytes, stored_bytes(w.desc.layout.codes, type.element, kRows, kCols));
      if (sparse) {
        EXPECT_EQ(bytes, packed_bytes(type.element, kRows * kCols / 2) + kRows * kCols / 8);
      }
    }
  }
}

TEST(MakePlan, WeightsThatAreNotSparseEndTheBuild) {
  std::vector<EngineConstant> constants;
  ConstantPool pool(constants);
  const Graph g = linear(kNvfp4, numbers(false), true);
  const auto plan = make_plan(g, {.target = Arch::cpu}, pool);
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.status().message().find("layer layer: weight 'w': 2:4: row 0"), std::string::npos)
      << plan.status().message();
}

}  // namespace
}  // namespace tessera
