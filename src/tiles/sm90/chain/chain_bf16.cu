// SPDX-License-Identifier: Apache-2.0
#include "tiles/sm90/chain/chain_kernels.h"

#ifdef __CUDACC__
#include "tiles/sm90/chain/chain.cuh"

namespace tessera::sm90 {

ChainKernel chain_of_bf16(int tokens, Element half) {
  if (half != Element::bf16) return nullptr;
  if (tokens == 16) return run_chain<__nv_bfloat16, __nv_bfloat16, 16>;
  return tokens == 64 ? run_chain<__nv_bfloat16, __nv_bfloat16, 64> : nullptr;
}

}  // namespace tessera::sm90
#endif
