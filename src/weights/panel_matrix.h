// SPDX-License-Identifier: Apache-2.0
// PanelMatrix: a square matrix stored for fast products from the left, out += a * m, by the fp32 panels of CPU kernels.
//   element (i, j) lies at ((j / 16) * k + i) * 16 + j % 16; columns beyond the last hold zeros
#pragma once

#include <cstdint>
#include <vector>

#include "tiles/cpu/product.h"

namespace tessera {

class PanelMatrix {
 public:
  PanelMatrix() = default;
  explicit PanelMatrix(int64_t k)
      : k_(k), data_(static_cast<size_t>(divide_up(k, kPanelCols) * k * kPanelCols), 0.0f) {}
  int64_t size() const { return k_; }
  float& at(int64_t i, int64_t j) { return data_[index(i, j)]; }
  float at(int64_t i, int64_t j) const { return data_[index(i, j)]; }

  // out[r][j] += sum over i in [i0, i1) of a[r][i - i0] * m[i][j], j in [j0, j1). Contract: j0 is a multiple of 16;
  // rows of `out` may be written up to the next multiple of 16 of j1 (zeros are added there). Runs in this thread.
  void multiply_add(const float* a, int64_t a_stride, int64_t rows, int64_t i0, int64_t i1, int64_t j0, int64_t j1,
                    float* out, int64_t out_stride) const;

 private:
  size_t index(int64_t i, int64_t j) const {
    return static_cast<size_t>((j / kPanelCols * k_ + i) * kPanelCols + j % kPanelCols);
  }
  int64_t k_ = 0;
  std::vector<float> data_;
};

}  // namespace tessera
