// SPDX-License-Identifier: Apache-2.0
// An epilogue program on numbers that a thread has in registers, eight neighbours of a row at a time or one.
#pragma once

#include "steps/functors.h"
#include "steps/scalar.h"
#include "tiles/cuda/device_steps.h"
#include "tiles/cuda/elements.cuh"
#include "tiles/cuda/gelu_fast.h"

namespace tessera::cuda {

// A call, so that functions that are not used between matmuls take no room in the kernel.
__device__ __noinline__ inline float apply_rare(Unary fn, float x) { return apply_unary(fn, x); }

template <int N>
__device__ __forceinline__ void apply_act(Unary fn, bool narrow, float (&v)[N]) {
  const auto each = [&](auto f) {
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = f(v[i]);
  };
  switch (fn) {
    case Unary::identity:
      break;
    case Unary::relu:
      each([](float x) { return apply_unary<Unary::relu>(x); });
      break;
    case Unary::silu:
      each([](float x) { return apply_unary<Unary::silu>(x); });
      break;
    case Unary::gelu_tanh:
      each([](float x) { return apply_unary<Unary::gelu_tanh>(x); });
      break;
    case Unary::gelu_erf:
      // The fast form's error is far below half a step of 16-bit results, not of f32.
      if (narrow) {
        each([](float x) { return gelu_erf_fast(x); });
      } else {
        each([](float x) { return apply_unary<Unary::gelu_erf>(x); });
      }
      break;
    default:
      each([fn](float x) { return apply_rare(fn, x); });
  }
}

// One step on N neighbouring numbers of a row. What works on whole rows is refused by whoever launches this, and codes
// are made by the store.
template <StepKind kind, int N>
__device__ __forceinline__ void run_step(const DeviceStep& step, bool narrow, uint32_t row, int64_t col,
                                         float (&v)[N]) {
  if constexpr (kind == StepKind::act) {  // its function is picked once for all N, and may be a faster form of it
    apply_act<N>(step.args.fn, narrow, v);
  } else if constexpr (WorksOnNumbers<kind>) {
    float w[N] = {};
    float scale = 1.0f;
    if constexpr (operand_of(kind) == StepOperand::kVector)
      load_numbers<N>(step.operand.element, step.operand.data, col, w);
    if constexpr (operand_of(kind) == StepOperand::kMatrix) {
      const uint32_t r = row - step.rows.quotient(row) * step.rows.divisor;
      scale = scale_of(step.operand);
      load_numbers<N>(step.operand.element, step.operand.data, r * step.row_stride + col, w);
    }
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = StepFunctor<kind>::apply(v[i], w[i] * scale, step.args);
  }
}

// The whole program, in its order.
template <int N>
__device__ __forceinline__ void run_program(const DeviceSteps& p, uint32_t row, int64_t col, float (&v)[N]) {
#pragma unroll 1
  for (int s = 0; s < p.count; ++s) {
    const DeviceStep& step = p.step[s];
    switch (step.kind) {
#define TS_STEP(name, ...)                                                       \
  case StepKind::name:                                                           \
    run_step<StepKind::name, N>(step, p.y.element != Element::f32, row, col, v); \
    break;
#include "ir/steps.inc"
#undef TS_STEP
    }
  }
}

// Whether threads can take eight neighbours of the program's operands.
inline bool takes_eight(const DeviceSteps& p) {
  bool vector = p.cols % 8 == 0 && is_aligned(p.y.data, 16) && is_aligned(p.column_scale, 16);
  for (int s = 0; s < p.count && s < kMaxDeviceSteps; ++s)
    vector = vector && is_aligned(p.step[s].operand.data, 16) && p.step[s].row_stride % 8 == 0;
  return vector;
}

}  // namespace tessera::cuda
