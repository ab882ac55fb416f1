// SPDX-License-Identifier: Apache-2.0
// A convolution as the products of the CPU (ops/cpu_products.h), the groups beside one another: implicit GEMM, the
// windows of a few pixels are gathered, packed and multiplied while they are in the cache.
#pragma once

#include "ops/cpu_products.h"

namespace tessera {

Verdict accepts_cpu_conv2d(const Problem& p, const CpuFactors& factors);
std::vector<OperandLayout> layouts_of_cpu_conv2d(const Problem& p, const CpuFactors& factors);
// Contract: accepted.
std::unique_ptr<Kernel> make_cpu_conv2d(const Problem& p, const CpuFactors& factors);

}  // namespace tessera
