// SPDX-License-Identifier: Apache-2.0
// Weights in files beside the model: read from its folder only, all of them there, mapped and not copied.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "import/onnx/onnx.h"
#include "import/onnx/raw_fields.h"
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

// Raw data inside the file: found, not copied.
std::string varint(uint64_t n) {
  std::string out;
  for (; n >= 0x80; n >>= 7) out += static_cast<char>(n | 0x80);
  return out + static_cast<char>(n);
}

std::string field(uint64_t number, const std::string& bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + bytes;
}

Bytes as_file(const std::string& text) {
  Buffer b(text.size());
  std::memcpy(b.data(), text.data(), text.size());
  return Bytes::own(std::move(b));
}

std::string number_of(uint64_t n) { return {reinterpret_cast<const char*>(&n), sizeof(n)}; }

TEST(RawFields, EachTensorThatIsReadGetsANumber) {
  const std::string large(100000, 'w'), small = "abc";
  const auto tensor = [](const std::string& raw) {
    return field(8, "name") + field(9, raw) + varint(2 << 3) + varint(1);
  };
  const auto model = [&](const std::string& a, const std::string& b, const std::string& c) {
    return varint(1 << 3) + varint(8) +                                               // ir_version
           field(7, field(5, tensor(a)) + field(1, field(5, field(5, tensor(b))))) +  // initializer, node.attribute.t
           field(25, field(7, field(5, field(5, tensor(c)))));                        // function.node.attribute.t
  };
  const Bytes file = as_file(model(large, small, ""));
  const auto split = split_raw_fields(file);
  ASSERT_TRUE(split);
  EXPECT_EQ(split->message, model(number_of(0), number_of(1), number_of(2)));
  ASSERT_EQ(split->data.size(), 3u);
  const auto first = raw_field(*split, number_of(0));
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->size(), large.size());
  EXPECT_GE(first->data(), file.data());  // no copy
  EXPECT_LE(first->data() + first->size(), file.data() + file.size());
  EXPECT_EQ(raw_field(*split, number_of(1)).value().size(), 3u);
  EXPECT_EQ(raw_field(*split, number_of(2)).value().size(), 0u);
  EXPECT_FALSE(raw_field(*split, number_of(3)).ok());
  EXPECT_FALSE(raw_field(*split, "abc").ok());
}

// Field 9 of anything else is not raw data.
TEST(RawFields, OtherFieldsStayAsTheyAre) {
  const std::string model = field(9, "x") + field(7, field(9, "y") + field(2, "graph") + field(1, field(9, "z")));
  const auto split = split_raw_fields(as_file(model));
  ASSERT_TRUE(split);
  EXPECT_EQ(split->message, model);
  EXPECT_TRUE(split->data.empty());
}

TEST(RawFields, WhatIsNoMessageIsLeftToTheParser) {
  const std::string tensor = field(7, field(5, field(9, "data")));
  for (size_t cut = 1; cut < tensor.size(); ++cut)
    EXPECT_FALSE(split_raw_fields(as_file(tensor.substr(0, cut)))) << cut;
  EXPECT_FALSE(split_raw_fields(as_file(varint(3 << 3 | 3))));                  // a group
  EXPECT_FALSE(split_raw_fields(as_file(varint(1 << 3 | 1) + "1234567")));      // eight bytes, seven are there
  EXPECT_FALSE(split_raw_fields(as_file(std::string(12, '\xff'))));             // a varint without end
  EXPECT_FALSE(split_raw_fields(as_file(varint(7 << 3 | 2) + varint(~0ull))));  // longer than the file
}

}  // namespace
}  // namespace tessera
