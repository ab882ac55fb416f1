// SPDX-License-Identifier: Apache-2.0
// Matmuls on tensor cores, emulated: own kernels (ops/emulate_wgmma.h) and a library's.
#pragma once

#include "ops/emulate_wgmma.h"
#include "ops/matmul/matmul.h"

namespace tessera {

// Own kernels: sums of codes in this order.
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
