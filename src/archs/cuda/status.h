// SPDX-License-Identifier: Apache-2.0
// CUDA's errors as Status, for files that are compiled with CUDA.
#pragma once

#include <cuda_runtime.h>

#include "base/status.h"

namespace tessera::cuda {

// `what` was tried: a sentence without an end ("allocating GPU memory") or a variant's name.
inline Status cuda_status(const char* what, cudaError_t error) {
  return error == cudaSuccess ? Status() : machine_error(cat(what, ": ", cudaGetErrorString(error)));
}

}  // namespace tessera::cuda
