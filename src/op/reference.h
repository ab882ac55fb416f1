// SPDX-License-Identifier: Apache-2.0
// The golden executor of one op: decode the operands to f64, run the op's reference, interpret the program step by
// step, round to the result's type. Also used to fold constants, and as the yardstick of every variant's test.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "op/op.h"

namespace tessera {

// All numbers of a tensor, in row order, scales applied; any type, layout, strides.
Dense decode(const TensorView& tensor);
// The codes of a tensor as numbers, in row order, without its scales.
std::vector<float> decode_codes(const TensorView& tensor);
// One level of a tensor's scales, in row order whatever their layout; empty where it has none.
std::vector<double> first_scales(const TensorView& tensor);
std::vector<double> second_scales(const TensorView& tensor);
// Numbers that are already divided by their scale, as codes of the type. Codes that are made while running saturate on
// both sides alike: int8 at -127.
void encode_units(const QuantType& type, std::vector<double> numbers, void* codes);
// Rounds numbers into a tensor (dense rows or strided): codes under its scales, by the rules of types/quantize_array.h.
// The first level of a dynamic type is made here, and written to tensor.scale.
void encode(const Dense& numbers, const TensorView& tensor);

// Results before rounding: reference, then the program. Contract: op.check_numbers, where there is one, found nothing.
std::vector<Dense> compute_reference(const OpInfo& op, const Problem& problem, std::span<const Dense> in);

// The program alone, over results before it, which become those after it.
void apply_program(const Problem& problem, std::span<const Dense> in, Dense& y);

// compute_reference, then encode. `noise` > 0 multiplies each result by 1 + noise * (a number in [-1, 1] drawn from
// seed and index) before rounding: the golden bound is the response to noise of the size that a variant's arithmetic
// implies. Results of more than `most` get that of `most`. Fails only where op.check_numbers does.
struct Noise {
  double relative = 0;
  uint64_t seed = 0;
  double most = std::numeric_limits<double>::infinity();
};
Status run_reference(const OpInfo& op, const Problem& problem, std::span<const TensorView> in,
                     std::span<const TensorView> out, Noise noise = {});

// Runs an op over constants: the bytes of each result, dense rows. Used to fold constants.
Result<std::vector<Buffer>> evaluate(const OpInfo& op, const Problem& problem, std::span<const TensorView> in);

}  // namespace tessera
