// SPDX-License-Identifier: Apache-2.0
#include "calibrate/magnitudes.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/parallel.h"
#include "base/random.h"
#include "types/quantize_array.h"

namespace tessera {
namespace {

constexpr uint32_t kMagnitude = 0x7fffffffu, kInfinity = 0x7f800000u;
constexpr int kBinBits = 16;

uint32_t magnitude_bits(float x) { return std::bit_cast<uint32_t>(x) & kMagnitude; }
double bin_edge(size_t bin) { return std::bit_cast<float>(static_cast<uint32_t>(bin << kBinBits)); }

// Sums of 1, x and x^2 over the numbers below a point.
struct Moments {
  double n = 0, x = 0, xx = 0;
};

class Cumulative {
 public:
  Cumulative(const std::vector<int64_t>& bins, size_t first, int64_t zeros) : bins_(bins), first_(first) {
    below_.push_back({.n = static_cast<double>(zeros)});
    for (size_t b = 0; b < bins.size(); ++b) {
      Moments m = below_.back();
      add_part(m, b, bin_edge(first + b + 1));
      below_.push_back(m);
    }
  }
  Moments below(double t) const {
    const size_t bin = magnitude_bits(static_cast<float>(t)) >> kBinBits;
    if (bin < first_) return below_.front();
    if (bin >= first_ + bins_.size()) return below_.back();
    Moments m = below_[bin - first_];
    add_part(m, bin - first_, std::clamp(t, bin_edge(bin), bin_edge(bin + 1)));
    return m;
  }
  const Moments& all() const { return below_.back(); }

 private:
  void add_part(Moments& m, size_t bin, double to) const {
    if (bins_[bin] == 0) return;
    const double from = bin_edge(first_ + bin), width = bin_edge(first_ + bin + 1) - from;
    const double density = static_cast<double>(bins_[bin]) / width;
    m.n += density * (to - from);
    m.x += density * (to * to - from * from) / 2;
    m.xx += density * (to * to * to - from * from * from) / 3;
  }
  const std::vector<int64_t>& bins_;
  const size_t first_;
  std::vector<Moments> below_;
};

// The numbers from zero on that an element has, rising.
std::vector<double> levels_of(Element element) {
  const ElementInfo& e = info(element);
  std::vector<double> levels;
  for (int code = 0; code < (1 << e.bits); ++code) {
    const uint8_t byte = static_cast<uint8_t>(code);
    double x = 0;
    e.decode_f64(&byte, 0, 1, &x);
    if (std::isfinite(x) && x >= 0 && x <= e.max) levels.push_back(x);
  }
  std::sort(levels.begin(), levels.end());
  levels.erase(std::unique(levels.begin(), levels.end()), levels.end());
  return levels;
}

// Sum of (x - rounded x)^2: each level takes the numbers up to the middle between it and the next.
double squared_error(const Cumulative& sums, const std::vector<double>& levels, double clip) {
  const double scale = clip / levels.back();
  Moments before;
  double error = 0;
  for (size_t k = 0; k < levels.size(); ++k) {
    const double level = levels[k] * scale;
    const Moments upto = k + 1 < levels.size() ? sums.below((levels[k] + levels[k + 1]) / 2 * scale) : sums.all();
    error += (upto.xx - before.xx) - 2 * level * (upto.x - before.x) + level * level * (upto.n - before.n);
    before = upto;
  }
  return error;
}

// The candidate with the least error; the first of those that differ by rounding only.
template <class Error>
float least(float amax, double steps_per_octave, int candidates, const Error& error) {
  float best = amax;
  double least_error = INFINITY;
  for (int i = 0; i < candidates; ++i) {
    const float clip = static_cast<float>(amax * std::exp2(-i / steps_per_octave));
    if (clip < std::ldexp(1.0f, -100)) break;
    const double e = error(clip);
    if (!(e < least_error * (1 - 1e-9))) continue;
    best = clip;
    least_error = e;
  }
  return best;
}

}  // namespace

void Magnitudes::keep(Stratum& stratum, const Drawn& block) {
  std::vector<Drawn>& heap = stratum.drawn;
  if (heap.size() == kDrawn) {
    if (!(block < heap.front())) return;
    std::pop_heap(heap.begin(), heap.end());
    heap.pop_back();
  }
  heap.push_back(block);
  std::push_heap(heap.begin(), heap.end());
}

void Magnitudes::draw(Strata& strata, const float* x, int64_t n, uint32_t largest, uint64_t position) {
  if (largest == 0 || largest >= kInfinity) return;
  Stratum& stratum = strata[static_cast<int>(largest >> 23)];
  ++stratum.count;
  Drawn block{.hash = mix64(position), .x = {}};
  if (stratum.drawn.size() == kDrawn && !(block < stratum.drawn.front())) return;
  std::copy(x, x + n, block.x.begin());
  keep(stratum, block);
}

void Magnitudes::add(const float* x, int64_t rows, int64_t cols, int64_t first) {
  constexpr int64_t kPiece = 1 << 18;  // numbers per piece: clearing its bins is a small part of counting
  parallel_for(rows, std::max<int64_t>(1, kPiece / std::max<int64_t>(cols, 1)), [&](int64_t begin, int64_t end) {
    std::vector<uint32_t> bins(kBins, 0);
    Strata strata;
    uint32_t largest = 0;
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t c = 0; c < cols; c += kBlock) {
        const float* block = x + r * cols + c;
        const int64_t n = std::min<int64_t>(kBlock, cols - c);
        uint32_t most = 0;
        for (int64_t i = 0; i < n; ++i) most = std::max(most, magnitude_bits(block[i]));
        for (int64_t i = 0; i < n; ++i) ++bins[magnitude_bits(block[i]) >> kBinBits];
        draw(strata, block, n, most, static_cast<uint64_t>(first + r * cols + c));
        largest = std::max(largest, most);
      }
    }
    const std::lock_guard lock(mutex_);
    merge(bins);
    for (const auto& [exponent, stratum] : strata) {
      Stratum& mine = strata_[exponent];
      mine.count += stratum.count;
      for (const Drawn& block : stratum.drawn) keep(mine, block);
    }
    largest_ = std::max(largest_, largest);
  });
}

void Magnitudes::merge(const std::vector<uint32_t>& bins) {
  zeros_ += bins[0];
  count_ += bins[0];
  size_t begin = 1, end = kInfinity >> kBinBits;  // what is not finite is counted nowhere
  while (begin < end && bins[begin] == 0) ++begin;
  while (end > begin && bins[end - 1] == 0) --end;
  if (begin == end) return;
  if (bins_.empty()) first_bin_ = begin;
  if (begin < first_bin_) {
    bins_.insert(bins_.begin(), first_bin_ - begin, 0);
    first_bin_ = begin;
  }
  if (end > first_bin_ + bins_.size()) bins_.resize(end - first_bin_, 0);
  for (size_t b = begin; b < end; ++b) {
    bins_[b - first_bin_] += bins[b];
    count_ += bins[b];
  }
}

float Magnitudes::amax() const { return std::bit_cast<float>(largest_); }

float Magnitudes::percentile(double percent) const {
  const auto wanted = static_cast<int64_t>(std::ceil(percent / 100 * static_cast<double>(count_)));
  int64_t below = zeros_;
  if (below >= wanted) return amax();
  for (size_t b = 0; b < bins_.size(); below += bins_[b], ++b) {
    if (below + bins_[b] < wanted) continue;
    const double share = static_cast<double>(wanted - below) / static_cast<double>(bins_[b]);
    const double from = bin_edge(first_bin_ + b), to = bin_edge(first_bin_ + b + 1);
    return std::min(amax(), static_cast<float>(from + share * (to - from)));
  }
  return amax();
}

float Magnitudes::best_clip(Element element) const {
  if (count_ == 0 || largest_ == 0 || largest_ >= kInfinity) return amax();
  const Cumulative sums(bins_, first_bin_, zeros_);
  const std::vector<double> levels = levels_of(element);
  return least(amax(), 16, 129, [&](float clip) { return squared_error(sums, levels, clip); });
}

float Magnitudes::best_nvfp4_clip() const {
  if (count_ == 0 || largest_ == 0 || largest_ >= kInfinity) return amax();
  std::vector<float> x;
  std::vector<double> weight;  // per block
  for (const auto& [exponent, stratum] : strata_) {
    std::vector<Drawn> drawn = stratum.drawn;
    std::sort(drawn.begin(), drawn.end());  // the order of a heap depends on how it was filled
    for (const Drawn& block : drawn) {
      x.insert(x.end(), block.x.begin(), block.x.end());
      weight.push_back(static_cast<double>(stratum.count) / static_cast<double>(drawn.size()));
    }
  }
  const auto blocks = static_cast<int64_t>(weight.size());
  std::vector<uint8_t> scale(weight.size()), codes(x.size() / 2);
  std::vector<float> y(x.size());
  const float span = static_cast<float>(info(kNvfp4.element).max * info(kNvfp4.scale.element).max);
  return least(amax(), 4, 13, [&](float clip) {
    const float scale2 = clip / span;
    quantize_under(kNvfp4, x.data(), blocks, kBlock, &scale2, scale.data(), codes.data());
    dequantize_array(kNvfp4, codes.data(), scale.data(), &scale2, blocks, kBlock, y.data());
    double error = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double e = static_cast<double>(y[i]) - x[i];
      error += weight[i / kBlock] * e * e;
    }
    return error;
  });
}

ValueRange Magnitudes::range(double further_percentile) const {
  ValueRange r(amax());
  if (!std::isfinite(r.amax)) return r;
  for (const double percent : kPercentiles) r.percentiles[percent] = percentile(percent);
  r.percentiles[further_percentile] = percentile(further_percentile);
  for (const Element e : kClippedElements) r.mse[e] = e == Element::e2m1 ? best_nvfp4_clip() : best_clip(e);
  return r;
}

}  // namespace tessera
