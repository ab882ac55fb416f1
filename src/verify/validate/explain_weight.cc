// SPDX-License-Identifier: Apache-2.0
#include "verify/validate/explain_weight.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <vector>

#include "base/parallel.h"
#include "base/status.h"
#include "op/reference.h"
#include "verify/validate/scale_of.h"

namespace tessera {
namespace {

// No type of the product rounds weights worse: e2m1 in blocks of 16 leaves 0.1.
constexpr double kRounding = 0.3;

std::string brief(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), x < 10 || x >= 1e6 ? "%.2g" : "%.0f", x);
  return text;
}

// Sums over all numbers of a weight, added up in order.
struct Fit {
  double error = 0, size = 0, stored = 0, product = 0;
  double relative_l2() const { return size > 0 ? std::sqrt(error / size) : std::sqrt(error); }
  double cosine() const { return stored > 0 && size > 0 ? product / std::sqrt(stored * size) : 0; }
};

Fit fit(int64_t n, const std::function<void(int64_t begin, int64_t end, Fit&)>& body) {
  constexpr int64_t kPart = int64_t{1} << 16;
  std::vector<Fit> parts(static_cast<size_t>((n + kPart - 1) / kPart));
  parallel_for(static_cast<int64_t>(parts.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) body(p * kPart, std::min(n, (p + 1) * kPart), parts[static_cast<size_t>(p)]);
  });
  Fit all;
  for (const Fit& f : parts) {
    all.error += f.error, all.size += f.size, all.stored += f.stored, all.product += f.product;
  }
  return all;
}

void add(Fit& f, double w, double q) {
  f.error += (w - q) * (w - q), f.size += w * w, f.stored += q * q, f.product += w * q;
}

// Which misreading of codes and scales would give the weight, where one does.
std::string cause(const TensorView& t, std::span<const double> exact, const std::string& what, const Fit& now) {
  const QuantType& type = t.desc->type;
  const int64_t n = static_cast<int64_t>(exact.size());
  const int64_t cols = std::max<int64_t>(1, t.desc->shape.back()), rows = n / cols;
  const std::vector<float> codes = decode_codes(t);
  const std::vector<double> first = first_scales(t), second = second_scales(t);
  const double global = second.empty() ? 1 : second[0];
  const auto with = [&](const std::function<double(int64_t)>& number) {
    return fit(n, [&](int64_t begin, int64_t end, Fit& f) {
      for (int64_t i = begin; i < end; ++i) add(f, exact[static_cast<size_t>(i)], number(i));
    });
  };
  const auto scale_at = [&](int64_t row, int64_t col) {
    return first.empty() ? global : first[static_cast<size_t>(scale_index(type.scale, row, col, cols))] * global;
  };
  std::string best;
  double least = std::min(now.relative_l2(), kRounding) / 2;
  const auto consider = [&](const Fit& f, const std::string& text) {
    if (f.relative_l2() < least) least = f.relative_l2(), best = text;
  };
  if (info(type.element).bits == 4 && n % 2 == 0) {
    consider(with([&](int64_t i) { return codes[static_cast<size_t>(i ^ 1)] * scale_at(i / cols, i % cols); }),
             "the two codes of each byte are swapped");
  }
  if (type.scale.granularity == Granularity::kBlock) {
    const int64_t block = type.scale.block, blocks = (cols + block - 1) / block;
    consider(with([&](int64_t i) {
               const int64_t at = i % cols / block * rows + i / cols;
               return codes[static_cast<size_t>(i)] * first[static_cast<size_t>(at)] * global;
             }),
             cat("its scales lie transposed, [", blocks, ",", rows, "] where [", rows, ",", blocks, "] is read"));
    if (rows % block == 0 && cols % block == 0) {
      consider(with([&](int64_t i) {
                 return codes[static_cast<size_t>(i)] * first[static_cast<size_t>(i / cols / block * cols + i % cols)] *
                        global;
               }),
               cat("its blocks of ", block, " run along axis 0, the outputs, where axis 1 is read"));
    }
  }
  if (!best.empty()) return best;
  // A factor that all numbers share, as far as the type can tell.
  const double slope = now.stored > 0 ? now.product / now.stored : 0;
  if (now.cosine() > 0.95 && slope > 0) {
    return slope > 1 ? cat("its scales are ", brief(slope), "x too small")
                     : cat("its scales are ", brief(1 / slope), "x too large");
  }
  if (now.stored == 0) return "every code is zero";
  return cat("cosine ", brief(now.cosine()), ": it is not this layer's ", what, ", or its scales are not its own");
}

}  // namespace

std::string explain_weight(const TensorView& stored, std::span<const double> exact, const std::string& what,
                           double outside) {
  const std::vector<double> numbers = decode(stored).v;
  const Fit now = fit(static_cast<int64_t>(exact.size()), [&](int64_t begin, int64_t end, Fit& f) {
    for (size_t i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) add(f, exact[i], numbers[i]);
  });
  char text[96];
  std::snprintf(text, sizeof(text),
                " is off by %.2g of its size, %.0f %% of it beyond its rounding: ", now.relative_l2(), 100 * outside);
  return cat("its stored ", what, text, cause(stored, exact, what, now));
}

}  // namespace tessera
