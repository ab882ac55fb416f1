// SPDX-License-Identifier: Apache-2.0
// What a variant may give for a problem, and results held against it: one judge for the tests of variants, for benches
// and for `verify`. Where the kernel is emulated (Variant::emulate) each code lies between those of both ends of its
// number; else |got - exact| is at most what the arithmetic may do (op/errors.h: the worst case, or five times the walk
// where that is less) and half a step of the result's type.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "op/errors.h"

namespace tessera {

// One number of a result: any code from `low` to `high` is right, `nominal` is the likeliest. `step` is the distance of
// codes there.
struct AllowedNumber {
  double low, nominal, high, step;
};

struct Judgement {
  // The worst |got - nominal| / allowed: at most 1 where all are right.
  double share = 0;
  double relative_l2 = 0;              // |got - nominal| / |nominal|
  double allowed_l2 = 0;               // the largest that could pass
  double cosine = 1;                   // of got and nominal, the lowest of all results
  int64_t results = 0;                 // numbers
  int64_t differ = 0, may_differ = 0;  // those that are not the nominal one; those that need not be: near a tie
  bool finite = true;                  // no NaN or Inf where none is wanted
  int64_t result = 0, at = -1;         // of the worst one
  double got = 0, low = 0, high = 0;   // there, in the result's units
  bool ok() const { return finite && share <= 1; }
};

class Judge {
 public:
  // Host memory. `out`: static scales, and where a type is dynamic nothing yet.
  Judge(const OpInfo& op, const Variant& variant, const Problem& problem, std::span<const TensorView> in,
        std::span<const TensorView> out);
  Judgement of(std::span<const TensorView> got) const;
  bool emulated() const { return !emulation_.empty(); }
  // Results that this variant could have given, for whoever has no device: the middle of what is allowed, not rounded
  // yet, in units of the result's element. Contract: result `r` has static scales or none.
  std::vector<double> middle(size_t r) const;

 private:
  void judge_emulated(size_t r, const TensorView& got, Judgement& j) const;
  void judge_bounded(size_t r, const TensorView& got, Judgement& j) const;

  const Problem problem_;
  std::vector<double> scales_;                             // per result; 1 where it has none or makes its own
  Emulation emulation_;                                    // empty: bounds
  std::vector<std::vector<double>> low_, nominal_, high_;  // both ends and the middle, rounded to the results' elements
  std::vector<Dense> exact_;                               // per result, before rounding
  std::vector<Errors> allowed_;                            // per result
};

}  // namespace tessera
