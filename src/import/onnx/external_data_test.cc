// SPDX-License-Identifier: Apache-2.0
// Weights in files beside the model: read from its folder only, all of them there, mapped and not copied.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

#include "import/onnx/onnx.h"
#include "import/onnx/testing_models.h"
#include "testing/run_graph.h"

namespace tessera {
namespace {

class ExternalData : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("tessera_external_" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) + "_" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_ / "model" / "data");
    std::vector<float> numbers(16, 0);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
    for (const char* place : {"model/data/w.bin", "outside.bin"}) {
      std::ofstream(folder_ / place, std::ios::binary).write(reinterpret_cast<const char*>(numbers.data()), 64);
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Result<Graph> import_with(const std::string& location, const std::string& offset, const std::string& length = "48") {
    auto m = testing::empty_model();
    auto* t = testing::add_tensor(m, "w", onnx::TensorProto::FLOAT, {4, 3});
    t->set_data_location(onnx::TensorProto::EXTERNAL);
    for (const auto& [key, value] :
         std::map<std::string, std::string>{{"location", location}, {"offset", offset}, {"length", length}}) {
      auto* entry = t->add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    }
    testing::add_node(m, "MatMul", {"x", "w"}, "z");
    const std::string path = folder_ / "model" / "m.onnx";
    std::ofstream(path, std::ios::binary) << m.SerializeAsString();
    bytes_ = testing::bytes_of(m.SerializeAsString());
    return import_onnx(path);
  }

  std::filesystem::path folder_;
  Bytes bytes_;
};

TEST_F(ExternalData, IsReadFromTheModelsFolder) {
  const auto graph = import_with("data/w.bin", "16");
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  const std::vector<testing::Numbers> in = {{1, 0, 0, 0, 0, 0, 0, 1}};
  const auto out = testing::run_graph(*graph, in);
  ASSERT_TRUE(out.ok());
  EXPECT_EQ((*out)[0], (testing::Numbers{4, 5, 6, 13, 14, 15}));
  EXPECT_NE(import_onnx(bytes_, "from memory").status().message().find("not read from a file"), std::string::npos);
}

TEST_F(ExternalData, IsReadFromNowhereElse) {
  const std::vector<std::string> climbing = {
      "../outside.bin", "data/../../outside.bin", "..", (folder_ / "outside.bin").string(), "", "data\\..\\x"};
  for (const std::string& location : climbing) {
    const auto graph = import_with(location, "0");
    ASSERT_FALSE(graph.ok()) << location;
    EXPECT_NE(graph.status().message().find("must lie in the model's folder"), std::string::npos)
        << graph.status().message();
  }
  EXPECT_FALSE(import_with("data", "0").ok()) << "a folder";
  EXPECT_FALSE(import_with("data/none.bin", "0").ok());
}

TEST_F(ExternalData, LinksMayNotLeadOutOfTheFolder) {
  std::filesystem::create_symlink("w.bin", folder_ / "model/data/inside.bin");
  std::filesystem::create_symlink("../../outside.bin", folder_ / "model/data/outside.bin");
  std::filesystem::create_symlink("..", folder_ / "model/up");
  EXPECT_TRUE(import_with("data/inside.bin", "0").ok());
  for (const char* location : {"data/outside.bin", "up/outside.bin"}) {
    const auto graph = import_with(location, "0");
    ASSERT_FALSE(graph.ok()) << location;
    EXPECT_NE(graph.status().message().find("must lie in the model's folder"), std::string::npos)
        << graph.status().message();
  }
  // ExtraResults the folder, with a name that begins as the folder's does.
  std::filesystem::create_directories(folder_ / "model2");
  std::filesystem::copy_file(folder_ / "outside.bin", folder_ / "model2/w.bin");
  std::filesystem::create_symlink(folder_ / "model2/w.bin", folder_ / "model/near.bin");
  EXPECT_FALSE(import_with("near.bin", "0").ok());
}

TEST_F(ExternalData, IsMappedWhereItIsAligned) {
  const auto graph = import_with("data/w.bin", "0");
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  const std::filesystem::path file = folder_ / "model/data/w.bin";
  const auto mapped = [&](const Graph& g) {  // a map of the file lies where the numbers do
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      uintptr_t begin = 0, end = 0;
      if (line.find(file.string()) == std::string::npos) continue;
      std::sscanf(line.c_str(), "%lx-%lx", &begin, &end);
      for (const Value& v : g.values) {
        const auto at = reinterpret_cast<uintptr_t>(v.data.data());
        if (v.constant && at >= begin && at < end) return true;
      }
    }
    return false;
  };
  EXPECT_TRUE(mapped(*graph));
}

TEST_F(ExternalData, MustBeAllThere) {
  for (const char* offset : {"17", "64", "65", "-1", "1x", "9223372036854775807", "99999999999999999999"})
    EXPECT_FALSE(import_with("data/w.bin", offset).ok()) << offset;
  EXPECT_FALSE(import_with("data/w.bin", "0", "47").ok());
}

}  // namespace
}  // namespace tessera
