// SPDX-License-Identifier: Apache-2.0
// The kernel that runs an epilogue program over a finished matrix product: what a library's epilogue cannot express, in
// one trip through memory, eight numbers per thread.
#pragma once

#include "tiles/cuda/launch.cuh"
#include "tiles/cuda/program.cuh"

namespace tessera::cuda {

template <int N>
__global__ void __launch_bounds__(256) run_steps(const __grid_constant__ DeviceSteps p, const FastDivide groups) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
  const uint32_t row = groups.quotient(index);
  if (row >= p.rows) return;
  const int64_t col = int64_t{index - row * groups.divisor} * N;
  const int64_t at = row * p.cols + col;

  float v[N], w[N];
  load_numbers<N>(p.from.element, p.from.data, at, v);
  if (p.column_scale != nullptr) {
    load_numbers<N>(Element::f32, p.column_scale, col, w);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] *= w[i];
  }
  run_program<N>(p, row, col, v);
  const float inverse = inverse_scale_of(p.y);
#pragma unroll
  for (int i = 0; i < N; ++i) v[i] *= inverse;
  store_numbers<N>(p.y.element, p.y.data, at, v);
}

// Contract: at most kMaxDeviceSteps steps; rows * cols < 2^31; operands as the steps say.
inline Status launch_steps(const char* name, const DeviceSteps& p, void* stream) {
  const bool vector = takes_eight(p) && is_aligned(p.from.data, 16);
  const int64_t groups = p.cols / (vector ? 8 : 1), blocks = divide_up(p.rows * groups, 256);
  if (blocks == 0) return {};
  const FastDivide divide(static_cast<uint32_t>(groups));
  return vector ? launch_overlapping(name, run_steps<8>, blocks, 256, 0, stream, 1, p, divide)
                : launch_overlapping(name, run_steps<1>, blocks, 256, 0, stream, 1, p, divide);
}

}  // namespace tessera::cuda
