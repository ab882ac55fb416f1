// SPDX-License-Identifier: Apache-2.0
//   s_j = scale * q[b,i,h,:] . k[b,j,g,:], with a bias f32(that + bias[b,h,i,j])
//   y[b,i,h,:] = sum_j softmax_j(s) * v[b,j,g,:]
// with key head g = h / (heads / kv_heads). q [b, sq, heads, d], k and v [b, sk, kv_heads, d], y [b, sq, heads, d],
// dense. q, k and v may be views of one QKV matrix: any strides but a contiguous last axis. `causal`: key j takes part
// where j <= i + sk - sq. Axes of the bias may be 1 (broadcast). Statistics (row maximum and sum) are fp32 or better.
// q, k and v may be codes of e4m3 with one static scale each. `p`, a type such as e4m3:tensor(f32), rounds the weights
// of the row too, against its true maximum; 448 is the largest number of p's element, the sum that of the unrounded P:
//   P_j = exp(s_j - max s)    c_j = e4m3(448 P_j)    y = sum_j c_j v_j / (448 sum_j P_j)
#pragma once

#include <optional>

#include "op/op.h"
#include "tiles/valid_keys.h"

namespace tessera {

// Rows whose keys are all masked follow from that formula, as they do in ONNX and PyTorch (docs/design/0025):
//   every bias -inf           y = 0 (not NaN)
//   a finite number, m        what f32 leaves of score + m. At the lowest f32 or bf16 its steps are 2^104: every score
//                             vanishes, and y is the mean of v over the keys whose bias is the largest of the row.
//                             At -1e9 steps are 64: scores within 32 vanish. At -65504 they are 2^-8: y follows the
//                             scores.
// So a sum of score and bias is rounded once, in f32 and in units of the scores, by every variant. In other units the
// lowest number overflows (times log2 e) or rounds elsewhere; f64 keeps scores that f32 loses.
//
// Operand `lengths` (i32, [1] or [batch]; docs/design/0028): k and v are a cache, and how many of its keys are valid is
// known only while running. With attr `fresh` = the number of new keys, which lie right behind the old ones:
//   n_b = clamp(lengths[b], 0, keys - fresh)        keys j < n_b + fresh take part, the others do not exist
// Others are not read as numbers: they may be NaN. `causal`: key j takes part where j <= i + n_b + fresh - queries. The
// bias has the new keys at its end, as the model orders them: key j < n_b reads column j, key n_b + t column keys -
// fresh + t. A query that sees no key gives y = 0. Decode is queries = fresh = 1, prefill into a cache queries = fresh,
// a padded prompt fresh = 0.
struct AttentionProblem {
  int64_t batch = 0, queries = 0, keys = 0, heads = 0, kv_heads = 0, head_size = 0, value_size = 0;
  double scale = 1;                                     // attr `scale`
  bool causal = false;                                  // attr `causal`
  bool has_bias = false;                                // input 3
  bool has_lengths = false;                             // input 4
  int64_t fresh = 0;                                    // attr `fresh`
  int64_t length_stride = 0;                            // elements between the lengths of batch items; 0: one for all
  Shape q_strides, k_strides, v_strides, bias_strides;  // elements, per axis of the operand; bias: 0 where broadcast
  QuantType q, k, v, y;
  std::optional<QuantType> p;  // attr `p`
  const Program* then = nullptr;

  static AttentionProblem of(const Problem& p);
  // Of batch item b. `lengths`: the operand's numbers in host memory, decoded and dense; ignored
  // where there is no such operand.
  template <class Number>
  ValidKeys<int64_t> valid_keys_of(const Number* lengths, int64_t b) const {
    if (!has_lengths) return all_keys(keys);
    return valid_keys(static_cast<int64_t>(lengths[b * length_stride]), keys, fresh);
  }
};

// The types that are defined above; a product of any other ones (i8, e5m2, blocks) is two matmuls.
bool is_attention_operand(const QuantType& type);  // of q, k and v
bool is_attention_weight(const QuantType& type);   // attr `p`
// Weights have the scale that takes 1 to the element's largest number, and no other. A file has it as a number of f32,
// f16 or bf16.
bool is_scale_of_weights(double scale, Element element);

// score + bias as defined above. Overflows to minus infinity where two masks add up.
inline double add_bias(double score, double bias) { return static_cast<float>(score + bias); }

// v = element(v * its largest number): the codes, as numbers, of weights in [0, 1]. `codes` is scratch.
void round_weights(const ElementInfo& element, std::span<double> v, std::vector<uint8_t>& codes);

// What arithmetic may do to its results (OpInfo::errors).
std::vector<double> attention_errors(const Problem& p, std::span<const Dense> in, const Dense& before,
                                     const Roundings& roundings);

}  // namespace tessera
