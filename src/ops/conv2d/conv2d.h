// SPDX-License-Identifier: Apache-2.0
// A convolution of images with their channels last, then the program (bias, act, scale, residual, quantize):
//   y[b,i,j,n] = sum over di, dj, c of x[b, i sh + di dh - top, j sw + dj dw - left, g C + c] * w[n, (di kw + dj) C +
//   c]
// x outside the image is 0. attrs, all lists: kernel [kh, kw], strides [sh, sw], dilations [dh, dw], pads [top, left,
// bottom, right]; attr groups: w's rows and x's channels fall into as many groups of the same size, C channels each,
// and n is of group g. x[b,h,w,c] has any strides but a contiguous last axis; w is a matrix, a row per output channel,
// as that of a linear layer. A convolution over one axis has h = kh = 1. Scales of w's rows and of the tensors multiply
// the sums; x has no others, as a window holds many pixels. attr sparse24 as in matmul.
#pragma once

#include "op/op.h"
#include "ops/product.h"

namespace tessera {

const OpInfo& conv2d_op();

struct Conv2dProblem {
  int64_t batch = 0, height = 0, width = 0;  // of x
  int64_t groups = 1, c = 0, n = 0;          // channels of x, and of y, in a group
  int64_t kh = 1, kw = 1, sh = 1, sw = 1, dh = 1, dw = 1, top = 0, left = 0;
  int64_t out_height = 0, out_width = 0;
  int64_t k = 0;  // products that one result sums up: kh kw c
  Shape strides;  // of x
  bool sparse24 = false;
  int64_t pixels() const { return batch * out_height * out_width; }

  // Contract: conv2d_op().infer found nothing.
  static Conv2dProblem of(const Problem& p);
};

// All groups' windows times all rows of w, as kernels see it that walk over columns group by group; k is a group's.
Product product_of_conv2d(const Problem& p);

// What arithmetic may do to its results (OpInfo::errors).
std::vector<double> conv2d_errors(const Problem& p, std::span<const Dense> in, const Dense& before,
                                  const Roundings& roundings);

}  // namespace tessera
