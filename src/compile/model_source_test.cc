// SPDX-License-Identifier: Apache-2.0
// A model is read once, and what is made of its weights is made once, however many batches are built.
#include "compile/model_source.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "compile/compile.h"
#include "import/onnx/reader.h"
#include "ir/derived_constants.h"
#include "models/zoo.h"

namespace tessera {
namespace {

// A file that is gone after the test.
class Model {
 public:
  Model() : path_(std::filesystem::temp_directory_path() / cat("model_source_test_", getpid(), ".onnx")) {
    // 64 x 64 weights of 16 KiB would be made anew: these are 192 x 192 and more.
    std::ofstream(path_, std::ios::binary) << zoo_onnx("vit-ti-16", 1, {.image = 32, .depth = 2}).value();
  }
  ~Model() { remove(); }
  void remove() const { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

constexpr size_t kLarge = size_t{64} << 10;

// Addresses of the large constants that nodes read.
std::set<const uint8_t*> large_constants(const Graph& g) {
  std::set<const uint8_t*> found;
  for (const Node& n : g.nodes) {
    for (const ValueId id : n.inputs) {
      if (id != kNoValue && g.at(id).constant && g.at(id).data.size() >= kLarge) found.insert(g.at(id).data.data());
    }
  }
  return found;
}

LowerOptions in(const std::string& precision, int64_t batch) {
  LowerOptions o;
  o.types.precision = precision;
  o.types.target = Arch::cpu;
  o.plan.target = Arch::cpu;
  o.plan.batch = batch;
  o.plan.name = cat("batch", batch);
  return o;
}

TEST(ModelSource, ReadsItsFileOnceForAllBatches) {
  const Model model;
  const int64_t before = onnx_files_read();
  auto source = ModelSource::open(model.path());
  ASSERT_TRUE(source.ok()) << source.status().message();
  model.remove();  // what is mapped stays; what would open it again fails
  for (const int64_t batch : {1, 8, 64}) {
    const auto graph = source->canonical(batch);
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    EXPECT_EQ(batch_of(*graph), batch);
    ASSERT_TRUE(source->written(batch).ok());
  }
  EXPECT_EQ(onnx_files_read() - before, 1);
}

TEST(ModelSource, GraphsOfTwoBatchesShareTheirConstants) {
  const Model model;
  auto source = ModelSource::open(model.path());
  ASSERT_TRUE(source.ok());
  const auto one = source->canonical(1), eight = source->canonical(8);
  ASSERT_TRUE(one.ok() && eight.ok());
  const auto shared = large_constants(*one);
  EXPECT_GE(shared.size(), 8u);  // four weights of each block
  EXPECT_EQ(shared, large_constants(*eight));
  // A source of its own has its own.
  const auto other = load_model(model.path(), 1);
  ASSERT_TRUE(other.ok());
  for (const uint8_t* address : large_constants(*other)) EXPECT_FALSE(shared.contains(address));
}

TEST(ModelSource, CodesAndPackedWeightsAreMadeOnce) {
  const Model model;
  for (const char* precision : {"mxfp8", "w4a16", "fp16"}) {
    auto source = ModelSource::open(model.path());
    ASSERT_TRUE(source.ok());
    std::vector<EngineConstant> constants;
    ConstantPool pool(constants);
    const auto one = source->canonical(1);
    ASSERT_TRUE(one.ok());
    const auto first = lower(*one, in(precision, 1), pool);
    ASSERT_TRUE(first.ok()) << first.status().message();
    const int64_t made = one->derived->made(), found = one->derived->found();
    const size_t stored = constants.size();
    EXPECT_GE(made, 8) << precision;
    for (const int64_t batch : {4, 8}) {  // tables of the batch itself stay small
      const auto graph = source->canonical(batch);
      ASSERT_TRUE(graph.ok());
      ASSERT_TRUE(lower(*graph, in(precision, batch), pool).ok());
    }
    EXPECT_EQ(one->derived->made(), made) << precision << ": a weight was transposed, quantized or packed again";
    EXPECT_GE(one->derived->found() - found, 16) << precision;
    for (size_t i = stored; i < constants.size(); ++i) EXPECT_LT(constants[i].data.size(), kLarge) << constants[i].name;
  }
}

// The same plan and the same bytes as from a source of its own.
TEST(ModelSource, SharingChangesNothing) {
  const Model model;
  auto source = ModelSource::open(model.path());
  ASSERT_TRUE(source.ok());
  ASSERT_TRUE(source->canonical(1).ok());
  std::vector<EngineConstant> shared, alone;
  ConstantPool shared_pool(shared), alone_pool(alone);
  const auto eight = source->canonical(8), fresh = load_model(model.path(), 8);
  ASSERT_TRUE(eight.ok() && fresh.ok());
  ASSERT_TRUE(lower(*eight, in("w4a16", 8), shared_pool).ok());
  ASSERT_TRUE(lower(*fresh, in("w4a16", 8), alone_pool).ok());
  ASSERT_EQ(shared.size(), alone.size());
  for (size_t i = 0; i < shared.size(); ++i) {
    EXPECT_EQ(shared[i].name, alone[i].name);
    EXPECT_TRUE(std::equal(shared[i].data.span().begin(), shared[i].data.span().end(), alone[i].data.span().begin(),
                           alone[i].data.span().end()))
        << shared[i].name;
  }
}

}  // namespace
}  // namespace tessera
