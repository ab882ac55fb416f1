// SPDX-License-Identifier: Apache-2.0
// The chain kernels, one file for each element of x: null where there is none for so many tokens. `half`: of attention.
#pragma once

#include "types/element.h"

namespace tessera::sm90 {

struct ChainParams;
using ChainKernel = void (*)(ChainParams);

ChainKernel chain_of_bf16(int tokens, Element half);
ChainKernel chain_of_f16(int tokens, Element half);
ChainKernel chain_of_e4m3(int tokens, Element half);

}  // namespace tessera::sm90
