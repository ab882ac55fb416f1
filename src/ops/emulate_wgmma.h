// SPDX-License-Identifier: Apache-2.0
// Products on wgmma, emulated, matmul's and conv2d's: sums in the order of the mainloop (emulate/tensor_core.h), then
// the epilogue in f32 as the kernel writes it. What is not to the last bit: tanh.approx.f32 in activations, rsqrt in a
// `normalise` step, and a product and a sum that the compiler may join.
#pragma once

#include <span>
#include <vector>

#include "emulate/tensor_core.h"
#include "op/variant.h"
#include "ops/product.h"

namespace tessera {

// The two mainloops multiply scales, bias and gain in another order (tiles/sm90/gemm_load.cuh, swapped.cuh).
enum class Mainloop : uint8_t { kNormal, kSwapped };

// The instruction for an operand's element; null: integers.
const TensorCore* wgmma_core(Element element);

// One scale for each of `count` rows.
std::vector<float> scales_of(const ScaleLevel& level, const TensorView& t, int64_t count);

// Results of the sums [m, n] of codes.
Emulation emulate_epilogue(const Problem& problem, const Product& p, std::span<const float> sums,
                           std::span<const TensorView> in, std::span<const TensorView> out, Mainloop mainloop);

}  // namespace tessera
