// SPDX-License-Identifier: Apache-2.0
// The normal mainloop bound to a convolution (ops/gemm_kernel.cuh). Host code of .cu files.
#pragma once

#include <string>

#include "ops/conv2d/sm90_contract.h"
#include "ops/gemm_kernel.cuh"

namespace tessera {

template <int kCols>
using WindowsGemm = sm90::GemmShape<kCols, /*kPromoted=*/false, /*kResident=*/false, /*kSplit=*/false,
                                    /*kWindows=*/true>;
template <class In, class Out>
PickedGemm pick_windows_gemm(const std::string& config) {
  return config == "128x64" ? pick_gemm<WindowsGemm<64>, In, Out>() : pick_gemm<WindowsGemm<128>, In, Out>();
}

inline Result<GemmOperands> operands_of_conv2d(const Problem& problem, const TensorView& x, const TensorView& w,
                                               const PickedGemm& picked) {
  const Conv2dProblem q = Conv2dProblem::of(problem);
  const Product p = product_of_conv2d(problem);
  const int64_t group_tiles = divide_up(q.n, picked.cols);
  const auto number = [](int64_t v) { return static_cast<int>(v); };
  const sm90::ImageWindows windows{.out_width = number(q.out_width),
                                   .out_height = number(q.out_height),
                                   .sw = number(q.sw),
                                   .sh = number(q.sh),
                                   .dw = number(q.dw),
                                   .dh = number(q.dh),
                                   .left = number(q.left),
                                   .top = number(q.top),
                                   .kw = number(q.kw),
                                   .taps = number(q.kh * q.kw),
                                   .channels = number(q.c),
                                   .group_cols = number(q.n),
                                   .group_tiles = number(group_tiles)};
  const int block_k = 128 * 8 / info(p.x.element).bits;
  GemmOperands operands{.x = {},
                        .w = {},
                        .tile_cols = static_cast<uint32_t>(q.groups * group_tiles),
                        .k_blocks = windows.k_blocks(block_k),
                        .windows = windows};
  TS_ASSIGN(operands.x, cuda::make_windows_map({.data = x.data,
                                                .element = p.x.element,
                                                .channels = q.groups * q.c,
                                                .width = q.width,
                                                .height = q.height,
                                                .images = q.batch,
                                                .strides = {q.strides[2], q.strides[1], q.strides[0]},
                                                .across = corners_across(q),
                                                .down = corners_down(q),
                                                .sw = number(q.sw),
                                                .sh = number(q.sh),
                                                .pixels = picked.rows}));
  TS_ASSIGN(
      operands.w,
      cuda::make_tensor_map<3>(
          {w.data, p.w.element, {q.c, q.kh * q.kw, stored_w_rows(problem, p)}, {q.c, q.k}, {block_k, 1, picked.cols}}));
  return operands;
}
inline constexpr GemmReader kConv2dReader{product_of_conv2d, operands_of_conv2d};

}  // namespace tessera
