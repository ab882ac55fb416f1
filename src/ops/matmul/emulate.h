// SPDX-License-Identifier: Apache-2.0
// Matmuls on wgmma, emulated: sums in the order of the mainloop (emulate/tensor_core.h), then the epilogue in f32 as
// the kernel writes it. What is not to the last bit: tanh.approx.f32 in activations, rsqrt in a `normalise` step, and a
// product and a sum that the compiler may join.
#pragma once

#include "emulate/tensor_core.h"
#include "ops/matmul/matmul.h"

namespace tessera {

// The two mainloops multiply scales, bias and gain in another order (tiles/sm90/gemm_load.cuh, swapped.cuh).
enum class Mainloop : uint8_t { kNormal, kSwapped };

// The instruction for an operand's element; null: integers.
const TensorCore* wgmma_core(Element element);

Emulation emulate_wgmma(const Problem& problem, std::span<const TensorView> in, std::span<const TensorView> out,
                        const SumOrder& order, Mainloop mainloop);

// What a library writes where a second kernel runs the program: sums rounded to this element (f32: as they are), or,
// `or_f32`, f32 where the machine's library knows no other way.
struct LibraryProduct {
  Element element = Element::f32;
  bool or_f32 = false;
};

// A library's matmul on tensor cores. Its order over k is not ours to know: sums are those of one chain of instructions
// from 0 on, and may be off by what truncation took from them, and by truncations elsewhere, one per instruction, as a
// random walk. Rounding keeps the order of numbers: a product that is rounded lies between both ends rounded.
Emulation emulate_library(const Problem& problem, std::span<const TensorView> in, std::span<const TensorView> out,
                          const TensorCore& core, LibraryProduct product, double activation_error);

}  // namespace tessera
