// SPDX-License-Identifier: Apache-2.0
// What kernels apply to one number: a step's arithmetic in f32, the same code on host and device. A step that works on
// its numbers one by one specialises StepFunctor in its own header, <name>.h, which functors.h includes:
//   template <>
//   struct StepFunctor<StepKind::bias> {
//     TS_HOST_DEVICE static float apply(float v, float operand, const StepArgs& args);
//   };
// `operand`: the number beside v of a vector or matrix; 0 where the step has none.
#pragma once

#include "ir/program.h"
#include "types/small_float.h"

namespace tessera {

// What a step states itself, as kernels take it by value.
struct StepArgs {
  Unary fn = Unary::identity;
  float numbers[kMaxStepNumbers] = {};
};
inline StepArgs args_of(const Step& step) {
  StepArgs args{.fn = step.fn};
  for (size_t i = 0; i < kMaxStepNumbers; ++i) args.numbers[i] = static_cast<float>(step.numbers[i]);
  return args;
}

template <StepKind kind>
struct StepFunctor {};

template <StepKind kind>
concept WorksOnNumbers = requires(float v, StepArgs args) {
  StepFunctor<kind>::apply(v, v, args);
};

}  // namespace tessera
