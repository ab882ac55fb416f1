// SPDX-License-Identifier: Apache-2.0
// What the kernels of the swapped mainloop are given of a matmul's operands and its program. Host code of .cu files.
#pragma once

#include "ops/matmul/sm90_contract.h"
#include "tiles/cuda/copy.cuh"
#include "tiles/sm90/swapped.cuh"

namespace tessera {

inline sm90::SwappedKind swapped_kind_of(const Problem& p) {
  if (finishes_heads(p)) return sm90::SwappedKind::kHeads;
  return p.then.gated() ? sm90::SwappedKind::kGated : sm90::SwappedKind::kPlain;
}

class SwappedOperands {
 public:
  // Contract: the problem outlives this.
  SwappedOperands(const char* name, const Problem& problem)
      : name_(name), problem_(problem), p_(MatmulProblem::of(problem)) {}

  // All but how the product is cut into blocks, and the shared memory of one.
  sm90::SwappedParams params(std::span<const TensorView> in, std::span<const TensorView> out) const {
    sm90::SwappedParams params{.m = static_cast<int>(p_.m),
                               .n = static_cast<int>(p_.n),
                               .x_scale = static_cast<const float*>(in[0].scale),
                               .w_scale = static_cast<const float*>(in[1].scale),
                               .w_scale_stride = p_.w.scale.granularity == Granularity::kChannel ? 1 : 0,
                               .y_scale = static_cast<const float*>(out[0].scale),
                               .y = out[0].data,
                               .y_element = p_.y.element,
                               .cols = static_cast<int>(p_.cols),
                               .second_half = static_cast<int>(stored_w_rows(problem_) / 2)};
    set_operands(params, in);
    const ExtraResults extra = ExtraResults::of(problem_.attrs);
    if (extra.moments > 0) params.moments = static_cast<float2*>(out[static_cast<size_t>(extra.moments)].data);
    if (extra.codes > 0) {
      const TensorView& codes = out[static_cast<size_t>(extra.codes)];
      params.codes = codes.data, params.codes_element = codes.desc->type.element,
      params.codes_scale = static_cast<const float*>(codes.scale);
    }
    if (extra.gain > 0) {
      const TensorView& gain = in[static_cast<size_t>(extra.gain)];
      params.codes_gain = gain.data, params.codes_gain_element = gain.desc->type.element;
      params.computed = params.computed || !gain.desc->constant;
    }
    if (swapped_kind_of(problem_) == sm90::SwappedKind::kHeads) set_heads(params.heads, in, out);
    return params;
  }

  // Kept tensors with memory of their own are copied first.
  Status copy_kept(std::span<const TensorView> in, std::span<const TensorView> out, Stream stream) const {
    for (const KeptColumns& kept : kept_columns(problem_.attrs)) {
      const TensorView &before = in[static_cast<size_t>(kept.before)], &after = out[kept_result_of(kept)];
      if (before.data == after.data) continue;
      const Shape all{elements(before.desc->shape)}, step{1};
      TS_TRY(cuda::launch_copy(name_, {.x = device_tensor(before), .y = device_tensor(after)}, all, step, step,
                               !before.desc->type.scaled(), stream.handle));
    }
    return {};
  }

  size_t kept_result_of(const KeptColumns& kept) const {
    size_t result = static_cast<size_t>(ExtraResults::of(problem_.attrs).kept);
    for (const KeptColumns& other : kept_columns(problem_.attrs)) {
      if (other.before == kept.before) return result;
      ++result;
    }
    return result;
  }

 private:
  void set_operands(sm90::SwappedParams& params, std::span<const TensorView> in) const {
    for (const Step& s : p_.then->steps) {
      const TensorView* operand = s.operand >= 0 ? &in[static_cast<size_t>(s.operand)] : nullptr;
      if (s.kind == StepKind::bias) params.bias = operand->data, params.bias_element = operand->desc->type.element;
      if (s.kind == StepKind::scale) params.gain = operand->data, params.gain_element = operand->desc->type.element;
      if (operand_of(s.kind) == StepOperand::kVector) params.computed = params.computed || !operand->desc->constant;
      if (s.kind == StepKind::residual)
        params.residual = operand->data, params.residual_stride = operand->desc->rows().row_stride;
      if (names_function(s.kind)) params.act = smooth_activation(s.fn);
      if (s.kind == StepKind::normalise) {
        const FoldedNorm norm = FoldedNorm::of(problem_.attrs);
        params.rows = {static_cast<const float2*>(operand->data),
                       static_cast<int>(p_.k),
                       static_cast<int>(moment_groups(p_.k)),
                       1.0f / static_cast<float>(p_.k),
                       norm.eps,
                       norm.rms};
      }
    }
  }

  void set_heads(sm90::SwappedHeads& heads, std::span<const TensorView> in, std::span<const TensorView> out) const {
    if (const Step* step = p_.then->find(StepKind::rotary)) {
      const TensorView& angles = in[static_cast<size_t>(step->operand)];
      const RotaryStep rotary = RotaryStep::of(*step, angles.desc->shape.back());
      const RowView rows = angles.desc->rows();
      heads.columns = {static_cast<int>(rotary.head), static_cast<int>(rotary.pairs), static_cast<int>(rotary.columns)};
      heads.angles = angles.data, heads.angle_element = angles.desc->type.element;
      heads.angle_stride = static_cast<int>(rows.row_stride), heads.angle_rows = static_cast<int>(rows.rows);
    }
    for (const KeptColumns& kept : kept_columns(problem_.attrs)) {
      const TensorView& after = out[kept_result_of(kept)];
      sm90::SwappedHeads::Kept& to = heads.kept[heads.kept_count++];
      to = {.first = static_cast<int>(kept.first),
            .end = static_cast<int>(kept.first + kept.count),
            .rows = kept_rows(problem_, kept),
            .data = after.data,
            .element = after.desc->type.element,
            .scale = static_cast<const float*>(after.scale)};
      if (kept.at < 0) continue;
      const TensorView& at = in[static_cast<size_t>(kept.at)];
      to.at = static_cast<const int32_t*>(at.data), to.at_stride = elements(at.desc->shape) > 1 ? 1 : 0;
    }
  }

  const char* const name_;
  const Problem& problem_;
  const MatmulProblem p_;
};

}  // namespace tessera
