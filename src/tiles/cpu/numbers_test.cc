// SPDX-License-Identifier: Apache-2.0
// Rows and panels of numbers against code * scale of the elements themselves, bit for bit; results are poisoned first.
#include "tiles/cpu/numbers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/buffer.h"
#include "types/layout.h"

namespace tessera {
namespace {

const char* const kTypes[] = {"f16",
                              "bf16",
                              "e4m3:tensor(f32)",
                              "e4m3:block32(e8m0)",
                              "e4m3:block128(e4m3)",
                              "e2m1:block16(e4m3):tensor(f32)",
                              "e2m1:block16(e4m3):tensor(f32):as(e4m3)",
                              "e2m1:block32(e8m0)",
                              "e5m2:channel(f32)",
                              "i8:channel(f32)",
                              "i8:block6(e8m0)",
                              "i4:channel(f32)",
                              "i4:block32(f16)",
                              "i4:block5(e4m3)",
                              "i8:block64(f32)"};

struct Stored {
  Stored(const QuantType& type, int64_t rows, int64_t cols)
      : codes(static_cast<size_t>(packed_bytes(type.element, rows * cols))),
        scales(static_cast<size_t>(packed_bytes(type.scale.element, scale_count(type.scale, rows, cols)))),
        numbers(static_cast<size_t>(rows * cols)) {
    std::mt19937_64 random(7);
    std::normal_distribution<float> normal(0, 3);
    const int64_t count = scale_count(type.scale, rows, cols);
    std::vector<float> scale(static_cast<size_t>(count));
    for (float& s : scale) s = std::fabs(normal(random)) + 0.01f;
    if (count > 0) info(type.scale.element).encode(scale.data(), count, scales.data(), 0);
    if (count > 0) info(type.scale.element).decode(scales.data(), 0, count, scale.data());
    for (float& v : numbers) v = normal(random);
    info(type.element).encode(numbers.data(), rows * cols, codes.data(), 0);
    info(type.element).decode(codes.data(), 0, rows * cols, numbers.data());
    if (!has_block_scales(type)) return;
    for (int64_t i = 0; i < rows * cols; ++i) {
      float& v = numbers[static_cast<size_t>(i)];
      v *= scale[static_cast<size_t>(scale_index(type.scale, i / cols, i % cols, cols))];
      uint64_t code = 0;
      if (!type.product) continue;
      info(*type.product).encode(&v, 1, &code, 0);
      info(*type.product).decode(&code, 0, 1, &v);
    }
  }
  std::vector<uint8_t> codes, scales;
  std::vector<float> numbers;
};

float number_at(const std::vector<float>& out, Element e, int64_t i) {
  if (e == Element::f32) return out[static_cast<size_t>(i)];
  float v;
  info(e).decode(out.data(), i, 1, &v);
  return v;
}
std::vector<float> poison(int64_t n) {
  return std::vector<float>(static_cast<size_t>(n), std::numeric_limits<float>::quiet_NaN());
}

TEST(CpuNumbers, RowsAreCodesTimesScales) {
  for (const char* text : kTypes) {
    const QuantType type = *parse_quant_type(text);
    for (Element to : {Element::f32, Element::bf16}) {
      if (to == Element::bf16 && !fits_bf16(type)) continue;
      const NumberReader reader(type, to);
      for (int64_t cols : {1, 7, 33, 100, 2601}) {
        const Stored stored(type, 3, cols);
        for (int64_t row : {0, 1, 2}) {
          for (int64_t col : {int64_t{0}, cols / 3, cols - 1}) {
            const int64_t n = cols - col;
            std::vector<float> out = poison(n + 1);
            reader.read_row({stored.codes.data(), stored.scales.data(), cols}, row * cols + col, row, col, n,
                            out.data());
            for (int64_t i = 0; i < n; ++i)
              ASSERT_EQ(number_at(out, to, i), stored.numbers[static_cast<size_t>(row * cols + col + i)])
                  << text << " row " << row << " col " << col + i;
            EXPECT_TRUE(std::isnan(number_at(out, to, to == Element::f32 ? n : n | 1))) << text;
          }
        }
      }
    }
  }
}

TEST(CpuNumbers, PanelsAreRowsInAnotherOrder) {
  for (const char* text : kTypes) {
    const QuantType type = *parse_quant_type(text);
    for (const auto& [to, layout] :
         {std::pair{Element::f32, Layout::kPanels16}, std::pair{Element::bf16, Layout::kPanels16x4}}) {
      const int64_t group = layout_group(layout);
      if ((to == Element::bf16 && !fits_bf16(type)) || (has_block_scales(type) && type.scale.block % group != 0))
        continue;
      const NumberReader reader(type, to);
      for (int64_t cols : {1, 7, 96, 100, 2601}) {
        const int64_t all = 20;
        const Stored stored(type, all, cols);
        const auto packed = arrange_codes(layout, type.element, all, cols, stored.codes.data());
        const ScaleLevel& level = type.scale;
        const int64_t blocks = has_block_scales(type) ? divide_up(cols, level.block) : 0;
        const auto scales = arrange_codes(NumberReader::kPanelScales, level.element, all, blocks, stored.scales.data());
        ASSERT_TRUE(packed.ok() && scales.ok());
        for (int64_t row : {0, 16}) {
          const int64_t col = cols / 3 / 8 * 8, n = cols - col, rows = std::min<int64_t>(16, all - row),
                        many = 16 * round_up(n, group);
          std::vector<float> out = poison(many + 2);
          reader.read_panel({packed->data(), scales->data(), cols}, layout_index(layout, row, col, rows, cols), row,
                            col, n, out.data());
          for (int64_t r = 0; r < 16; ++r) {
            for (int64_t c = 0; c < n; ++c)
              ASSERT_EQ(number_at(out, to, layout_index(layout, r, c, rows, n)),
                        r < rows ? stored.numbers[static_cast<size_t>((row + r) * cols + col + c)] : 0)
                  << text << " row " << row + r << " col " << col + c;
          }
          EXPECT_TRUE(std::isnan(number_at(out, to, to == Element::f32 ? many : many | 1))) << text;
        }
      }
    }
  }
}

TEST(CpuNumbers, SignificandsSayWhatFits) {
  EXPECT_EQ(significand_bits(Element::e2m1), 2);
  EXPECT_EQ(significand_bits(Element::e4m3), 4);
  EXPECT_EQ(significand_bits(Element::e8m0), 1);
  EXPECT_EQ(significand_bits(Element::i8), 7);
  EXPECT_EQ(significand_bits(Element::u8), 8);
  EXPECT_EQ(significand_bits(Element::f32), 24);
  EXPECT_TRUE(fits_bf16(kMxfp8));
  EXPECT_TRUE(fits_bf16(kNvfp4));
  EXPECT_TRUE(fits_bf16(kNvfp4AsE4m3));
  EXPECT_FALSE(fits_bf16(*parse_quant_type("i4:block32(f16)")));
  EXPECT_FALSE(fits_bf16(Element::f16));
  EXPECT_TRUE(fits_f32(*parse_quant_type("i4:block32(f16)")));
  EXPECT_FALSE(fits_f32(*parse_quant_type("i8:block64(f32)")));
}

}  // namespace
}  // namespace tessera
