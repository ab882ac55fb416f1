// SPDX-License-Identifier: Apache-2.0
#include "weights/panel_matrix.h"

#include <algorithm>

#include "tiles/cpu/panels.h"

namespace tessera {

void PanelMatrix::multiply_add(const float* a, int64_t a_stride, int64_t rows, int64_t i0, int64_t i1, int64_t j0,
                               int64_t j1, float* out, int64_t out_stride) const {
  const int64_t deep = fp32_product().block_k;
  std::vector<float> panels(static_cast<size_t>(x_panels_floats(rows, deep)));
  std::vector<float> scratch(static_cast<size_t>(panel_rows() * deep));
  for (int64_t i = i0; i < i1; i += deep) {
    const int64_t n = std::min(deep, i1 - i);
    pack_x(Element::f32, a, a_stride, i - i0, rows, n, scratch.data(), panels.data());
    for (int64_t j = j0; j < j1; j += kPanelCols) {
      multiply_panel(panels.data(), &data_[index(i, j)], rows, n, /*first=*/false, out + (j - j0), out_stride);
    }
  }
}

}  // namespace tessera
