// SPDX-License-Identifier: Apache-2.0
// Hessian: what error-compensated weights need to know of a layer's input. The squared change of a layer's results over
// the calibration rows, for a change E of its weight, is tr(E H E^T):
//   H = X^T X / rows + damping * mean(diagonal) * I
//   U upper triangular, U^T U = H^-1: after columns 0 ... i-1 are fixed, the inverse of H over the columns that are
//   still free is U[i:, i:]^T U[i:, i:], so one factorisation serves all steps
// In f64; blocks and threads do not change the bits.
#pragma once

#include "base/status.h"
#include "ir/moments.h"
#include "weights/panel_matrix.h"

namespace tessera {

struct Hessian {
  PanelMatrix h, u;
  int64_t size() const { return h.size(); }
};

// `factored`: u is wanted too. Fails where X^T X holds NaN or Inf, or stays singular in spite of the damping.
Result<Hessian> make_hessian(const InputMoments& moments, double damping, bool factored);

// tr(E H E^T) of a change [rows, k] of a weight, summed up in f64.
double error_under(const Hessian& hessian, const float* change, int64_t rows);

}  // namespace tessera
