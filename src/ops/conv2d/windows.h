// SPDX-License-Identifier: Apache-2.0
// The windows of a convolution as rows of a matrix, [pixels, kh kw c] for each group: what a product multiplies.
#pragma once

#include <algorithm>
#include <cstring>

#include "ops/conv2d/conv2d.h"

namespace tessera {

class Windows {
 public:
  explicit Windows(const Conv2dProblem& p) : p_(p), whole_rows_(p.dw == 1 && p.strides[2] == p.c) {}

  // Columns [col, col + cols) of the window of pixel `row` of group `group`, dense; T: the bits of an element.
  template <class T>
  void read(const T* x, int64_t group, int64_t row, int64_t col, int64_t cols, T* out) const {
    const int64_t j = row % p_.out_width, rest = row / p_.out_width, i = rest % p_.out_height, b = rest / p_.out_height;
    const int64_t line = p_.kw * p_.c;  // columns of one line of the kernel
    const T* image = x + b * p_.strides[0] + group * p_.c;
    for (int64_t di = col / line; di * line < col + cols; ++di) {
      const int64_t first = std::max(col, di * line) - di * line, end = std::min(col + cols - di * line, line),
                    at = i * p_.sh + di * p_.dh - p_.top;
      T* to = out + di * line + first - col;
      if (at < 0 || at >= p_.height) {
        std::fill(to, to + (end - first), T{});
      } else {
        read_line(image + at * p_.strides[1], j * p_.sw - p_.left, first, end, to);
      }
    }
  }

 private:
  // Columns [first, end) of a line of the kernel that begins at pixel `left` of a line of x.
  template <class T>
  void read_line(const T* line, int64_t left, int64_t first, int64_t end, T* out) const {
    if (whole_rows_) {  // neighbouring pixels lie one after the other
      const int64_t from = std::clamp(-left * p_.c, first, end), to = std::clamp((p_.width - left) * p_.c, from, end);
      std::fill(out, out + (from - first), T{});
      std::copy_n(line + (left * p_.c + from), to - from, out + (from - first));
      std::fill(out + (to - first), out + (end - first), T{});
      return;
    }
    for (int64_t at = first; at < end;) {
      const int64_t dj = at / p_.c, c = at - dj * p_.c, count = std::min(p_.c - c, end - at), pixel = left + dj * p_.dw;
      if (pixel < 0 || pixel >= p_.width) {
        std::fill(out, out + count, T{});
      } else {
        std::copy_n(line + pixel * p_.strides[2] + c, count, out);
      }
      at += count, out += count;
    }
  }

  const Conv2dProblem p_;
  const bool whole_rows_;
};

}  // namespace tessera
