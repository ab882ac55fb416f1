// SPDX-License-Identifier: Apache-2.0
// Windows of images as rows of a matrix, as the normal mainloop (gemm.cuh) reads them for a convolution: row m is the
// window of pixel m of y; k goes over the taps of the kernel, line by line, and within each over the channels of a
// group, 128 bytes at a time, the last ones filled up with zeros. TMA walks so by itself (im2col): from a window's
// first corner over the pixels of a line, of an image, of the next image; a tap is an offset from there. Columns of y
// belong to groups of channels; no tile has columns of two. Host and device, constexpr: tested on the CPU.
#pragma once

#include <cstdint>

#include "types/small_float.h"

namespace tessera::sm90 {

struct ImageWindows {
  int out_width, out_height;  // of y
  int sw, sh, dw, dh, left, top;
  int kw, taps;                 // of a line of the kernel, of all of it
  int channels;                 // of x in a group
  int group_cols, group_tiles;  // columns of y in a group, tiles of them

  struct Corner {
    int w, h, image;
  };
  // Where the window of a pixel of y begins; outside the image where it is padded.
  TS_HOST_DEVICE constexpr Corner corner(int m) const {
    const int line = m / out_width, image = line / out_height;
    return {(m - line * out_width) * sw - left, (line - image * out_height) * sh - top, image};
  }
  TS_HOST_DEVICE constexpr int group(int tile_col) const { return tile_col / group_tiles; }
  TS_HOST_DEVICE constexpr int first_column(int tile_col, int tile_cols) const {
    return group(tile_col) * group_cols + tile_col % group_tiles * tile_cols;
  }
  // The first column behind the tile's group.
  TS_HOST_DEVICE constexpr int group_end(int tile_col) const { return (group(tile_col) + 1) * group_cols; }
  TS_HOST_DEVICE constexpr int k_blocks(int block_k) const { return taps * ((channels + block_k - 1) / block_k); }
};

// The box of first corners that TMA walks over, from the image's edges: `lower` before its first pixel, `upper` behind
// its last one. It holds as many steps of `stride` as y has pixels.
struct CornerBox {
  int lower, upper;
};
constexpr CornerBox corner_box(int64_t in, int64_t out, int64_t stride, int64_t before) {
  return {static_cast<int>(-before), static_cast<int>((out - 1) * stride + 1 - in - before)};
}
// What the instruction encodes: corners and offsets of two axes in a byte each, strides in three bits.
constexpr int kMostCorner = 127, kMostOffset = 254, kMostPixelStride = 8;

}  // namespace tessera::sm90
