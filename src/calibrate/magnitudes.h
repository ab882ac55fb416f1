// SPDX-License-Identifier: Apache-2.0
// How the magnitudes of one value are distributed over all samples: a histogram of 128 bins per power of two (bin =
// upper 15 bits of |x| as f32, so bins are at most 1/128 wide relative to their numbers), and some whole blocks of 16
// for types whose scales follow blocks. Only counts are added up, so that the result depends neither on the order of
// the samples nor on the number of threads.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "ir/ranges.h"

namespace tessera {

class Magnitudes {
 public:
  // Rows of `cols` numbers; `first` is the position of x[0] among all numbers of all samples (it draws blocks).
  void add(const float* x, int64_t rows, int64_t cols, int64_t first);

  int64_t count() const { return count_; }  // of finite numbers
  float amax() const;                       // NaN or Inf where there was one
  // The least magnitude that at least `percent` % of the finite numbers do not exceed, within a bin's width; amax where
  // that is zero and amax is not (a scale must come from something).
  float percentile(double percent) const;
  // The clip among amax * 2^(-i/16), i = 0 ... 128, with the least squared error under one scale for all; the largest
  // of equals. Within a bin numbers count as evenly spread.
  float best_clip(Element element) const;
  // The same for nvfp4's second scale, among amax * 2^(-i/4), i = 0 ... 12: block scales follow their blocks, so it
  // only decides which of them saturate or underflow. Judged by blocks drawn from each power of two of block maxima.
  float best_nvfp4_clip() const;

  ValueRange range(double further_percentile) const;

 private:
  static constexpr int kBins = 1 << 15, kBlock = 16;
  static constexpr size_t kDrawn = 64;  // blocks kept per power of two: those with the least hash of their position
  struct Drawn {
    uint64_t hash;
    std::array<float, kBlock> x;
    bool operator<(const Drawn& other) const { return hash < other.hash; }
  };
  struct Stratum {
    int64_t count = 0;
    std::vector<Drawn> drawn;  // a heap, the largest hash first
  };
  using Strata = std::map<int, Stratum>;  // by the exponent of the block's largest magnitude

  static void draw(Strata& strata, const float* x, int64_t n, uint32_t largest, uint64_t position);
  static void keep(Stratum& stratum, const Drawn& block);

  std::mutex mutex_;
  void merge(const std::vector<uint32_t>& bins);

  std::vector<int64_t> bins_;  // of bins first_bin_ ... first_bin_ + size - 1: as many as were met
  size_t first_bin_ = 0;
  int64_t zeros_ = 0;  // bin 0: zero, or too small to matter
  Strata strata_;
  int64_t count_ = 0;
  uint32_t largest_ = 0;  // bits of the largest magnitude
};

}  // namespace tessera
