// SPDX-License-Identifier: Apache-2.0
// Results of a matmul beside the first, made of its numbers before their last rounding: codes of it; the moments of its
// rows (steps/row_moments.h), which the next layer's step `normalise` reads; and tensors that outlive the run (a KV
// cache), some of whose rows become columns of it. A vector may multiply the codes: the gain of a norm that changes
// with time, which no weight can hold.
//   codes[row, col] = y[row, col] * gain[col]
#pragma once

#include "op/op.h"
#include "steps/row_moments.h"
#include "tiles/kept_rows.h"

namespace tessera {

// Attributes of a matmul that has such results, in this order.
inline constexpr const char* kCodesResult = "codes";
inline constexpr const char* kMomentsResult = "moments";
inline constexpr const char* kKeptResults = "kept";
// The operand that multiplies the codes, by its number.
inline constexpr const char* kCodesGain = "codes.gain";
struct ExtraResults {
  int codes = 0, moments = 0, kept = 0;  // which result; of those that are kept the first; 0: none
  int gain = 0;                          // which operand multiplies the codes; 0: none
  static ExtraResults of(const Attrs& attrs);
};

// One of the kept results: as the op `write` has it, with columns of y as the new rows. A plan may place it in the
// memory of the tensor before, so that only these rows are written.
struct KeptColumns {
  int64_t first = 0, count = 0;  // columns of y
  int64_t axis = 1;              // of the tensor, whose rows they are; its first axis is the batch
  int before = -1, at = -1;      // inputs: the tensor before; i32 [1] or [batch], the row of the first token (-1: 0)
  bool operator==(const KeptColumns&) const = default;
};
// The attribute holds these five numbers for each.
std::vector<KeptColumns> kept_columns(const Attrs& attrs);
void set_kept_columns(Attrs& attrs, const std::vector<KeptColumns>& all);
// Contract for these: check_kept found nothing.
KeptRows kept_rows(const Problem& p, const KeptColumns& kept);
Dense kept_result(const Problem& p, const KeptColumns& kept, std::span<const Dense> in, const Dense& y);
std::vector<double> kept_result_errors(const Problem& p, const KeptColumns& kept, std::span<const Dense> in,
                                       const std::vector<double>& errors);
// Whether all that the attribute says fits the operands; y: shape of the first result.
Status check_kept(const Problem& p, const Shape& y);

// What an extra result is made of (OpInfo::extra_result): the first result's numbers, times the gain where it is the
// codes' and they have one. `errors` of the numbers likewise: the product rounds twice in fp32, gain by scale and
// number by that.
Dense made_of(const Problem& problem, size_t result, std::span<const Dense> in, const Dense& first);
std::vector<double> errors_made_of(const Problem& problem, size_t result, std::span<const Dense> in, const Dense& first,
                                   std::vector<double> errors);

// A norm of which this problem does one of both ends.
inline bool has_folded_norm(const Problem& p) {
  return ExtraResults::of(p.attrs).moments > 0 || ExtraResults::of(p.attrs).codes > 0 ||
         p.then.find(StepKind::normalise) != nullptr;
}
inline constexpr const char* kNoFoldedNorm = "neither writes moments of rows nor reads them";
inline bool keeps_columns(const Problem& p) { return ExtraResults::of(p.attrs).kept > 0; }
inline constexpr const char* kNoKeptColumns = "writes no columns into a tensor that outlives the run";

}  // namespace tessera
