// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda_slots.h"

#include <algorithm>

#ifdef __CUDACC__
#include "tiles/cuda/launch.cuh"
#endif

namespace tessera {

#ifdef __CUDACC__
namespace {

constexpr int kPointers = 128;  // 1 KiB of the 4 KiB of arguments that every GPU takes
struct Pointers {
  void* at[kPointers];
};

__global__ void __launch_bounds__(kPointers)
    write_pointers(void** table, const __grid_constant__ Pointers pointers, int count) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < count) table[i] = pointers.at[i];
}

}  // namespace

Status write_slots(void** table, std::span<void* const> pointers, Stream stream) {
  while (!pointers.empty()) {
    const size_t count = std::min<size_t>(pointers.size(), kPointers);
    Pointers few{};
    std::copy_n(pointers.begin(), count, few.at);
    TS_TRY(cuda::launch_kernel("writing the table of buffers", write_pointers, 1, kPointers, 0, stream.handle, table,
                               few, static_cast<int>(count)));
    table += count;
    pointers = pointers.subspan(count);
  }
  return {};
}

#else

Status write_slots(void**, std::span<void* const>, Stream) {
  return machine_error("this program was built without CUDA");
}

#endif

}  // namespace tessera
