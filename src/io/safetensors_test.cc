// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "io/safetensors_writer.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::string entry(const std::string& dtype, const std::string& shape, uint64_t begin, uint64_t end) {
  return cat(R"({"dtype":")", dtype, R"(","shape":)", shape, R"(,"data_offsets":[)", begin, ",", end, "]}");
}

Bytes file_of(const std::string& header, const std::string& data, std::optional<uint64_t> claimed = {}) {
  const uint64_t n = claimed.value_or(header.size());
  Buffer b(8 + header.size() + data.size());
  std::memcpy(b.data(), &n, 8);
  std::copy(header.begin(), header.end(), b.data() + 8);
  std::copy(data.begin(), data.end(), b.data() + 8 + header.size());
  return Bytes::own(std::move(b));
}

std::string error_of(const Bytes& file) {
  const auto result = parse_safetensors(file);
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kBadInput);
  return result.ok() ? "" : result.status().message();
}

TEST(Safetensors, WhatIsWrittenInPiecesIsReadBack) {
  const fs::path path = fs::temp_directory_path() / cat("written_", getpid(), ".safetensors");
  const std::vector<SafetensorsEntry> tensors = {
      {.name = "b.weight", .type = SafetensorsType::BF16, .shape = {3, 5}, .data = {}},
      {.name = "a \"quoted\"", .type = SafetensorsType::F32, .shape = {2}, .data = {}},
      {.name = "scalar", .type = SafetensorsType::U8, .shape = {}, .data = {}}};
  std::vector<uint8_t> bytes(30 + 8 + 1);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7 + 1);
  {
    auto unfinished = SafetensorsWriter::create(path.string(), tensors);
    ASSERT_TRUE(unfinished.ok()) << unfinished.status().message();
    ASSERT_TRUE(unfinished->write({bytes.data(), 10}).ok());
  }
  EXPECT_FALSE(fs::exists(path)) << "a file that was not committed is not there";
  auto writer = SafetensorsWriter::create(path.string(), tensors);
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  for (size_t at = 0; at < bytes.size(); at += 7)
    ASSERT_TRUE(writer->write({bytes.data() + at, std::min<size_t>(7, bytes.size() - at)}).ok());
  ASSERT_TRUE(writer->commit().ok());
  EXPECT_EQ(static_cast<int64_t>(fs::file_size(path)), writer->bytes());
  const auto read = read_safetensors(path.string());
  fs::remove(path);
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->tensors.size(), tensors.size());
  size_t at = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const SafetensorsEntry& t = read->tensors[i];
    EXPECT_EQ(t.name, tensors[i].name);
    EXPECT_EQ(t.type, tensors[i].type);
    EXPECT_EQ(t.shape, tensors[i].shape);
    EXPECT_TRUE(std::equal(t.data.span().begin(), t.data.span().end(), bytes.begin() + static_cast<int64_t>(at)));
    at += t.data.size();
  }
  EXPECT_EQ(at, bytes.size());
}

TEST(Safetensors, EveryTypeInTheOrderOfItsBytes) {
  const std::vector<std::pair<std::string, size_t>> types = {
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I64", 8},  {"I32", 4},
      {"I16", 2}, {"I8", 1},  {"U64", 8}, {"U32", 4},  {"U16", 2},     {"U8", 1},      {"BOOL", 1}, {"F8_E8M0", 1}};
  // Names that sort against the order of their bytes.
  std::string header = R"({"__metadata__":{"format":"pt","note":"a \"word\""})", data;
  std::mt19937_64 random(3);
  for (size_t i = 0; i < types.size(); ++i) {
    const size_t begin = data.size(), bytes = 6 * types[i].second;
    for (size_t k = 0; k < bytes; ++k) data += static_cast<char>(random());
    header += cat(",\"", static_cast<char>('z' - i), "\":", entry(types[i].first, "[2,3]", begin, begin + bytes));
  }
  const Bytes file = file_of(header + "}   ", data);
  const auto got = parse_safetensors(file);
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(got->metadata, (std::map<std::string, std::string>{{"format", "pt"}, {"note", "a \"word\""}}));
  ASSERT_EQ(got->tensors.size(), types.size());
  size_t at = 0;
  for (size_t i = 0; i < types.size(); ++i) {
    const SafetensorsEntry& t = got->tensors[i];
    EXPECT_EQ(t.name, std::string(1, static_cast<char>('z' - i)));
    EXPECT_EQ(name_of(t.type), types[i].first);
    EXPECT_EQ(bytes_of(t.type), static_cast<int64_t>(types[i].second));
    EXPECT_EQ(t.shape, (std::vector<int64_t>{2, 3}));
    ASSERT_EQ(t.data.size(), 6 * types[i].second);
    EXPECT_EQ(std::memcmp(t.data.data(), data.data() + at, t.data.size()), 0) << t.name;
    EXPECT_EQ(got->find(t.name), &t);
    at += t.data.size();
  }
  EXPECT_EQ(got->find("none"), nullptr);
}

TEST(Safetensors, ScalarsEmptyTensorsAndNothing) {
  const auto nothing = parse_safetensors(file_of("{}", ""));
  ASSERT_TRUE(nothing.ok());
  EXPECT_TRUE(nothing->tensors.empty());
  const auto got =
      parse_safetensors(file_of(cat("{\"s\":", entry("I32", "[]", 0, 4), ",\"e\":", entry("F32", "[0,9]", 4, 4),
                                    ",\"f\":", entry("F32", "[0]", 0, 0), "}"),
                                "abcd"));
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(got->find("s")->data.size(), 4u);
  EXPECT_TRUE(got->find("e")->data.empty());
}

TEST(Safetensors, WhatIsRefused) {
  const auto one = [](const std::string& e) { return file_of("{\"blocks.0.w\":" + e + "}", "abcd"); };
  const std::string good = entry("U8", "[4]", 0, 4);
  ASSERT_TRUE(parse_safetensors(one(good)).ok());
  const struct {
    Bytes file;
    const char* says;
  } cases[] = {
      {file_of("", "").slice(0, 7), "too short"},
      {file_of("{}", "", 3), "cut short: its header takes 3 bytes, 2 are left"},
      {file_of("{}", "", uint64_t{1} << 63), "claims a header of 9223372036854775808 bytes"},
      {file_of("{}", "", 100'000'001), "at most 100000000"},
      {file_of(" {}", ""), "does not begin with '{'"},
      {file_of("{\"a\"", ""), "the header: is not JSON at byte"},
      {file_of("{} x", ""), "the header: is not JSON"},
      {file_of("{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}", ""), "nested deeper than"},
      {file_of("{\"a\":" + good + ",\"a\":" + good + "}", "abcd"), "repeats the key 'a'"},
      {one("4"), "tensor 'blocks.0.w': is not an object"},
      {one(R"({"dtype":"U8","shape":[4]})"), "tensor 'blocks.0.w': has no data_offsets"},
      {one(R"({"dtype":"U8","shape":[4],"data_offsets":[0,4],"more":1})"), "has fields other than"},
      {one(entry("F4", "[4]", 0, 4)), "tensor 'blocks.0.w': its dtype 'F4' is not read; F64 F32"},
      {one(R"({"dtype":7,"shape":[4],"data_offsets":[0,4]})"), "dtype is not a word"},
      {one(entry("U8", "4", 0, 4)), "its shape is not a list"},
      {one(entry("U8", "[-4]", 0, 4)), "no size"},
      {one(entry("U8", "[4.0]", 0, 4)), "no size"},
      {one(entry("U8", "[1e3]", 0, 4)), "no size"},
      {one(entry("U8", "[18446744073709551616]", 0, 4)), "no size"},
      {one(entry("F32", "[4294967296,4294967296]", 0, 4)), "too large for any memory"},
      {one(entry("F32", "[0,4294967296,4294967296]", 0, 0)), "too large for any memory"},
      {one(entry("U8", "[18446744073709551615]", 0, 4)), "too large for any memory"},
      {one(entry("U8", "[5]", 0, 5)), "do not lie in the 4 bytes of data (cut short?)"},
      {one(entry("U8", "[4]", 4, 0)), "its bytes 4 to 0 do not lie"},
      {one(R"({"dtype":"U8","shape":[4],"data_offsets":[0]})"), "two whole numbers"},
      {one(R"({"dtype":"U8","shape":[4],"data_offsets":[-1,3]})"), "two whole numbers"},
      {one(entry("U8", "[3]", 0, 4)), "has 4 bytes, its shape and dtype take 3"},
      {one(entry("F16", "[4]", 0, 4)), "has 4 bytes, its shape and dtype take 8"},
      {one(entry("U8", "[3]", 1, 4)), "begins at byte 1 of the data, which leaves a hole before it"},
      {one(entry("U8", "[3]", 0, 3)), "its tensors end at byte 3 of 4"},
      {file_of("{\"a\":" + entry("U8", "[3]", 0, 3) + ",\"b\":" + entry("U8", "[2]", 2, 4) + "}", "abcd"),
       "tensor 'b' begins at byte 2 of the data, inside the tensor before it"},
      {file_of("{\"a\":" + entry("U8", "[4]", 0, 4) + ",\"b\":" + entry("U8", "[4]", 0, 4) + "}", "abcd"),
       "inside the tensor before it"},
      {file_of(R"({"__metadata__":{"a":1}})", ""), "__metadata__: 'a' is not text"},
      {file_of(R"({"__metadata__":[]})", ""), "__metadata__ is not an object"},
  };
  for (const auto& c : cases) {
    const std::string says = error_of(c.file);
    EXPECT_NE(says.find(c.says), std::string::npos) << "wanted: " << c.says << "\n  says: " << says;
  }
}

TEST(Safetensors, HostileHeadersCostNoMemory) {
  // 4 MB of "[],[],..." would be a hundred times that as values.
  std::string many = "{\"a\":[0";
  for (int i = 0; i < 5 << 20; ++i) many += ",0";
  EXPECT_NE(error_of(file_of(many + "]}", "")).find("holds more than 4194304 values"), std::string::npos);
  EXPECT_NE(error_of(file_of("{\"a\":" + std::string(1 << 20, '['), "")).find("nested deeper than"), std::string::npos);
}

TEST(Safetensors, EveryTruncationAndFlipIsReportedOrHarmless) {
  const std::string data = "0123456789abcdef";
  const Bytes good =
      file_of(cat("{\"a\":", entry("F32", "[2,1]", 0, 8), ",\"b\":", entry("U8", "[8]", 8, 16), "}"), data);
  ASSERT_TRUE(parse_safetensors(good).ok());
  for (size_t n = 0; n < good.size(); ++n) EXPECT_FALSE(parse_safetensors(good.slice(0, n)).ok()) << n;
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    Buffer broken(good.size());
    std::copy(good.span().begin(), good.span().end(), broken.data());
    broken.data()[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    const auto got = parse_safetensors(Bytes::own(std::move(broken)));
    if (!got.ok()) continue;
    size_t bytes = 0;
    for (const SafetensorsEntry& t : got->tensors) bytes += t.data.size();
    EXPECT_EQ(bytes, data.size()) << "bit " << bit;
  }
}

class Sharded : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("tessera_sharded_" + std::to_string(getpid()));
    fs::create_directories(folder_ / "model" / "sub");
    for (const char* name : {"model/a.safetensors", "model/sub/b.safetensors", "outside.safetensors"})
      std::ofstream(folder_ / name, std::ios::binary) << std::string("\x02\0\0\0\0\0\0\0{}", 10);
  }
  void TearDown() override { fs::remove_all(folder_); }
  Result<SafetensorsIndex> index(const std::string& json) {
    const std::string path = (folder_ / "model" / "model.safetensors.index.json").string();
    std::ofstream(path) << json;
    return read_safetensors_index(path);
  }
  std::string error_of(const std::string& json) {
    const auto got = index(json);
    EXPECT_FALSE(got.ok()) << json;
    return got.status().message();
  }
  fs::path folder_;
};

TEST_F(Sharded, NamesMapToFilesOfTheFolder) {
  const auto got = index(
      R"({"metadata":{"total_size":2},
          "weight_map":{"x":"a.safetensors","y":"sub/b.safetensors","z":"./a.safetensors"}})");
  ASSERT_TRUE(got.ok()) << got.status().message();
  ASSERT_EQ(got->size(), 3u);
  for (const auto& [tensor, path] : *got) EXPECT_TRUE(read_safetensors(path).ok()) << path;
}

TEST_F(Sharded, FilesElsewhereAreRefusedByTensor) {
  fs::create_symlink(folder_ / "outside.safetensors", folder_ / "model" / "link.safetensors");
  fs::create_directory_symlink(folder_, folder_ / "model" / "up");
  fs::create_symlink("a.safetensors", folder_ / "model" / "good_link.safetensors");
  const std::string outside = (folder_ / "outside.safetensors").string();
  for (const std::string& name :
       {std::string("../outside.safetensors"), std::string("sub/../../outside.safetensors"), outside, std::string(),
        std::string("link.safetensors"), std::string("up/outside.safetensors"), std::string("a\\\\b")}) {
    const std::string says = error_of(cat(R"({"weight_map":{"good":"a.safetensors","w":")", name, "\"}}"));
    EXPECT_NE(says.find("tensor 'w': its file"), std::string::npos) << says;
    EXPECT_NE(says.find("folder"), std::string::npos) << says;
  }
  EXPECT_TRUE(index(R"({"weight_map":{"w":"good_link.safetensors"}})").ok());
}

TEST_F(Sharded, OtherJson) {
  for (const char* json :
       {"", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{"a":1}})", R"({"weight_map":{"a":"b","a":"b"}})"})
    EXPECT_FALSE(index(json).ok()) << json;
  EXPECT_NE(read_safetensors((folder_ / "none").string()).status().message().find("cannot be opened"),
            std::string::npos);
}

// Downloads are often kept as links into a store: the model and its parts lie together there.
TEST_F(Sharded, ALinkedIndexMayNameItsStore) {
  fs::create_directories(folder_ / "snapshot");
  std::ofstream(folder_ / "model" / "i.json") << R"({"weight_map":{"x":"part"}})";
  fs::create_symlink(folder_ / "model" / "i.json", folder_ / "snapshot" / "i.json");
  fs::create_symlink(folder_ / "model" / "a.safetensors", folder_ / "snapshot" / "part");
  const auto good = read_safetensors_index((folder_ / "snapshot" / "i.json").string());
  EXPECT_TRUE(good.ok()) << good.status().message();
  fs::remove(folder_ / "snapshot" / "part");
  fs::create_symlink(folder_ / "outside.safetensors", folder_ / "snapshot" / "part");
  EXPECT_FALSE(read_safetensors_index((folder_ / "snapshot" / "i.json").string()).ok());
}

}  // namespace
}  // namespace tessera
