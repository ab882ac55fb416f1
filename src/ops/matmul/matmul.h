// SPDX-License-Identifier: Apache-2.0
// y[..., m, n] = sum_k x[..., m, k] * w[..., n, k], then the program (bias, act, scale, residual, gate, quantize).
// M rows, N outputs, K reduced. A weight is [N, K], a row per output channel, as linear layers store it; w with leading
// axes (a second activation) has the same ones as x. Scales of rows (token, channel) and of the tensor multiply the
// sum, not the operands: sum(codes * codes) * scale_x * scale_w[n]; scales of blocks along k multiply the codes. A
// gated MLP's two layers are one matmul: w holds the n / 2 rows of the gate, then as many of the layer that it
// multiplies, bias(2) gate(silu) follows, and y has n / 2 columns. attr sparse24 = 1: the constant weight has at most
// two numbers that are not zero of each four along k and is to be stored so (is_sparse24 of its layout); a variant that
// would store it otherwise refuses. attr promoted = 1: sums of e4m3 products are f32 ones, or shorter ones that are
// added to f32 ones at least every 128 products; a variant whose sums are shorter refuses. Results beside y, each where
// an attribute asks for it, all of y's numbers before their last rounding (op/extra_results.h): attr codes = 1: 8-bit
// codes of y with one static scale of their own; with attr codes.gain = i they are of y times operand i, a vector, and
// may be of y's type; attr moments = 1: the moments of y's rows (they and the step normalise, which reads such moments,
// are the two ends of a folded norm); attr kept: operands some of whose rows become columns of y, as the op `write` has
// it.
#pragma once

#include "op/op.h"
#include "ops/product.h"

namespace tessera {

const OpInfo& matmul_op();

// m counts all rows of one product, leading axes folded in where w is shared.
struct MatmulProblem : Product {
  int64_t batch = 1;         // products of different matrices; 1 where w is shared by all rows
  int64_t x_row_stride = 0;  // elements between rows of x (within one product)
  int64_t w_row_stride = 0;

  // Contract: inputs have uniform rows (StridedInputs::kRows).
  static MatmulProblem of(const Problem& p);
};

inline constexpr const char* kSparse24 = "sparse24";
inline bool is_sparse24(const Problem& p) { return p.attrs.integer(kSparse24) != 0; }
inline constexpr const char* kPromoted = "promoted";
inline bool is_promoted(const Problem& p) { return p.attrs.integer(kPromoted) != 0; }
inline constexpr const char* kFastSums = "keeps about 13 bits of its sums; promoted ones were asked for";
inline constexpr const char* kNotSparse = "multiplies dense weights; 2:4 sparsity was asked for";

// What arithmetic may do to its results (OpInfo::errors).
std::vector<double> matmul_errors(const Problem& p, std::span<const Dense> in, const Dense& before,
                                  const Roundings& roundings);

}  // namespace tessera
