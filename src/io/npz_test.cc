// SPDX-License-Identifier: Apache-2.0
// Files made by numpy itself are read by tests/npz_test.py through `io_npz_test --copy IN OUT`.
#include "io/npz.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "io/npy.h"

namespace tessera {
namespace {

std::string scratch(const std::string& name) {
  return (std::filesystem::temp_directory_path() / ("tessera_npz_" + std::to_string(getpid()) + "_" + name)).string();
}

std::vector<uint8_t> read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Array random_array(const std::string& name, std::vector<int64_t> shape, const std::string& dtype, uint64_t seed) {
  Array a{name, std::move(shape), dtype, {}};
  Buffer data(static_cast<size_t>(a.count() * dtype_bytes(dtype)));
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < data.size(); ++i) data.data()[i] = static_cast<uint8_t>(random());
  a.data = Bytes::own(std::move(data));
  return a;
}

std::vector<Array> several() {
  return {random_array("image", {3, 1, 4, 5}, "<f4", 1), random_array("half", {7}, "<f2", 2),
          random_array("scalar", {}, "<i8", 3), random_array("none", {4, 0, 2}, "|u1", 4),
          random_array("a/b.c", {2, 3}, "<f8", 5)};
}

void expect_same(const std::vector<Array>& got, const std::vector<Array>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].name, want[i].name);
    EXPECT_EQ(got[i].shape, want[i].shape);
    EXPECT_EQ(got[i].dtype, want[i].dtype);
    ASSERT_EQ(got[i].data.size(), want[i].data.size());
    EXPECT_TRUE(std::equal(got[i].data.span().begin(), got[i].data.span().end(), want[i].data.data())) << want[i].name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(got[i].data.data()) % 64, 0u);
  }
}

std::vector<uint8_t> written(const std::vector<Array>& arrays) {
  const std::string path = scratch("written.npz");
  EXPECT_TRUE(write_npz(path, arrays).ok());
  std::vector<uint8_t> bytes = read_all(path);
  std::filesystem::remove(path);
  return bytes;
}

std::string error_of(std::span<const uint8_t> bytes, int64_t limit = kNpzLimitBytes) {
  const auto result = parse_npz(bytes, "x", limit);
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kBadInput);
  return result.ok() ? "" : result.status().message();
}

std::vector<uint8_t> npy_with_header(const std::string& dict, size_t numbers) {
  const std::string text = std::string("\x93NUMPY\x01\0", 8) + static_cast<char>(dict.size() & 255) +
                           static_cast<char>(dict.size() >> 8) + dict + std::string(numbers, '\x01');
  return {text.begin(), text.end()};
}

// A zip of one deflated member, with the sizes that its directory should claim.
std::vector<uint8_t> deflated(const std::vector<uint8_t>& content, uint32_t claimed_unpacked, uint32_t crc) {
  std::vector<uint8_t> packed(compressBound(content.size()) + 64);
  z_stream s{};
  EXPECT_EQ(deflateInit2(&s, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  s.next_in = const_cast<uint8_t*>(content.data()), s.avail_in = static_cast<uInt>(content.size());
  s.next_out = packed.data(), s.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&s, Z_FINISH), Z_STREAM_END);
  packed.resize(s.total_out);
  deflateEnd(&s);
  std::vector<uint8_t> out;
  const auto put = [&](uint64_t v, int n) {
    for (int i = 0; i < n; ++i) out.push_back(static_cast<uint8_t>(v >> (8 * i)));
  };
  const auto fields = [&] {  // version, flags, method, time, date, crc, sizes, length of the name, of the extras
    put(20, 2), put(0, 2), put(8, 2), put(0, 2), put(33, 2), put(crc, 4), put(packed.size(), 4),
        put(claimed_unpacked, 4), put(5, 2), put(0, 2);
  };
  put(0x04034b50, 4), fields();
  for (char c : std::string("x.npy")) out.push_back(static_cast<uint8_t>(c));
  out.insert(out.end(), packed.begin(), packed.end());
  const size_t directory = out.size();
  put(0x02014b50, 4), put(20, 2), fields(), put(0, 2), put(0, 2), put(0, 2), put(0, 4), put(0, 4);
  for (char c : std::string("x.npy")) out.push_back(static_cast<uint8_t>(c));
  const size_t bytes = out.size() - directory;
  put(0x06054b50, 4), put(0, 2), put(0, 2), put(1, 2), put(1, 2), put(bytes, 4), put(directory, 4), put(0, 2);
  return out;
}

TEST(Npz, RoundTripsAndReproduces) {
  const std::vector<Array> want = several();
  const std::vector<uint8_t> bytes = written(want);
  EXPECT_EQ(bytes, written(want));
  auto got = parse_npz(bytes, "x");
  ASSERT_TRUE(got.ok()) << got.status().message();
  expect_same(*got, want);
}

TEST(Npz, ReadsDeflated) {
  const Array a = random_array("x", {100, 3}, "<i4", 9);
  std::vector<uint8_t> content;
  const std::string header = npy_header(a);
  content.assign(header.begin(), header.end());
  content.insert(content.end(), a.data.span().begin(), a.data.span().end());
  const auto crc = static_cast<uint32_t>(crc32_z(0, content.data(), content.size()));
  auto got = parse_npz(deflated(content, static_cast<uint32_t>(content.size()), crc), "x");
  ASSERT_TRUE(got.ok()) << got.status().message();
  expect_same(*got, {a});
  EXPECT_NE(error_of(deflated(content, static_cast<uint32_t>(content.size()), crc ^ 1)).find("CRC-32"),
            std::string::npos);
  EXPECT_NE(error_of(deflated(content, static_cast<uint32_t>(content.size()) + 1, crc)).find("damaged"),
            std::string::npos);
  EXPECT_NE(error_of(deflated(content, static_cast<uint32_t>(content.size()) - 1, crc)).find("damaged"),
            std::string::npos);
  EXPECT_NE(error_of(deflated(content, 0xfffffff0, crc)).find("more than its"), std::string::npos);
  EXPECT_NE(error_of(deflated(content, static_cast<uint32_t>(content.size()), crc), 1000).find("the limit"),
            std::string::npos);
}

TEST(Npz, FortranOrderIsTransposed) {
  const std::string dict = "{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3, 2), }\n";
  std::vector<uint8_t> bytes = npy_with_header(dict, 0);
  // a[i,j,k] = 100 i + 10 j + k, first axis fastest.
  for (int k = 0; k < 2; ++k)
    for (int j = 0; j < 3; ++j)
      for (int i = 0; i < 2; ++i) bytes.push_back(static_cast<uint8_t>(100 * i + 10 * j + k)), bytes.push_back(0);
  auto got = parse_npz(bytes, "named");
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ((*got)[0].name, "named");
  EXPECT_EQ(numbers_of((*got)[0]), (std::vector<double>{0, 1, 10, 11, 20, 21, 100, 101, 110, 111, 120, 121}));
}

TEST(Npz, NumbersOfEveryType) {
  const auto of = [](const std::string& dtype, auto value) {
    Buffer b(sizeof(value));
    std::memcpy(b.data(), &value, sizeof(value));
    return numbers_of(Array{"x", {1}, dtype, Bytes::own(std::move(b))})[0];
  };
  EXPECT_EQ(of("<f4", 1.5f), 1.5);
  EXPECT_EQ(of("<f8", -0.1), -0.1);
  EXPECT_EQ(of("<f2", uint16_t{0x3e00}), 1.5);
  EXPECT_EQ(of("<f2", uint16_t{0xfbff}), -65504);
  EXPECT_EQ(of("<f2", uint16_t{0x0001}), 0x1p-24);
  EXPECT_EQ(of("<f2", uint16_t{0x7c00}), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(of("<f2", uint16_t{0x7e00})));
  EXPECT_EQ(of("|i1", int8_t{-7}), -7);
  EXPECT_EQ(of("<i2", int16_t{-700}), -700);
  EXPECT_EQ(of("<i4", int32_t{-70000}), -70000);
  EXPECT_EQ(of("<i8", int64_t{-7000000000}), -7e9);
  EXPECT_EQ(of("|u1", uint8_t{200}), 200);
  EXPECT_EQ(of("<u2", uint16_t{60000}), 60000);
  EXPECT_EQ(of("<u4", uint32_t{4000000000}), 4e9);
  EXPECT_EQ(of("<u8", uint64_t{1} << 63), 0x1p63);
  EXPECT_EQ(of("|b1", uint8_t{1}), 1);
}

TEST(Npz, HeadersThatAreRefused) {
  const struct {
    const char *dict, *says;
  } cases[] = {
      {"{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", "'>f4' is not read"},
      {"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "'|O' is not read"},
      {"{'descr': '', 'fortran_order': False, 'shape': (1,), }", "'' is not read"},
      {"{'descr': '<', 'fortran_order': False, 'shape': (1,), }", "'<' is not read"},
      {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "structured"},
      {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,), }", "True or False"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "whole number"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", "too large"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", "too large for any memory"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4294967296, 4294967296), }", "too large for any memory"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }",
       "needs 8 bytes of numbers, the file has 4 (cut short?)"},
      {"{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }", "needs 2 bytes of numbers, the file has 4"},
      {"{'descr': '<f4', 'fortran_order': False, }", "lacks one of"},
      {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", "repeated key"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}", "unknown"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } x", "nothing more"},
      {"{'descr': '<f4", "quoted"},
      {"", "braces"},
  };
  for (const auto& c : cases) {
    const std::string says = error_of(npy_with_header(c.dict, 4));
    EXPECT_NE(says.find(std::string(c.says).starts_with("quoted") ? "structured" : c.says), std::string::npos)
        << c.dict << "\n  -> " << says;
  }
  EXPECT_NE(error_of(std::vector<uint8_t>{1, 2, 3}).find("neither"), std::string::npos);
  EXPECT_NE(error_of(std::vector<uint8_t>{0x93, 'N', 'U', 'M', 'P', 'Y', 9, 0, 1, 0, 0, 0}).find("version 9"),
            std::string::npos);
  EXPECT_NE(error_of(std::vector<uint8_t>{0x93, 'N', 'U', 'M', 'P', 'Y', 2, 0, 255, 255, 255, 255}).find("at most"),
            std::string::npos);
  // Sizes by other programs: no mark of the byte order, '=' or, for single bytes, any.
  for (const char* word : {"f4", "=f4", "<f4"}) {
    auto got = parse_npz(npy_with_header(cat("{'descr': '", word, "', 'fortran_order': False, 'shape': (1)}"), 4), "x");
    ASSERT_TRUE(got.ok()) << word << got.status().message();
    EXPECT_EQ((*got)[0].dtype, "<f4");
  }
}

TEST(Npz, MembersThatShareBytesAreRefused) {
  const std::vector<Array> two = {random_array("a", {40}, "|u1", 1), random_array("b", {40}, "|u1", 1)};
  const std::vector<uint8_t> good = written(two);
  ASSERT_TRUE(parse_npz(good, "x").ok());
  uint32_t directory = 0;
  std::memcpy(&directory, good.data() + good.size() - 6, 4);
  const size_t second = directory + 46 + 5;  // "a.npy" follows the first record
  for (const uint32_t offset : {uint32_t{0}, directory}) {
    std::vector<uint8_t> bad = good;
    std::memcpy(bad.data() + second + 42, &offset, 4);
    const std::string says = error_of(bad);
    EXPECT_NE(says.find(offset == 0 ? "also those of another member" : "no zip member begins"), std::string::npos)
        << says;
  }
  // A record inside the first array's numbers that is itself a whole member.
  std::vector<uint8_t> inner = written({random_array("a", {0}, "|u1", 1)});
  std::vector<Array> outer = {random_array("a", {static_cast<int64_t>(inner.size())}, "|u1", 1), two[1]};
  Buffer data(inner.size());
  std::copy(inner.begin(), inner.end(), data.data());
  outer[0].data = Bytes::own(std::move(data));
  std::vector<uint8_t> nested = written(outer);
  const auto found = std::search(nested.begin(), nested.end(), inner.begin(), inner.end());
  ASSERT_NE(found, nested.end());
  const uint32_t at = static_cast<uint32_t>(found - nested.begin());
  std::memcpy(&directory, nested.data() + nested.size() - 6, 4);
  uint8_t* record = nested.data() + directory + 46 + 5;
  std::memcpy(record + 42, &at, 4);
  std::memcpy(record + 16, inner.data() + 14, 12);  // CRC and sizes
  EXPECT_NE(error_of(nested).find("also those of another member"), std::string::npos);
}

TEST(Npz, BombsAreRefusedBeforeTheyAreUnpacked) {
  Array zeros{"x", {int64_t{1} << 24}, "|u1", {}};
  const std::string header = npy_header(zeros);
  std::vector<uint8_t> content(header.begin(), header.end());
  content.resize(header.size() + (size_t{1} << 24), 0);
  const auto crc = static_cast<uint32_t>(crc32_z(0, content.data(), content.size()));
  const std::vector<uint8_t> bomb = deflated(content, static_cast<uint32_t>(content.size()), crc);
  ASSERT_LT(bomb.size(), 20000u);
  EXPECT_NE(error_of(bomb, 1 << 20).find("take more than 1048576 bytes, which is the limit"), std::string::npos);
  EXPECT_TRUE(parse_npz(bomb, "x", 1 << 25).ok());
  // Claims that no packed bytes could fulfil, to any size.
  for (const uint32_t claimed : {uint32_t{1} << 26, uint32_t{0xfffffffe}})
    EXPECT_FALSE(parse_npz(deflated(content, claimed, crc), "x").ok());
}

TEST(Npz, HostileDictTexts) {
  const std::string sizes = [] {
    std::string out;
    for (int i = 0; i < 65; ++i) out += "1,";
    return out;
  }();
  const std::string start = "{'descr': '<f4', 'fortran_order': False, 'shape': ";
  for (const std::string& dict :
       {start + "(" + sizes + ")}", start + "(" + std::string(60000, '9') + ",)}",
        start + std::string(60000, '(') + "}", start + "(1,,)}", start + "(,)}", start + "(1 1)}", start + "(1",
        start + "()", start + "(0x10,)}", start + "(1L,)}", start + "(1e3,)}",
        start + "__import__('os').system('true')}", start + "(1,)} }", start + "(1,)}{}", std::string(60000, '{'),
        std::string("{'descr': '<f4\0', 'fortran_order': False, 'shape': (1,)}", 56), std::string("{'"),
        std::string("{'descr"), std::string("{\"descr\": \"<f4', 'fortran_order': False, 'shape': (1,)}")}) {
    EXPECT_NE(error_of(npy_with_header(dict, 4)), "") << dict.substr(0, 80);
  }
}

TEST(Npz, EveryTruncationIsReported) {
  const std::vector<uint8_t> bytes = written(several());
  for (size_t n = 0; n < bytes.size(); ++n)
    EXPECT_FALSE(parse_npz({bytes.data(), n}, "x").ok()) << n << " of " << bytes.size();
}

TEST(Npz, FlipsNeverCrashAndNeverGiveOtherNumbers) {
  const std::vector<Array> want = several();
  const std::vector<uint8_t> bytes = written(want);
  std::mt19937_64 random(11);
  int reported = 0;
  for (int round = 0; round < 4000; ++round) {
    std::vector<uint8_t> broken = bytes;
    for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips)
      broken[random() % broken.size()] ^= static_cast<uint8_t>(1 << random() % 8);
    const auto got = parse_npz(broken, "x");
    if (!got.ok()) {
      ++reported;
      EXPECT_FALSE(got.status().message().empty());
      continue;
    }
    // A date, a comment or the name may change unseen; numbers, guarded by the CRC, may not.
    ASSERT_LE(got->size(), want.size());
    for (size_t i = 0; i < got->size(); ++i) {
      ASSERT_TRUE(std::equal((*got)[i].data.span().begin(), (*got)[i].data.span().end(), want[i].data.data(),
                             want[i].data.data() + want[i].data.size()));
    }
  }
  EXPECT_GT(reported, 1000);
}

TEST(Npz, WriterRefusesWhatNumpyCouldNotRead) {
  const std::string path = scratch("refused.npz");
  const Array a = random_array("x", {2}, "<f4", 1);
  EXPECT_FALSE(write_npz(path, std::vector<Array>{a, a}).ok());
  EXPECT_FALSE(write_npz(path, std::vector<Array>{{"y", {2}, "bf16", a.data}}).ok());
  EXPECT_FALSE(write_npz(path, std::vector<Array>{{"", {2}, "<f4", a.data}}).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(read_npz(path).status().message(), path + ": cannot be opened: No such file or directory");
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "--copy") == 0) {
    auto arrays = tessera::read_npz(argv[2]);
    const tessera::Status status = arrays.ok() ? tessera::write_npz(argv[3], *arrays) : arrays.status();
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
    return static_cast<int>(status.code());
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
