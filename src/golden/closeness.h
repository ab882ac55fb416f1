// SPDX-License-Identifier: Apache-2.0
// How close two arrays of numbers are, sample by sample.
//   cosine       g.w / (|g| |w|)                 blind to a common factor
//   centred      the same after each side's mean is taken off: a large common offset hides nothing
//   relative L2  |g - w| / |w| over all samples  SQNR = -20 log10 of it, in dB
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

struct Closeness {
  double cosine_mean = 1, cosine_worst = 1;    // per sample
  double centred_mean = 1, centred_worst = 1;  // per sample
  double relative_l2 = 0;                      // over all samples
  int64_t worst_sample = 0;                    // the one with the lowest cosine
  bool finite = true;
  // One number in all: its cosine is 1 or -1, and beside a number that is 0 by chance any distance is large. No gate
  // judges it. Single numbers of several samples are one vector, whose cosine is that of each.
  bool alone = false;
  int64_t samples = 0;
  double error_squares = 0, size_squares = 0;
  // The closeness over these samples and, after them, the next ones.
  void add(const Closeness& next);
  double sqnr_db() const { return -20 * std::log10(relative_l2); }  // infinite where nothing differs
};
// `got` and `want` hold `samples` rows each.
Closeness compare(std::span<const double> got, std::span<const double> want, int64_t samples);

// Whole numbers (indices, labels) are the same or they are not: distances between them mean nothing.
struct Agreement {
  int64_t same = 0, all = 0;
  double share() const { return all > 0 ? static_cast<double>(same) / static_cast<double>(all) : 1; }
};
Agreement count_same(std::span<const double> got, std::span<const double> want);
// What a gate for cosines asks of whole numbers. Two vectors of that cosine are sqrt(2 (1 - cosine)) of their length
// apart, and about that share of choices between them may turn out otherwise; one of several may by chance.
bool agrees(const Agreement& agreement, double min_cosine);

}  // namespace tessera
