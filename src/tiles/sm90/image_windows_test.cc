// SPDX-License-Identifier: Apache-2.0
#include "tiles/sm90/image_windows.h"

#include <gtest/gtest.h>

#include <vector>

namespace tessera::sm90 {
namespace {

struct Axis {
  int in, kernel, stride, dilation, before, after;
  int out() const { return (in + before + after - (kernel - 1) * dilation - 1) / stride + 1; }
};

const Axis kAxes[] = {{1, 1, 1, 1, 0, 0},  {7, 3, 1, 1, 1, 1},  {8, 3, 2, 1, 1, 1},
                      {9, 3, 2, 1, 0, 1},  {11, 5, 3, 2, 4, 0}, {13, 7, 4, 1, 3, 3},
                      {10, 2, 2, 1, 0, 0}, {16, 3, 1, 6, 6, 6}, {5, 1, 8, 1, 0, 0}};

ImageWindows windows_of(const Axis& across, const Axis& down) {
  return {.out_width = across.out(),
          .out_height = down.out(),
          .sw = across.stride,
          .sh = down.stride,
          .dw = across.dilation,
          .dh = down.dilation,
          .left = across.before,
          .top = down.before,
          .kw = across.kernel,
          .taps = across.kernel * down.kernel,
          .channels = 16,
          .group_cols = 64,
          .group_tiles = 1};
}

// What TMA does from a first corner on: steps over the box of corners, line by line and image by image.
TEST(ImageWindows, TheBoxOfCornersHasAsManyStepsAsTheResultHasPixels) {
  for (const Axis& across : kAxes) {
    for (const Axis& down : kAxes) {
      const ImageWindows windows = windows_of(across, down);
      const CornerBox w = corner_box(across.in, across.out(), across.stride, across.before),
                      h = corner_box(down.in, down.out(), down.stride, down.before);
      ImageWindows::Corner at{w.lower, h.lower, 0};
      for (int m = 0; m < 3 * windows.out_width * windows.out_height; ++m) {
        const ImageWindows::Corner corner = windows.corner(m);
        ASSERT_EQ(corner.w, at.w) << m;
        ASSERT_EQ(corner.h, at.h) << m;
        ASSERT_EQ(corner.image, at.image) << m;
        at.w += across.stride;
        if (at.w < across.in + w.upper) continue;
        at.w = w.lower, at.h += down.stride;
        if (at.h < down.in + h.upper) continue;
        at.h = h.lower, ++at.image;
      }
      // The last tap of the last corner is a pixel of the padded image.
      EXPECT_LE(windows.corner(windows.out_width - 1).w + (across.kernel - 1) * across.dilation,
                across.in - 1 + across.after);
    }
  }
}

TEST(ImageWindows, TilesBelongToOneGroup) {
  for (const int groups : {1, 3}) {
    for (const int cols : {32, 64, 96, 128, 160, 320}) {
      for (const int tile : {64, 128}) {
        ImageWindows w = windows_of(kAxes[1], kAxes[1]);
        w.group_cols = cols, w.group_tiles = (cols + tile - 1) / tile;
        std::vector<int> written(static_cast<size_t>(groups * cols));
        for (int t = 0; t < groups * w.group_tiles; ++t) {
          const int first = w.first_column(t, tile), end = w.group_end(t);
          EXPECT_EQ(first / cols, w.group(t));
          EXPECT_EQ(end, (w.group(t) + 1) * cols);
          for (int c = first; c < first + tile && c < end; ++c) ++written[static_cast<size_t>(c)];
        }
        for (const int count : written) EXPECT_EQ(count, 1);
      }
    }
  }
}

TEST(ImageWindows, ChannelsAreFilledUp) {
  ImageWindows w = windows_of(kAxes[1], kAxes[3]);
  EXPECT_EQ(w.k_blocks(64), 9);
  w.channels = 64;
  EXPECT_EQ(w.k_blocks(64), 9);
  w.channels = 72;
  EXPECT_EQ(w.k_blocks(64), 18);
}

}  // namespace
}  // namespace tessera::sm90
