// SPDX-License-Identifier: Apache-2.0
// The matmul of the CPU variants, for any product of panels. A piece of work is a block of rows x a block of columns of y: for each block of k, the
// rows of x are packed once, then every panel of 16 weights is unpacked (or read where it lies) and multiplied with all of them. Sums over blocks of k
// collect in an f32 tile, then scales and program run on its rows.
#pragma once

#include <memory>
#include <vector>

#include "ops/problem.h"
#include "ops/variant.h"
#include "tiles/cpu_product.h"

namespace tessera {

// `reads`: the elements that this product takes, `elements`: their names for people.
Verdict accepts_cpu_matmul(const Problem& p, const PanelProduct& product, bool (*reads)(Element), const char* elements);
std::vector<Layout> layouts_of_cpu_matmul(const Problem& p, const PanelProduct& product);
// Contract: accepted.
std::unique_ptr<Kernel> make_cpu_matmul(const Problem& problem, const PanelProduct& product);

}  // namespace tessera
