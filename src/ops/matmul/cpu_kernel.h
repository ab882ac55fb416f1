// SPDX-License-Identifier: Apache-2.0
// The matmul of the CPU variants, for any product of panels and any types whose numbers it multiplies. A piece of work
// is a block of rows x a block of columns of y: for each block of k, the rows of x are packed once, then every panel of
// 16 weights is unpacked (or read where it lies) and multiplied with all of them. Codes become code * block scale while
// they are unpacked (tiles/cpu/numbers.h), 2:4 sparse weights whole rows. Sums over blocks of k collect in an f32 tile,
// then the scales of rows, channels and tensors, and the program run on its rows.
#pragma once

#include <memory>
#include <vector>

#include "op/problem.h"
#include "op/variant.h"
#include "tiles/cpu/product.h"

namespace tessera {

// What a product multiplies.
struct CpuFactors {
  const PanelProduct& product;
  Element numbers;                  // of which every other type's numbers are made
  bool (*holds)(const QuantType&);  // whether the numbers of a type are among them
  bool (*reads)(Element);           // codes that the product unpacks itself
  const char* refusal;              // "multiplies ..., not " the type
};

Verdict accepts_cpu_matmul(const Problem& p, const CpuFactors& factors);
std::vector<OperandLayout> layouts_of_cpu_matmul(const Problem& p, const CpuFactors& factors);
// Contract: accepted.
std::unique_ptr<Kernel> make_cpu_matmul(const Problem& problem, const CpuFactors& factors);

}  // namespace tessera
