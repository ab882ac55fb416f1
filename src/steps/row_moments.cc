// SPDX-License-Identifier: Apache-2.0
#include "steps/row_moments.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tessera {
namespace {

constexpr double kUnit = 0x1p-24;

double group_cols(int64_t g, int64_t cols) {
  return static_cast<double>(std::min(kMomentsGroup, cols - g * kMomentsGroup));
}

struct Joined {
  double mean = 0, mean_abs = 0;  // of the row; of the groups' means' magnitudes
  double var = 0, apart = 0;      // about the mean; mean distance of the groups' means from it
};

Joined join(const double* moments, int64_t cols) {
  Joined j;
  const int64_t groups = moment_groups(cols);
  const double all = static_cast<double>(cols);
  for (int64_t g = 0; g < groups; ++g) {
    j.mean += moments[2 * g] * group_cols(g, cols) / all;
    j.mean_abs += std::fabs(moments[2 * g]) * group_cols(g, cols) / all;
  }
  for (int64_t g = 0; g < groups; ++g) {
    const double d = moments[2 * g] - j.mean;
    j.var += (moments[2 * g + 1] + group_cols(g, cols) * d * d) / all;
    j.apart += std::fabs(d) * group_cols(g, cols) / all;
  }
  return j;
}

}  // namespace

FoldedNorm FoldedNorm::of(const Attrs& attrs) {
  return {.rms = attrs.word(kFoldedKind, "layer") == "rms", .eps = static_cast<float>(attrs.number(kFoldedEps))};
}

void take_moments(const double* row, int64_t cols, double* moments) {
  for (int64_t g = 0; g < moment_groups(cols); ++g) {
    const double* v = row + g * kMomentsGroup;
    const double count = group_cols(g, cols);
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) mean += v[i] / count;
    for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) squares += (v[i] - mean) * (v[i] - mean);
    moments[2 * g] = mean, moments[2 * g + 1] = squares;
  }
}

double inverse_deviation(const double* moments, int64_t cols, const FoldedNorm& norm) {
  const Joined j = join(moments, cols);
  return 1 / std::sqrt(j.var + (norm.rms ? j.mean * j.mean : 0) + static_cast<double>(norm.eps));
}

// Groups are joined two by two, in any order. Each time the mean is rounded and moves by a share of the distance that
// is off by 3 units: it is off by m = 7 groups u mean|m_g| at most, a group's distance from it too, the variance by 2 m
// apart + m^2 and four roundings per group; quotient, root, reciprocal and the sum with eps are a few units more.
double inverse_deviation_error(const double* moments, int64_t cols, const FoldedNorm& norm) {
  const Joined j = join(moments, cols);
  const double groups = static_cast<double>(moment_groups(cols)), m = 7 * groups * kUnit * j.mean_abs;
  const double squares = j.var + (norm.rms ? j.mean * j.mean : 0);
  double error = 2 * m * j.apart + m * m + (4 * groups + 4) * kUnit * squares;
  if (norm.rms) error += 2 * m * std::fabs(j.mean);
  const double of = squares + static_cast<double>(norm.eps);
  return (of > 0 ? 0.5 * error / of : 0) + 6 * kUnit;
}

void moment_errors(const double* row, const double* errors, int64_t cols, double* moments) {
  std::vector<double> exact(static_cast<size_t>(2 * moment_groups(cols)));
  take_moments(row, cols, exact.data());
  for (int64_t g = 0; g < moment_groups(cols); ++g) {
    const double count = group_cols(g, cols), sum = (count + 4) * kUnit, mean = exact[static_cast<size_t>(2 * g)];
    double size = 0, off = 0, squares = 0;
    for (int64_t i = g * kMomentsGroup; i < g * kMomentsGroup + static_cast<int64_t>(count); ++i)
      size += std::fabs(row[i]) / count, off += errors[i] / count;
    const double of_mean = off + sum * size;
    for (int64_t i = g * kMomentsGroup; i < g * kMomentsGroup + static_cast<int64_t>(count); ++i) {
      const double d = std::fabs(row[i] - mean), e = errors[i] + of_mean + kUnit * d;
      squares += 2 * d * e + e * e;
    }
    moments[2 * g] = of_mean;
    moments[2 * g + 1] = squares + sum * (exact[static_cast<size_t>(2 * g + 1)] + squares);
  }
}

}  // namespace tessera
