// SPDX-License-Identifier: Apache-2.0
#include "io/images.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "io/images_prepare.h"
#include "io/mmap.h"
#include "io/npz.h"

namespace tessera {
namespace {

const std::string kFolder = TS_SOURCE_DIR "/tests/data/images/";

#if TS_WITH_JPEG && TS_WITH_PNG

const Array& expected(const std::string& name) {
  static const auto all = read_npz(kFolder + "expected.npz");
  EXPECT_TRUE(all.ok());
  for (const Array& a : *all) {
    if (a.name == name) return a;
  }
  ADD_FAILURE() << name;
  return (*all)[0];
}

void expect_pixels(const Image& got, const Array& want, int tolerance) {
  ASSERT_EQ((std::vector<int64_t>{got.height, got.width, 3}), want.shape);
  ASSERT_EQ(got.rgb.size(), want.data.size());
  int worst = 0;
  for (size_t i = 0; i < got.rgb.size(); ++i)
    worst = std::max(worst, std::abs(int{got.rgb[i]} - int{want.data.data()[i]}));
  EXPECT_LE(worst, tolerance);
}

TEST(Images, EveryKindIsReadAsPillowReadsIt) {
  for (const char* name : {"rgb.png", "grey.png", "alpha.png", "palette.png", "one_bit.png", "sixteen_bit.png"}) {
    SCOPED_TRACE(name);
    const auto image = read_image(kFolder + name);
    ASSERT_TRUE(image.ok()) << image.status().message();
    expect_pixels(*image, expected(name), 0);
  }
  // Decoders may differ in the last bit of the inverse transform, and once more in that of the colours.
  for (const char* name : {"rgb.jpg", "progressive.jpg", "grey.jpg"}) {
    SCOPED_TRACE(name);
    const auto image = read_image(kFolder + name);
    ASSERT_TRUE(image.ok()) << image.status().message();
    expect_pixels(*image, expected(name), 2);
  }
}

TEST(Images, ResizedAsPillowDoes) {
  const auto image = read_image(kFolder + "rgb.png");
  ASSERT_TRUE(image.ok());
  for (const bool bicubic : {false, true}) {
    for (const auto& [height, width] :
         {std::pair<int64_t, int64_t>{16, 16}, {8, 20}, {37, 20}, {64, 53}, {101, 97}, {1, 1}, {200, 5}}) {
      SCOPED_TRACE(cat(bicubic, " ", height, "x", width));
      // Where a sum falls on half a step, Pillow's own result depends on whether its machine fuses multiply and add.
      expect_pixels(resize_image(*image, height, width, bicubic),
                    expected(cat(bicubic ? "bicubic_" : "bilinear_", height, "x", width)), 1);
    }
  }
}

TEST(Images, WhatIsRefusedSaysWhy) {
  for (const auto& [name, why] :
       {std::pair{"cmyk.jpg", "CMYK"}, {"huge.png", "60000 x 60000"}, {"expected.npz", "neither a JPEG nor a PNG"}}) {
    const auto image = read_image(kFolder + name);
    ASSERT_FALSE(image.ok()) << name;
    EXPECT_NE(image.status().message().find(why), std::string::npos) << image.status().message();
    EXPECT_NE(image.status().message().find(name), std::string::npos) << image.status().message();
  }
}

TEST(Images, CutShortAnywhereIsAnErrorOrTheWholeImage) {
  for (const char* name : {"rgb.png", "palette.png", "rgb.jpg", "progressive.jpg"}) {
    const auto file = map_file(kFolder + name);
    ASSERT_TRUE(file.ok());
    for (size_t n = 0; n + 1 < file->size(); n += 1 + n / 16) {
      const auto image = decode_image(file->span().subspan(0, n));
      EXPECT_FALSE(image.ok()) << name << " cut to " << n;
    }
  }
}

TEST(Images, FlippedBitsNeverBreakTheReader) {
  for (const char* name : {"rgb.png", "alpha.png", "rgb.jpg", "progressive.jpg", "cmyk.jpg"}) {
    const auto file = map_file(kFolder + name);
    ASSERT_TRUE(file.ok());
    std::vector<uint8_t> bytes(file->span().begin(), file->span().end());
    for (size_t i = 0; i < bytes.size(); i += 7) {
      bytes[i] ^= static_cast<uint8_t>(1 << (i % 8));
      if (const auto image = decode_image(bytes); image.ok()) {
        EXPECT_EQ(image->rgb.size(), static_cast<size_t>(image->height * image->width * 3));
      }
      bytes[i] ^= static_cast<uint8_t>(1 << (i % 8));
    }
  }
}

TEST(Images, FoldersAreListedInOrder) {
  const auto paths = list_images(kFolder);
  ASSERT_TRUE(paths.ok());
  EXPECT_EQ(paths->size(), 11u);
  EXPECT_TRUE(std::is_sorted(paths->begin(), paths->end()));
  EXPECT_NE(list_images(TS_SOURCE_DIR "/src/io").status().message().find("holds no .jpg"), std::string::npos);
}

#endif

TEST(Preprocess, WordsReadBack) {
  for (const char* text :
       {"size=224", "size=8x12,mean=0.5,std=0.25:0.5:1,layout=nhwc", "size=32x16,fit=stretch,filter=bicubic",
        "size=224,resize=256,mean=0.485:0.456:0.406,std=0.229:0.224:0.225"}) {
    const auto p = parse_preprocess(text);
    ASSERT_TRUE(p.ok()) << p.status().message();
    const auto again = parse_preprocess(to_string(*p));
    ASSERT_TRUE(again.ok()) << to_string(*p);
    EXPECT_EQ(*p, *again);
  }
}

TEST(Preprocess, WrongPartsAreNamed) {
  for (const auto& [text, part] : {std::pair{"", "wanted one of size="},
                                   {"mean=0.5", "a size="},
                                   {"size=0", "'size=0'"},
                                   {"size=1x2x3", "'size=1x2x3'"},
                                   {"size=224,", "wanted one of size="},
                                   {"size=99999", "up to"},
                                   {"size=8,mean=1:2", "'mean=1:2'"},
                                   {"size=8,mean=nan", "'mean=nan'"},
                                   {"size=8,std=0.5:0:1", "above zero"},
                                   {"size=8,std=-1", "above zero"},
                                   {"size=8,layout=chwn", "layout=nchw or layout=nhwc"},
                                   {"size=8,size=9", "size only once"},
                                   {"size=8,colour=rgb", "'colour=rgb'"},
                                   {"size=8,fit=pad", "fit=crop or fit=stretch"},
                                   {"size=8,filter=lanczos", "filter="},
                                   {"size=8,fit=stretch,resize=9", "no resize="},
                                   {"size=8x16,resize=9", "at least both sides"}}) {
    const auto p = parse_preprocess(text);
    ASSERT_FALSE(p.ok()) << text;
    EXPECT_EQ(p.status().code(), Code::kUsage);
    if (std::string(part) == "up to") continue;
    EXPECT_NE(p.status().message().find(part), std::string::npos) << text << ": " << p.status().message();
  }
}

TEST(Preprocess, NumbersAndLayout) {
  Image image{1, 2, {255, 0, 51, 102, 153, 204}};
  auto p = parse_preprocess("size=1x2,mean=0.5:0:0.2,std=0.5:1:2,fit=stretch");
  ASSERT_TRUE(p.ok());
  auto x = prepare_image(image, *p);
  ASSERT_TRUE(x.ok());
  const double want[2][3] = {{(1 - 0.5) / 0.5, 0, (0.2 - 0.2) / 2}, {(0.4 - 0.5) / 0.5, 0.6, (0.8 - 0.2) / 2}};
  for (size_t i = 0; i < 2; ++i) {
    for (size_t c = 0; c < 3; ++c) EXPECT_NEAR((*x)[c * 2 + i], want[i][c], 1e-7);
  }
  p->channels_first = false;
  x = prepare_image(image, *p);
  for (size_t i = 0; i < 2; ++i) {
    for (size_t c = 0; c < 3; ++c) EXPECT_NEAR((*x)[i * 3 + c], want[i][c], 1e-7);
  }
}

TEST(Pixels, WordsReadBack) {
  for (const char* text : {"mean=0.5", "std=0.25,mean=0:0.5:1", "mean=0.1:0.2,std=1:0.003921568859368563",
                           "layout=nchw,mean=0.485:0.456:0.406,std=0.229:0.224:0.225", "layout=nhwc"}) {
    const auto p = parse_pixels(text);
    ASSERT_TRUE(p.ok()) << p.status().message();
    const auto again = parse_pixels(to_string(*p));
    ASSERT_TRUE(again.ok()) << to_string(*p);
    EXPECT_EQ(*p, *again);
  }
  EXPECT_EQ(to_string(*parse_pixels("std=0.5,mean=0:1")), "mean=0:1,std=0.5");
}

// One formula for bytes outside and inside an engine.
TEST(Pixels, AreThoseOfPreparedImages) {
  Image image{16, 16, {}};
  for (int i = 0; i < 256 * 3; ++i) image.rgb.push_back(static_cast<uint8_t>(i / 3));
  const auto p = parse_preprocess("size=16,mean=0.485:0.456:0.406,std=0.229:0.224:0.225,layout=nhwc");
  ASSERT_TRUE(p.ok());
  const auto x = prepare_image(image, *p), y = prepare_image(*fit_image(image, *p), *p);
  ASSERT_TRUE(x.ok() && y.ok());
  EXPECT_EQ(*x, *y);
  for (size_t i = 0; i < x->size(); ++i)
    EXPECT_EQ((*x)[i], pixel_number(static_cast<uint8_t>(i / 3), p->mean[i % 3], p->std[i % 3]));
}

TEST(Preprocess, KnowsWhoSaysNumbers) {
  EXPECT_FALSE(says_numbers("size=8,fit=stretch,filter=bicubic"));
  for (const char* text : {"size=8,mean=0", "std=1,size=8", "size=8,layout=nchw"}) EXPECT_TRUE(says_numbers(text));
}

TEST(Preprocess, TheMiddleIsCutOut) {
  Image image{4, 9, std::vector<uint8_t>(4 * 9 * 3)};
  for (size_t i = 0; i < 36; ++i) image.rgb[i * 3] = static_cast<uint8_t>(i % 9 * 10);  // red is the column
  auto p = parse_preprocess("size=4");
  ASSERT_TRUE(p.ok());
  const auto x = prepare_image(image, *p);  // 9 - 4 = 5 to spare: 2.5 goes to the even 2
  ASSERT_TRUE(x.ok());
  for (size_t i = 0; i < 16; ++i) EXPECT_NEAR((*x)[i], static_cast<double>(2 + i % 4) * 10 / 255, 1e-7) << i;
  for (const char* text : {"size=3x11", "size=11x3", "size=2x2,resize=7", "size=40x3"}) {
    p = parse_preprocess(text);
    ASSERT_TRUE(p.ok());
    const auto y = prepare_image(image, *p);
    ASSERT_TRUE(y.ok()) << text;
    EXPECT_EQ(static_cast<int64_t>(y->size()), p->height * p->width * 3);
  }
}

}  // namespace
}  // namespace tessera
