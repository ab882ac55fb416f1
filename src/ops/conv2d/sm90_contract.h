// SPDX-License-Identifier: Apache-2.0
// Convolutions on Hopper's wgmma before anything runs: windows of pixels are rows of the normal mainloop, which TMA
// brings tap by tap (tiles/sm90/image_windows.h), and w is stored as that of a linear layer.
#pragma once

#include "ops/conv2d/conv2d.h"
#include "ops/conv2d/emulate.h"
#include "ops/wgmma_contract.h"
#include "tiles/sm90/image_windows.h"

namespace tessera {

inline sm90::CornerBox corners_across(const Conv2dProblem& q) {
  return sm90::corner_box(q.width, q.out_width, q.sw, q.left);
}
inline sm90::CornerBox corners_down(const Conv2dProblem& q) {
  return sm90::corner_box(q.height, q.out_height, q.sh, q.top);
}

// What TMA's walk over windows encodes.
inline Verdict accepts_windows(const Conv2dProblem& q) {
  for (const sm90::CornerBox& box : {corners_across(q), corners_down(q)}) {
    TS_REQUIRE(box.lower >= -sm90::kMostCorner && box.upper <= sm90::kMostCorner && box.upper >= -sm90::kMostCorner,
               "walks over windows that begin at most ", sm90::kMostCorner,
               " pixels outside the image and end at most as "
               "many before its edge");
  }
  TS_REQUIRE((q.kw - 1) * q.dw <= sm90::kMostOffset && (q.kh - 1) * q.dh <= sm90::kMostOffset, "reads taps at most ",
             sm90::kMostOffset, " pixels from a window's corner");
  TS_REQUIRE(q.sw <= sm90::kMostPixelStride && q.sh <= sm90::kMostPixelStride, "steps over at most ",
             sm90::kMostPixelStride, " pixels, here ", q.sh, " and ", q.sw);
  return {};
}

inline Verdict accepts_conv2d_on_wgmma(const Problem& problem) {
  const Conv2dProblem q = Conv2dProblem::of(problem);
  const Product p = product_of_conv2d(problem);
  TS_REQUIRE(!q.sparse24, "multiplies dense weights; 2:4 sparsity was asked for");
  TS_REQUIRE(p.constant_w, "multiplies by a constant weight");
  if (Verdict v = accepts_wgmma_types(p, {}); !v) return v;
  const int64_t unit = copy_unit(p.x.element);
  TS_REQUIRE(q.c % unit == 0, "channels of a group must be multiples of 16 bytes, here ", q.c, " of ",
             info(p.x.element).name);
  TS_REQUIRE(q.groups == 1 || q.n % 32 == 0, "groups must have results in multiples of 32, here ", q.n);
  const Shape& strides = problem.in[0].strides;
  TS_REQUIRE(strides[3] == 1 && strides[0] % unit == 0 && strides[1] % unit == 0 && strides[2] % unit == 0 &&
                 strides[0] > 0 && strides[1] > 0 && strides[2] >= q.groups * q.c,
             "reads pixels that lie multiples of 16 bytes apart and do not overlap, their channels last");
  if (Verdict v = accepts_windows(q); !v) return v;
  return accepts_epilogue(problem, p, vector_of_wgmma(p), {.repeats = true}, kWgmmaSteps);
}

inline Arithmetic conv2d_arithmetic_on_wgmma(const Problem& problem) {
  return gemm_arithmetic(product_of_conv2d(problem));
}

// Tiles of 64 columns where fewer are left idle: they read x twice as often for each product.
inline std::vector<std::string> conv2d_configs(const Problem& problem) {
  const Conv2dProblem q = Conv2dProblem::of(problem);
  Product group = product_of_conv2d(problem);
  group.n = q.n;
  const bool narrow = 1.3 * columns_in_turn(group, 64, q.groups) < columns_in_turn(group, 128, q.groups);
  return narrow ? std::vector<std::string>{"128x64", "128x128"} : std::vector<std::string>{"128x128", "128x64"};
}

// A variant on the normal mainloop. `bind` is null where only contracts are compiled.
inline Variant conv2d_on_wgmma(const char* name, Verdict (*accepts)(const Problem&),
                               Result<std::unique_ptr<Kernel>> (*bind)(const Problem&), SassPromise sass) {
  return {.name = name,
          .arch = Arch::sm90,
          .accepts = accepts,
          .arithmetic = conv2d_arithmetic_on_wgmma,
          .configs = conv2d_configs,
          .layouts = layouts_for_wgmma,
          .emulate = emulate_conv2d,
          .operand_align = 16,
          .sass = std::move(sass),
          .bind = bind};
}

}  // namespace tessera
