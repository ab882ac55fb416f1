// SPDX-License-Identifier: Apache-2.0
#include "types/quant_type.h"

#include <gtest/gtest.h>

#include <set>

#include "types/layout.h"

namespace tessera {
namespace {

TEST(QuantType, TextReadsBack) {
  for (const char* text : {"f32",
                           "f16",
                           "bf16",
                           "e4m3",
                           "i64",
                           "u8",
                           "e4m3:tensor(f32)",
                           "e4m3:channel(f32)",
                           "e4m3:token(f32)!",
                           "e4m3:block16(e4m3):tensor(f32)",
                           "f16:block32(bf16)",
                           "i8:channel(f32)",
                           "i4:block128(f16)",
                           "e5m2:token(f32)!",
                           "e4m3:block32(e8m0)",
                           "e4m3:block32(e8m0,floor)",
                           "e4m3:block32(e8m0,ceil)!",
                           "e2m1:block32(e8m0,even)",
                           "e2m1:block16(e4m3):tensor(f32)",
                           "e2m1:block16(e4m3):tensor(f32):as(e4m3)",
                           "e2m1:block16(e4m3):as(e4m3)"}) {
    const auto type = parse_quant_type(text);
    ASSERT_TRUE(type.has_value()) << text;
    EXPECT_EQ(to_string(*type), text);
  }
  EXPECT_EQ(to_string(kE4m3PerTensor), "e4m3:tensor(f32)");
  EXPECT_EQ(parse_quant_type("e4m3:channel(f32)"), kE4m3PerChannel);
  EXPECT_EQ(parse_quant_type("e4m3:block32(e8m0,rceil)"), kMxfp8);
  EXPECT_EQ(parse_quant_type("e2m1:block16(e4m3):tensor(f32)"), kNvfp4);
  EXPECT_EQ(parse_quant_type("e2m1:block16(e4m3):tensor(f32):as(e4m3)"), kNvfp4AsE4m3);
}

TEST(QuantType, OtherTextIsRefused) {
  for (const char* text : {"",
                           "!",
                           "fp8",
                           "f16!",
                           "e4m3:",
                           "e4m3:tensor",
                           "e4m3:tensor(",
                           "e4m3:tensor()",
                           "e4m3:tensor(f99)",
                           "e4m3:row(f32)",
                           "e4m3:block(f32)",
                           "e4m3:block0(f32)",
                           "e4m3:block-1(f32)",
                           "e4m3:block1x(f32)",
                           "e4m3:tensor(f32):tensor(f32):tensor(f32)",
                           ":tensor(f32)",
                           "e4m3::",
                           "e4m3:block32(e8m0,)",
                           "e4m3:block32(e8m0,round)",
                           "e4m3:block32(e4m3,floor)",
                           "e4m3:as(e4m3)",
                           "e4m3:tensor(f32):as(e4m3)",
                           "e2m1:block16(e4m3):as(e4m3):tensor(f32)",
                           "e2m1:block16(e4m3):as()",
                           "e2m1:block16(e4m3):as(e4m3",
                           "e2m1:block16(e4m3):as(e4m3):as(e4m3)"}) {
    EXPECT_FALSE(parse_quant_type(text).has_value()) << text;
  }
}

TEST(QuantType, ScalesCoverEveryElement) {
  const int64_t rows = 5, cols = 37;
  for (const ScaleLevel& level :
       {ScaleLevel{Granularity::kTensor}, ScaleLevel{Granularity::kChannel}, ScaleLevel{Granularity::kToken},
        ScaleLevel{Granularity::kBlock, Element::f32, 16}, ScaleLevel{Granularity::kBlock, Element::f32, 37}}) {
    std::set<int64_t> used;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) used.insert(scale_index(level, r, c, cols));
    }
    EXPECT_EQ(static_cast<int64_t>(used.size()), scale_count(level, rows, cols));
    EXPECT_EQ(*used.begin(), 0);
    EXPECT_EQ(*used.rbegin(), scale_count(level, rows, cols) - 1);
  }
  EXPECT_EQ(scale_count(ScaleLevel{}, rows, cols), 0);
}

TEST(QuantType, ScaleMapsTheLargestToTheLargest) {
  EXPECT_EQ(scale_for_amax(Element::e4m3, 448), 1);
  EXPECT_EQ(scale_for_amax(Element::e4m3, 44.8f), 44.8f / 448);
  EXPECT_EQ(scale_for_amax(Element::e4m3, 0), 1);
  EXPECT_EQ(scale_for_amax(Element::e4m3, 1e-45f), 1);
  EXPECT_EQ(scale_for_amax(Element::i8, 254), 2);
  EXPECT_EQ(scale_for_amax(Element::i4, 3.5f), 0.5f);
}

TEST(Layout, EveryElementHasItsOwnPlace) {
  for (Layout layout : kLayouts) {
    EXPECT_EQ(find_layout(name_of(layout)), layout);
    if (!is_order(layout)) continue;
    for (int64_t rows : {1, 15, 16, 17, 48}) {
      const int64_t cols = 7;
      std::set<int64_t> places;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          const int64_t at = layout_index(layout, r, c, rows, cols);
          EXPECT_GE(at, 0);
          EXPECT_LT(at, layout_elements(layout, rows, cols));
          places.insert(at);
        }
      }
      EXPECT_EQ(static_cast<int64_t>(places.size()), rows * cols);
    }
  }
  EXPECT_EQ(layout_index(Layout::kPanels16, 17, 2, 20, 7), (7 + 2) * 16 + 1);
  EXPECT_FALSE(find_layout("columns").has_value());
}

}  // namespace
}  // namespace tessera
