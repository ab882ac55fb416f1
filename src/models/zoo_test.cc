// SPDX-License-Identifier: Apache-2.0
#include "models/zoo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/checksum.h"
#include "base/parallel.h"
#include "import/onnx/onnx.h"
#include "models/seeded.h"
#include "models/vit/vit.h"

namespace tessera {
namespace {

uint64_t checksum_of(const std::string& text) {
  return checksum64({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

TEST(Zoo, NamesAreUniqueAndUnknownOnesListThem) {
  std::set<std::string> names;
  for (const ZooEntry& e : zoo_entries()) {
    EXPECT_TRUE(names.insert(e.name).second) << e.name;
    EXPECT_FALSE(e.what.empty());
  }
  const auto missing = zoo_onnx("vit-x", 1);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), Code::kUsage);
  for (const std::string& n : names) EXPECT_NE(missing.status().message().find(n), std::string::npos) << n;
}

// As published for these architectures with 1000 classes.
TEST(Zoo, ParametersAreThoseOfTheRealModels) {
  const auto of = [](const std::string& name) {
    for (const VitConfig& c : vit_configs()) {
      if (c.name == name) return c.parameters();
    }
    return int64_t{0};
  };
  EXPECT_EQ(of("vit-ti-16"), 5717416);
  EXPECT_EQ(of("vit-s-16"), 22050664);
  EXPECT_EQ(of("vit-b-16"), 86567656);
  EXPECT_EQ(of("vit-l-16"), 304326632);
}

TEST(Zoo, SizesMayBeGiven) {
  const auto graph = [](const ZooSizes& sizes) {
    const auto bytes = zoo_onnx("vit-tiny-test", 1, sizes);
    EXPECT_TRUE(bytes.ok()) << bytes.status().message();
    return bytes.ok() ? bytes->size() : 0;
  };
  const size_t own = graph({}), deeper = graph({.depth = 4}), larger = graph({.image = 64});
  EXPECT_EQ(graph({.image = 32, .depth = 2}) / 1000, own / 1000);       // but for the name
  EXPECT_NEAR(static_cast<double>(larger - own), 4.0 * 48 * 64, 2000);  // 48 more positions of 64 f32
  EXPECT_GT(deeper, own + 4 * 2 * (12 * 64 * 64 / 2));
  const auto odd = zoo_onnx("vit-tiny-test", 1, {.image = 60});
  ASSERT_FALSE(odd.ok());
  EXPECT_EQ(odd.status().code(), Code::kUsage);
  EXPECT_NE(odd.status().message().find("patches of 8 pixels"), std::string::npos);
  EXPECT_NE(zoo_onnx("vit-l-16", 1, {.depth = 100}).status().message().find("more than one ONNX file holds"),
            std::string::npos);
}

// The bytes are part of what benches and golden values build on: the same on every machine, with any number of threads.
TEST(Zoo, BytesStay) {
  set_threads(1);
  const auto one = zoo_onnx("vit-tiny-test", 1);
  set_threads(3);
  const auto again = zoo_onnx("vit-tiny-test", 1), other = zoo_onnx("vit-tiny-test", 2);
  set_threads(0);
  ASSERT_TRUE(one.ok() && again.ok() && other.ok());
  EXPECT_EQ(*one, *again);
  EXPECT_NE(*one, *other);
  EXPECT_EQ(checksum_of(*one), 0x7ec076dae06af96eu) << std::hex << checksum_of(*one);
}

TEST(Zoo, OurReaderTakesThem) {
  const auto bytes = zoo_onnx("vit-tiny-test", 1);
  ASSERT_TRUE(bytes.ok());
  Buffer buffer(bytes->size());
  std::copy(bytes->begin(), bytes->end(), buffer.data());
  const auto graph = import_onnx(Bytes::own(std::move(buffer)), "tiny", {.batch = 3});
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  ASSERT_EQ(graph->inputs.size(), 1u);
  EXPECT_EQ(graph->at(graph->inputs[0]).name, "image");
  EXPECT_EQ(graph->at(graph->inputs[0]).type.shape, (Shape{3, 3, 32, 32}));
  EXPECT_EQ(graph->at(graph->outputs[0]).name, "logits");
  EXPECT_EQ(graph->at(graph->outputs[0]).type.shape, (Shape{3, 10}));
}

TEST(Seeded, IsBellShapedAndBounded) {
  const std::vector<float> v = seeded_normals(3, "x", 200000, 5, 2);
  double sum = 0, square = 0, fourth = 0;
  for (float x : v) {
    const double d = (x - 5.0) / 2;
    ASSERT_LE(std::abs(d), 3.4642);  // 2 sqrt 3 and the rounding of the sum with the mean
    sum += d, square += d * d, fourth += d * d * d * d;
  }
  const double n = static_cast<double>(v.size());
  EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(square / n, 1, 5 * std::sqrt(1.7 / n));  // the sum of four uniforms has kurtosis 2.7
  EXPECT_NEAR(fourth / n, 2.7, 0.05);
  EXPECT_NE(v[0], seeded_normals(4, "x", 1, 5, 2)[0]);
  EXPECT_NE(v[0], seeded_normals(3, "y", 1, 5, 2)[0]);
  EXPECT_EQ(v[7], seeded_normals(3, "x", 8, 5, 2)[7]);
}

}  // namespace
}  // namespace tessera
