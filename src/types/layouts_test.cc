// SPDX-License-Identifier: Apache-2.0
// Layout maths: scale tiles, 2:4 metadata, nibbles. LayoutDump hands arrays to tests/types_test.py, which has the
// formulas a second time.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "types/codes.h"
#include "types/e2m1.h"
#include "types/f16.h"
#include "types/layout.h"
#include "types/nibble_tiles.h"
#include "types/sparse24.h"
#include "types/sparse24_tiles.h"

namespace tessera {
namespace {

TEST(Nibbles, EvenIndexIsLow) {
  uint8_t bytes[2] = {0xff, 0xff};
  set_code(bytes, 4, 0, 1);
  set_code(bytes, 4, 3, 2);
  EXPECT_EQ(bytes[0], 0xf1);
  EXPECT_EQ(bytes[1], 0x2f);
  EXPECT_EQ(code_at(bytes, 4, 3), 2u);
  static_assert(nibble_byte(5) == 2 && nibble_shift(5) == 4 && nibble_shift(4) == 0);
  uint32_t wide[2] = {1, 2};
  set_code(wide, 32, 1, 0xdeadbeef);
  EXPECT_EQ(code_at(wide, 32, 1), 0xdeadbeefu);
  EXPECT_EQ(wide[0], 1u);
}

TEST(ScaleTiles, HandCases) {
  constexpr auto at = [](int64_t row, int64_t k, int64_t scales) {
    return layout_index(Layout::kTiles128x4, row, k, 256, scales);
  };
  static_assert(at(0, 0, 4) == 0 && at(1, 0, 4) == 16 && at(32, 0, 4) == 4);
  static_assert(at(127, 3, 4) == 511 && at(0, 4, 5) == 512 && at(128, 0, 5) == 1024);
  constexpr auto bytes = [](int64_t rows, int64_t scales) {
    return layout_elements(Layout::kTiles128x4, rows, scales);
  };
  static_assert(bytes(1, 1) == 512 && bytes(129, 5) == 2048 && bytes(0, 3) == 0);
}

TEST(ScaleTiles, RoundTripWithZeroPadding) {
  std::mt19937 random(2);
  for (int64_t rows : {0, 1, 31, 32, 33, 127, 128, 129, 300}) {
    for (int64_t scales : {0, 1, 3, 4, 5, 48, 49}) {
      std::vector<uint8_t> in(static_cast<size_t>(rows * scales));
      for (uint8_t& b : in) b = static_cast<uint8_t>(1 + random() % 255);
      const Buffer tiles = arrange_codes(Layout::kTiles128x4, Element::e4m3, rows, scales, in.data()).value();
      const Buffer back = restore_rows(Layout::kTiles128x4, Element::e4m3, rows, scales, tiles.data());
      EXPECT_TRUE(std::equal(in.begin(), in.end(), back.data())) << rows << "x" << scales;
      EXPECT_EQ(back.size(), in.size());
      EXPECT_EQ(static_cast<size_t>(std::count(tiles.data(), tiles.data() + tiles.size(), 0)), tiles.size() - in.size())
          << rows << "x" << scales;
    }
  }
}

TEST(Sparse24, MetadataOfEverySet) {
  // Of the sets {}, {0}, {1}, {0,1}, {2} ...: pairs of places, the lower one first.
  const int want[16][2] = {{0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 2}, {0, 2}, {1, 2}, {},
                           {0, 3}, {0, 3}, {1, 3}, {},     {2, 3}, {},     {},     {}};
  for (uint32_t set = 0; set < 16; ++set) {
    if (std::popcount(set) > 2) continue;
    EXPECT_EQ(first24(metadata24(set)), want[set][0]) << set;
    EXPECT_EQ(second24(metadata24(set)), want[set][1]) << set;
  }
  static_assert(metadata24(0) == 4 && metadata24(0b1100) == 14);
}

// Every element that has a zero.
const std::vector<Element>& elements_with_zero() {
  static const std::vector<Element> kAll = [] {
    std::vector<Element> all;
    for (Element e : {
#define TS_ELEMENT(name, Struct) Element::name,
#include "types/types.inc"
#undef TS_ELEMENT
         }) {
      const uint64_t zero = 0;
      double number;
      info(e).decode_f64(&zero, 0, 1, &number);
      if (number == 0) all.push_back(e);
    }
    return all;
  }();
  return kAll;
}

// Random groups with at most two numbers, -0 among the zeros of floats.
std::vector<uint8_t> sparse_codes(Element e, int64_t rows, int64_t cols, std::mt19937& random) {
  const int bits = info(e).bits;
  std::vector<uint8_t> codes(static_cast<size_t>(packed_bytes(e, rows * cols)));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const uint64_t sign = info(e).kind == ElementKind::kFloat ? uint64_t{1} << (bits - 1) : 0;
      set_code(codes.data(), bits, r * cols + c, random() % 3 == 0 ? sign : 0);
    }
    for (int64_t g = 0; g < cols; g += 4) {
      for (int k = 0; k < 2; ++k) {
        const int64_t c = g + static_cast<int64_t>(random() % 4);
        if (c < cols && random() % 4 != 0) set_code(codes.data(), bits, r * cols + c, 1 + random() % 7);
      }
    }
  }
  return codes;
}

TEST(Sparse24, RoundTripsOfEveryElement) {
  std::mt19937 random(3);
  for (Element e : elements_with_zero()) {
    const int bits = info(e).bits;
    for (const auto& [rows, cols] :
         {std::pair<int64_t, int64_t>{1, 4}, {3, 5}, {2, 7}, {5, 64}, {3, 33}, {1, 1}, {0, 8}, {4, 0}}) {
      const std::vector<uint8_t> codes = sparse_codes(e, rows, cols, random);
      const auto sparse = compress24(e, codes.data(), rows, cols);
      ASSERT_TRUE(sparse.ok()) << sparse.status().message();
      ASSERT_EQ(sparse->kept.size(), static_cast<size_t>(packed_bytes(e, rows * kept24_cols(cols))));
      std::vector<uint8_t> back(codes.size(), 0xa5);
      expand24(e, sparse->kept.data(), sparse->metadata.data(), rows, cols, back.data());
      std::vector<double> a(static_cast<size_t>(rows * cols)), b(a.size());
      info(e).decode_f64(codes.data(), 0, rows * cols, a.data());
      info(e).decode_f64(back.data(), 0, rows * cols, b.data());
      EXPECT_EQ(a, b) << info(e).name << " " << rows << "x" << cols;  // -0 equals 0
      for (int64_t i = 0; i < rows * cols; ++i) {                     // numbers keep their codes
        if (a[static_cast<size_t>(i)] != 0) {
          EXPECT_EQ(code_at(codes.data(), bits, i), code_at(back.data(), bits, i));
        }
      }
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t g = 0; g < 2 * meta24_row_bytes(cols); ++g) {
          const uint32_t pair = sparse->metadata.data()[meta24_byte(r, g, cols)] >> meta24_shift(g) & 15u;
          EXPECT_LT(first24(pair), second24(pair));
        }
      }
    }
  }
}

TEST(Layouts, EveryElementComesBackFromEveryLayout) {
  std::mt19937 random(5);
  for (Element e : elements_with_zero()) {
    for (Layout layout : kLayouts) {
      if (!takes_bits(layout, info(e).bits)) continue;
      for (const auto& [rows, cols] :
           {std::pair<int64_t, int64_t>{1, 1}, {17, 5}, {33, 40}, {0, 8}, {128, 128}, {130, 260}}) {
        const std::vector<uint8_t> codes = sparse_codes(e, rows, cols, random);
        const auto stored = arrange_codes(layout, e, rows, cols, codes.data());
        ASSERT_TRUE(stored.ok()) << stored.status().message();
        EXPECT_EQ(static_cast<int64_t>(stored->size()), stored_bytes(layout, e, rows, cols));
        const Buffer back = restore_rows(layout, e, rows, cols, stored->data());
        ASSERT_EQ(back.size(), codes.size());
        std::vector<double> a(static_cast<size_t>(rows * cols)), b(a.size());
        info(e).decode_f64(codes.data(), 0, rows * cols, a.data());
        info(e).decode_f64(back.data(), 0, rows * cols, b.data());
        EXPECT_EQ(a, b) << info(e).name << " " << name_of(layout);
      }
    }
  }
  const uint8_t dense[] = {1, 1, 1, 0};
  EXPECT_FALSE(arrange_codes(Layout::kSparse24, Element::e4m3, 1, 4, dense).ok());
}

// Of each instruction every kept byte and every group of its rows has one place; a thread's two rows of both halves are
// neighbours, and the threads of a row of threads have all 128.
TEST(Sparse24Tiles, EveryByteAndGroupHasItsPlace) {
  using Tiles = Sparse24Tiles;
  for (const int t : {0, 1}) {
    std::set<std::pair<int, int>> bytes;
    for (int thread = 0; thread < Tiles::kThreads; ++thread) {
      for (int b = 0; b < 16; ++b) {
        const Tiles::Kept k = Tiles::kept(thread, b);
        EXPECT_TRUE(bytes.insert({Tiles::row(thread, t, k.upper), k.byte}).second);
      }
    }
    EXPECT_EQ(bytes.size(), 64u * 32u);
    for (const int bits : {8, 16}) {
      std::map<std::pair<int, int>, int> groups;
      for (int thread = 0; thread < Tiles::kThreads; ++thread) {
        for (int nibble = 0; nibble < 8; ++nibble) {
          const Tiles::Meta m = Tiles::meta(thread, bits, nibble);
          ++groups[{Tiles::row(thread, t, m.upper), m.first}];
        }
      }
      EXPECT_EQ(groups.size(), bits == 8 ? 64u * 16u : 64u * 8u);
      for (const auto& [place, count] : groups) EXPECT_EQ(count, bits == 8 ? 1 : 2);  // 16 bits: said twice
    }
  }
  std::set<int> rows;
  for (int thread = 0; thread < Tiles::kThreads; thread += 4) {
    for (const int t : {0, 1}) {
      for (const int upper : {0, 1}) {
        rows.insert(Tiles::row(thread, t, upper));
        EXPECT_EQ(Tiles::row(thread + 3, t, upper), Tiles::row(thread, t, upper));
      }
    }
  }
  EXPECT_EQ(rows.size(), 128u);
}

// By hand: codes of row 0 and of row 5 (thread 4's second row of t = 0 is 5), and what their metadata says.
TEST(Sparse24Tiles, HandCases) {
  std::vector<uint8_t> codes(128 * 128, 0);
  codes[0 * 128 + 1] = 11, codes[0 * 128 + 3] = 13;  // row 0, group 0: places 1 and 3
  codes[5 * 128 + 70] = 17;                          // row 5, half 1 of k, group 1 of it: place 2
  const Buffer stored = arrange_codes(Layout::kSparse24Tiles, Element::e4m3, 128, 128, codes.data()).value();
  EXPECT_EQ(stored.size(), static_cast<size_t>(Sparse24Tiles::kTileBytes));
  EXPECT_EQ(stored.data()[0], 11);
  EXPECT_EQ(stored.data()[1], 13);
  EXPECT_EQ(stored.data()[4 * 2048], 1 | 3 << 2 | 4 << 4);  // thread 0: row 0, groups 0 and 1; an empty one is 0, 1
  // Row 5 = 4 * 1 + 2 * 0 + 1: thread 4 has it as its upper row; byte 2 of its 32 kept ones lies in word 1 of the
  // thread that has bytes 0 to 3. The number is the second that group 17 keeps, after a zero at place 0.
  EXPECT_EQ(stored.data()[1 * 2048 + 4 * 16 + 4 + 3], 17);
  EXPECT_EQ(stored.data()[4 * 2048 + 5 * 16 + 1 * 4], 4 | (0 | 2 << 2) << 4);  // the odd thread has upper rows' groups
}

// Every number of a tile has one place, and the codes of a word share no bit.
TEST(NibbleTiles, EveryCodeHasItsPlace) {
  for (const int bits : {16, 8}) {
    std::set<std::pair<int, int>> numbers;
    std::set<int> bytes;
    for (int thread = 0; thread < NibbleTiles::kThreads; ++thread) {
      for (int word = 0; word < NibbleTiles::kWords; ++word) {
        EXPECT_TRUE(bytes.insert(NibbleTiles::word_byte(thread, word)).second);
        uint32_t used = 0;
        for (int number = 0; number < 8; ++number) {
          const NibbleTiles::Code c = NibbleTiles::code(bits, thread, word, number);
          EXPECT_TRUE(numbers.insert({c.row, c.col}).second);
          EXPECT_EQ(c.col / 16, word);
          const uint32_t own = 7u << c.magnitude | 1u << c.sign;
          EXPECT_EQ(used & own, 0u);
          used |= own;
        }
        EXPECT_EQ(used, 0xffffffffu);
      }
    }
    EXPECT_EQ(numbers.size(), static_cast<size_t>(NibbleTiles::kRows * NibbleTiles::kCols));
    EXPECT_EQ(bytes.size() * 4, static_cast<size_t>(NibbleTiles::kTileBytes));
  }
}

// A word with `code` as its number `number` and random codes beside it.
uint32_t word_with(int bits, int number, uint32_t code, std::mt19937& random) {
  const NibbleTiles::Code c = NibbleTiles::code(bits, 0, 0, number);
  const uint32_t own = 7u << c.magnitude | 1u << c.sign;
  return (static_cast<uint32_t>(random()) & ~own) | (code & 7) << c.magnitude | code >> 3 << c.sign;
}

// What a kernel makes of a word, for every code at every place: numbers of f16, selectors and signs of bytes, in the
// half or byte of the register that wgmma has for the code's column.
TEST(NibbleTiles, EveryCodeIsMadeAnOperand) {
  std::mt19937 random(6);
  for (int number = 0; number < 8; ++number) {
    for (uint32_t code = 0; code < 16; ++code) {
      for (int again = 0; again < 8; ++again) {
        const uint32_t half =
            NibbleTiles::halves(word_with(16, number, code, random), number / 2) >> number % 2 * 16 & 0xffff;
        EXPECT_EQ(F16::decode(static_cast<uint16_t>(half)), 0x1p-14f * E2m1::decode(static_cast<uint8_t>(code)));
        EXPECT_EQ(half >> 15, code >> 3);
        const uint32_t word = word_with(8, number, code, random);
        EXPECT_EQ(NibbleTiles::selectors(word, number / 4) >> number % 4 * 4 & 15, code & 7);
        EXPECT_EQ(NibbleTiles::signs(word, number / 4) >> number % 4 * 8 & 0xff, code >> 3 << 7);
      }
    }
  }
}

// By hand: thread 5 is row place 1, columns 2 and 3 (or 4 to 7) of each 16.
TEST(NibbleTiles, HandCases) {
  constexpr NibbleTiles::Code half = NibbleTiles::code(16, 5, 3, 3), byte = NibbleTiles::code(8, 5, 3, 6);
  static_assert(half.row == turn_pairs32(9) && half.col == 48 + 2 + 1 && half.magnitude == 22 && half.sign == 28);
  static_assert(byte.row == turn_pairs32(9) && byte.col == 48 + 4 + 2 && byte.magnitude == 24 && byte.sign == 19);
  static_assert(NibbleTiles::word_byte(5, 6) == 1024 + 80 + 8 && NibbleTiles::bytes(33, 129) == 4 * 2048);
  static_assert(layout_index(Layout::kTiles32x8, 33, 9, 64, 16) == 3 * 256 + 1 * 8 + 1);
  static_assert(layout_index(Layout::kTiles32x8, 2, 0, 64, 16) == 64 && turn_pairs32(2) == 8);
  std::vector<uint8_t> codes(32 * 128 / 2, 0);
  set_code(codes.data(), 4, half.row * 128 + half.col, 13);
  const Buffer stored = arrange_codes(Layout::kNibbles16, Element::e2m1, 32, 128, codes.data()).value();
  uint32_t word = 0;
  std::copy_n(stored.data() + 5 * 16 + 12, 4, reinterpret_cast<uint8_t*>(&word));
  EXPECT_EQ(word, 5u << 22 | 1u << 28);
}

TEST(Sparse24, DenseGroupsAndElementsWithoutZeroAreErrors) {
  const uint8_t codes[] = {1, 0, 2, 0, 0, 1, 1, 1};
  const auto dense = compress24(Element::e4m3, codes, 1, 8);
  ASSERT_FALSE(dense.ok());
  EXPECT_NE(dense.status().message().find("row 0, columns 4 to 7"), std::string::npos) << dense.status().message();
  EXPECT_FALSE(compress24(Element::e8m0, codes, 1, 8).ok());
}

TEST(Sparse24, PruningKeepsTheLargestAndTheLowerOfEqualOnes) {
  std::vector<float> x = {1, -3, 2, 0.5f, /**/ 1, -1, 1, -1, /**/ 0, 0, -0.0f, 5, /**/ 2, 1, 2};
  prune24(x.data(), 1, 15);
  EXPECT_EQ(x, (std::vector<float>{0, -3, 2, 0, 1, -1, 0, 0, 0, 0, 0, 5, 2, 0, 2}));
  std::vector<float> nan = {3, NAN, 4, 5};
  prune24(nan.data(), 1, 4);
  EXPECT_TRUE(std::isnan(nan[1]));
  EXPECT_EQ(nan[3], 5);
  EXPECT_EQ(nan[2], 0);
}

void write_bytes(const std::string& path, const void* data, size_t bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  ASSERT_TRUE(out.good()) << path;
}

// Into the folder that TESSERA_DUMP_TYPES names, for a list of shapes: scales.RxC.in and .tiles; <element>.RxC.codes,
// .kept, .metadata; and prune.RxC.in (f32), .out.
TEST(LayoutDump, WritesArrays) {
  const char* asked = std::getenv("TESSERA_DUMP_TYPES");
  if (asked == nullptr) GTEST_SKIP() << "tests/types_test.py names the folder";
  std::mt19937 random(4);
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{1, 1}, {5, 33}, {128, 4}, {130, 9}, {257, 48}, {64, 128}}) {
    const std::string shape = cat(".", rows, "x", cols), folder = std::string(asked) + "/";
    std::vector<uint8_t> scales(static_cast<size_t>(rows * cols));
    for (uint8_t& b : scales) b = static_cast<uint8_t>(random());
    const Buffer tiles = arrange_codes(Layout::kTiles128x4, Element::e4m3, rows, cols, scales.data()).value();
    write_bytes(folder + "scales" + shape + ".in", scales.data(), scales.size());
    write_bytes(folder + "scales" + shape + ".tiles", tiles.data(), tiles.size());
    for (Element e : {Element::e4m3, Element::e2m1, Element::f16, Element::i8}) {
      const std::vector<uint8_t> codes = sparse_codes(e, rows, cols, random);
      const auto sparse = compress24(e, codes.data(), rows, cols);
      ASSERT_TRUE(sparse.ok());
      write_bytes(folder + info(e).name + shape + ".codes", codes.data(), codes.size());
      write_bytes(folder + info(e).name + shape + ".kept", sparse->kept.data(), sparse->kept.size());
      write_bytes(folder + info(e).name + shape + ".metadata", sparse->metadata.data(), sparse->metadata.size());
    }
    std::vector<float> x(static_cast<size_t>(rows * cols));
    for (float& v : x) v = static_cast<float>(static_cast<int>(random() % 9) - 4);  // many equal magnitudes
    write_bytes(folder + "prune" + shape + ".in", x.data(), x.size() * sizeof(float));
    prune24(x.data(), rows, cols);
    write_bytes(folder + "prune" + shape + ".out", x.data(), x.size() * sizeof(float));
  }
}

}  // namespace
}  // namespace tessera
