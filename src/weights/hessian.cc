// SPDX-License-Identifier: Apache-2.0
#include "weights/hessian.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"

namespace tessera {
namespace {

constexpr int64_t kBlock = 64;  // columns of a panel: 64 x 64 doubles are half of a 64 KiB first-level cache

// row[c] -= sum over m of factor[m] * lines[m * stride + c], four lines at a time: each number of `row` is loaded and
// stored once for four products.
void subtract_lines(const double* factor, int64_t count, const double* lines, int64_t stride, int64_t n, double* row) {
  int64_t m = 0;
  for (; m + 4 <= count; m += 4) {
    const double *a = lines + m * stride, *b = a + stride, *c = b + stride, *d = c + stride;
    const double fa = factor[m], fb = factor[m + 1], fc = factor[m + 2], fd = factor[m + 3];
    for (int64_t i = 0; i < n; ++i) row[i] -= fa * a[i] + fb * b[i] + fc * c[i] + fd * d[i];
  }
  for (; m < count; ++m) {
    for (int64_t i = 0; i < n; ++i) row[i] -= factor[m] * lines[m * stride + i];
  }
}

// a becomes L in its lower triangle, L L^T = a. False where a is not positive definite.
bool factorise(std::vector<double>& a, int64_t k) {
  std::vector<double> turned(static_cast<size_t>(kBlock * k));  // the panel's columns as lines
  for (int64_t b = 0; b < k; b += kBlock) {
    const int64_t n = std::min(kBlock, k - b);
    for (int64_t i = b; i < b + n; ++i) {
      for (int64_t j = b; j <= i; ++j) {
        double sum = a[static_cast<size_t>(i * k + j)];
        for (int64_t m = b; m < j; ++m) sum -= a[static_cast<size_t>(i * k + m)] * a[static_cast<size_t>(j * k + m)];
        if (i == j && !(sum > 0)) return false;
        a[static_cast<size_t>(i * k + j)] = i == j ? std::sqrt(sum) : sum / a[static_cast<size_t>(j * k + j)];
      }
    }
    const int64_t below = b + n, left = k - below;
    parallel_for(left, 32, [&](int64_t begin, int64_t end) {
      for (int64_t r = below + begin; r < below + end; ++r) {
        double* row = &a[static_cast<size_t>(r * k)];
        for (int64_t j = b; j < below; ++j) {
          double sum = row[j];
          for (int64_t m = b; m < j; ++m) sum -= row[m] * a[static_cast<size_t>(j * k + m)];
          row[j] = sum / a[static_cast<size_t>(j * k + j)];
          turned[static_cast<size_t>((j - b) * k + r)] = row[j];
        }
      }
    });
    parallel_for(left, 16, [&](int64_t begin, int64_t end) {
      for (int64_t r = below + begin; r < below + end; ++r) {
        double* row = &a[static_cast<size_t>(r * k)];
        subtract_lines(row + b, n, &turned[static_cast<size_t>(below)], k, r + 1 - below, row + below);
      }
    });
  }
  return true;
}

// x = L^-1, lower triangular. Stripes of columns are independent of each other.
std::vector<double> invert_lower(const std::vector<double>& l, int64_t k) {
  std::vector<double> x(static_cast<size_t>(k * k), 0.0);
  parallel_for(divide_up(k, kBlock), 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin * kBlock; c < std::min(k, end * kBlock); c += kBlock) {
      const int64_t n = std::min(kBlock, k - c);
      for (int64_t r = c; r < k; ++r) {
        double* row = &x[static_cast<size_t>(r * k + c)];
        if (r < c + n) row[r - c] = 1;
        subtract_lines(&l[static_cast<size_t>(r * k + c)], r - c, &x[static_cast<size_t>(c * k + c)], k, n, row);
        for (int64_t i = 0; i < n; ++i) row[i] /= l[static_cast<size_t>(r * k + r)];
      }
    }
  });
  return x;
}

}  // namespace

Result<Hessian> make_hessian(const InputMoments& moments, double damping, bool factored) {
  const int64_t k = moments.cols;
  const double rows = static_cast<double>(std::max<int64_t>(moments.rows, 1));
  double mean = 0;
  for (int64_t i = 0; i < k; ++i) mean += moments.xtx[static_cast<size_t>(i * k + i)] / rows / static_cast<double>(k);
  if (!std::isfinite(mean)) return bad_input("its input is not finite on the calibration data");
  const double added = mean > 0 ? damping * mean : 1.0;  // an input of zeros: every change is as good as another
  Hessian out{PanelMatrix(k), {}};
  const auto damped = [&](int64_t i, int64_t j) {
    return moments.xtx[static_cast<size_t>(i * k + j)] / rows + (i == j ? added : 0.0);
  };
  parallel_for(k, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < k; ++j) out.h.at(i, j) = static_cast<float>(damped(i, j));
    }
  });
  if (!factored) return out;
  // With rows and columns in reverse, H = L L^T gives H = R R^T with R upper triangular, and U = R^-1.
  std::vector<double> a(static_cast<size_t>(k * k));
  parallel_for(k, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < k; ++j) a[static_cast<size_t>(i * k + j)] = damped(k - 1 - i, k - 1 - j);
    }
  });
  if (!factorise(a, k)) return bad_input("the moments of its input are singular in spite of the damping");
  a = invert_lower(a, k);
  out.u = PanelMatrix(k);
  parallel_for(k, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = i; j < k; ++j)
        out.u.at(i, j) = static_cast<float>(a[static_cast<size_t>((k - 1 - i) * k + k - 1 - j)]);
    }
  });
  return out;
}

double error_under(const Hessian& hessian, const float* change, int64_t rows) {
  const int64_t k = hessian.size(), padded = round_up(k, kPanelCols), grain = 48;
  std::vector<double> parts(static_cast<size_t>(divide_up(rows, grain)), 0.0);
  parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r += grain) {
      const int64_t n = std::min(grain, end - r);
      std::vector<float> product(static_cast<size_t>(n * padded), 0.0f);
      hessian.h.multiply_add(change + r * k, k, n, 0, k, 0, k, product.data(), padded);
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < k; ++j)
          sum += static_cast<double>(product[static_cast<size_t>(i * padded + j)]) * change[(r + i) * k + j];
      }
      parts[static_cast<size_t>(r / grain)] = sum;
    }
  });
  double total = 0;
  for (double p : parts) total += p;
  return total;
}

}  // namespace tessera
