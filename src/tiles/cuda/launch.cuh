// SPDX-License-Identifier: Apache-2.0
// Starting kernels: CUDA's errors as Status, a launch that is checked, grid sizes. Host code of .cu files.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "archs/cuda/status.h"
#include "base/buffer.h"
#include "base/status.h"

namespace tessera::cuda {

// `name` is the variant's: it stands in front of the error. A launch that is refused (registers, shared memory, a bad
// grid) is reported here; a fault while running shows at the next synchronisation.
template <class... Params, class... Args>
Status launch_kernel(const char* name, void (*kernel)(Params...), int64_t blocks, int threads, size_t shared_bytes,
                     void* stream, Args&&... args) {
  if (blocks == 0) return {};
  kernel<<<dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads)), shared_bytes,
           static_cast<cudaStream_t>(stream)>>>(std::forward<Args>(args)...);
  return cuda_status(name, cudaGetLastError());
}

// The same for kernels that call wait_for_earlier_kernels (archs/cuda/instructions.cuh): they may start while the
// kernel before them still runs. `cluster`: blocks that share a cluster; a divisor of `blocks`. All ask for the same
// split of an SM's memory: where a kernel asks for another one than the kernel before, its blocks wait until the SM is
// empty.
template <class... Params, class... Args>
Status launch_overlapping(const char* name, void (*kernel)(Params...), int64_t blocks, int threads, size_t shared_bytes,
                          void* stream, int cluster, Args&&... args) {
  if (blocks == 0) return {};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  cudaLaunchAttribute attributes[3];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
  attributes[1].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
  attributes[2].id = cudaLaunchAttributeClusterDimension;
  attributes[2].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  config.attrs = attributes;
  config.numAttrs = cluster > 1 ? 3 : 2;
  return cuda_status(name, cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...));
}

// Lets a kernel use more than 48 KiB of dynamic shared memory per block.
template <class Kernel>
Status allow_shared_memory(const char* name, Kernel kernel, size_t bytes) {
  return cuda_status(
      name, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
}

}  // namespace tessera::cuda
