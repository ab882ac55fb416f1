// SPDX-License-Identifier: Apache-2.0
#include "weights/compensate.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 48;    // rows of a piece: whole panels (6 or 12 rows), and U is read once per piece
constexpr int64_t kBlock = 128;  // columns whose effect on later ones is applied at once

struct Choice {
  int a, b;  // places that are pruned
};
constexpr Choice kChoices24[] = {{2, 3}, {1, 3}, {1, 2}, {0, 3}, {0, 2}, {0, 1}};
constexpr Choice kChoicesPairs[] = {{2, 3}, {0, 1}};

// One piece of rows, in place.
class Piece {
 public:
  Piece(const Hessian& hessian, const CompensateJob& job, int64_t row, int64_t rows, Compensated& out)
      : hessian_(hessian), job_(job), k_(hessian.size()), row_(row), rows_(rows), out_(out) {
    width_ = round_up(k_, kPanelCols);
    w_.assign(static_cast<size_t>(rows_ * width_), 0.0f);
    const float* from = job.start != nullptr ? job.start : job.w;
    for (int64_t r = 0; r < rows_; ++r) std::copy_n(from + (row_ + r) * k_, k_, at(r, 0));
  }

  void run() {
    for (int64_t b = 0; b < k_; b += kBlock) fix_block(b, std::min(kBlock, k_ - b));
    for (int s = 0; s < job_.sweeps; ++s) {
      for (int64_t b = 0; b < k_; b += kBlock) sweep_block(b, std::min(kBlock, k_ - b));
    }
    for (int64_t r = 0; r < rows_; ++r) std::copy_n(at(r, 0), k_, &out_.w[place(r, 0)]);
  }

 private:
  float* at(int64_t r, int64_t c) { return &w_[static_cast<size_t>(r * width_ + c)]; }
  size_t place(int64_t r, int64_t c) const { return static_cast<size_t>((row_ + r) * k_ + c); }
  bool keeps(int64_t r, int64_t c) const { return out_.kept.empty() || out_.kept[place(r, c)] != 0; }

  void copy_block(const PanelMatrix& m, int64_t b, int64_t n) {
    block_.resize(static_cast<size_t>(n * n));
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) block_[static_cast<size_t>(i * n + j)] = m.at(b + i, b + j);
    }
  }

  void fix_block(int64_t b, int64_t n) {
    copy_block(hessian_.u, b, n);
    errors_.assign(static_cast<size_t>(rows_ * n), 0.0f);
    for (int64_t i = 0; i < n; ++i) {
      if (job_.pattern != SparsityPattern::kDense && (b + i) % 4 == 0 && b + i + 2 < k_) prune_group(b, i, n);
      round_column(b + i);
      const float inverse = 1 / block_[static_cast<size_t>(i * n + i)];
      for (int64_t r = 0; r < rows_; ++r) {
        const float q = keeps(r, b + i) ? number_[static_cast<size_t>(r)] : 0.0f;
        const float e = (*at(r, b + i) - q) * inverse;
        if (e != 0) spread(r, b, i, n, e);
        *at(r, b + i) = q;
        if (!keeps(r, b + i) && job_.grid != nullptr) out_.decoded[place(r, b + i)] = 0;
      }
    }
    if (b + n >= k_) return;
    for (float& e : errors_) e = -e;
    hessian_.u.multiply_add(errors_.data(), n, rows_, b, b + n, b + n, k_, at(0, b + n), width_);
  }

  // The columns of the block from i on make e good; those behind the block get theirs at its end.
  void spread(int64_t r, int64_t b, int64_t i, int64_t n, float e) {
    errors_[static_cast<size_t>(r * n + i)] += e;
    float* w = at(r, b);
    const float* u = &block_[static_cast<size_t>(i * n)];
    for (int64_t j = i; j < n; ++j) w[j] -= e * u[j];
  }

  // number_ and the decoded codes of a column as it stands.
  void round_column(int64_t c) {
    number_.resize(static_cast<size_t>(rows_));
    for (int64_t r = 0; r < rows_; ++r) number_[static_cast<size_t>(r)] = *at(r, c);
    if (job_.grid == nullptr) return;
    decoded_.resize(static_cast<size_t>(rows_));
    job_.grid->round(row_, rows_, c, number_.data(), decoded_.data(), number_.data());
    for (int64_t r = 0; r < rows_; ++r) out_.decoded[place(r, c)] = decoded_[static_cast<size_t>(r)];
  }

  void prune_group(int64_t b, int64_t i, int64_t n) {
    // The inverse of H over the free columns, as far as the group goes: G = U4^T U4.
    // Where only three are left, the fourth is a zero that nothing depends on, and has to be among the pruned.
    const int size = static_cast<int>(std::min<int64_t>(4, k_ - b - i));
    double u[4][4] = {}, g[4][4] = {};
    u[3][3] = 1;
    for (int a = 0; a < size; ++a) {
      for (int c = a; c < size; ++c) u[a][c] = block_[static_cast<size_t>((i + a) * n + i + c)];
    }
    for (int a = 0; a < 4; ++a) {
      for (int c = 0; c < 4; ++c) {
        for (int m = 0; m <= std::min(a, c); ++m) g[a][c] += u[m][a] * u[m][c];
      }
    }
    const bool pairs = job_.pattern == SparsityPattern::k48Pairs;
    const Choice* choices = pairs ? kChoicesPairs : kChoices24;
    for (int64_t r = 0; r < rows_; ++r) {
      float w[4] = {};
      std::copy_n(at(r, b + i), size, w);
      double least = INFINITY, best[2] = {};
      Choice pruned = choices[0];
      for (int c = 0; c < (pairs ? 2 : 6); ++c) {
        const auto [p, q] = choices[c];
        if (size < 4 && q != 3) continue;
        const double det = g[p][p] * g[q][q] - g[p][q] * g[p][q];
        const double lp = (g[q][q] * w[p] - g[p][q] * w[q]) / det, lq = (g[p][p] * w[q] - g[p][q] * w[p]) / det;
        const double cost = lp * w[p] + lq * w[q];
        if (!(cost < least)) continue;
        least = cost, best[0] = lp, best[1] = lq, pruned = choices[c];
      }
      for (int m = 0; m < size; ++m) {
        out_.kept[place(r, b + i + m)] = m != pruned.a && m != pruned.b;
        const double e =
            best[0] * (m <= pruned.a ? u[m][pruned.a] : 0) + best[1] * (m <= pruned.b ? u[m][pruned.b] : 0);
        if (e != 0) spread(r, b, i + m, n, static_cast<float>(e));
      }
      for (int m : {pruned.a, pruned.b}) {
        if (m < size) *at(r, b + i + m) = 0;  // it is, but for rounding
      }
    }
  }

  void sweep_block(int64_t b, int64_t n) {
    const int64_t padded = round_up(n, kPanelCols);
    change_.resize(static_cast<size_t>(rows_ * k_));
    for (int64_t r = 0; r < rows_; ++r) {
      const float *q = at(r, 0), *w = job_.w + (row_ + r) * k_;
      for (int64_t c = 0; c < k_; ++c) change_[static_cast<size_t>(r * k_ + c)] = q[c] - w[c];
    }
    slope_.assign(static_cast<size_t>(rows_ * padded), 0.0f);
    hessian_.h.multiply_add(change_.data(), k_, rows_, 0, k_, b, b + n, slope_.data(), padded);
    copy_block(hessian_.h, b, n);
    std::vector<float> wanted(static_cast<size_t>(rows_)), code(wanted.size()), number(wanted.size());
    for (int64_t i = 0; i < n; ++i) {
      const float* h = &block_[static_cast<size_t>(i * n)];
      for (int64_t r = 0; r < rows_; ++r)
        wanted[static_cast<size_t>(r)] = *at(r, b + i) - slope_[static_cast<size_t>(r * padded + i)] / h[i];
      if (job_.grid != nullptr)
        job_.grid->round(row_, rows_, b + i, wanted.data(), code.data(), number.data());
      else
        number = wanted;
      for (int64_t r = 0; r < rows_; ++r) {
        const float want = wanted[static_cast<size_t>(r)], next = number[static_cast<size_t>(r)];
        const float now = *at(r, b + i), step = next - now;
        // Nearer than what is there, also where a product's rounding makes the grid uneven.
        if (!keeps(r, b + i) || step == 0 || std::fabs(next - want) >= std::fabs(now - want)) continue;
        *at(r, b + i) = next;
        if (job_.grid != nullptr) out_.decoded[place(r, b + i)] = code[static_cast<size_t>(r)];
        float* slope = &slope_[static_cast<size_t>(r * padded)];
        for (int64_t j = i + 1; j < n; ++j) slope[j] += step * h[j];
      }
    }
  }

  const Hessian& hessian_;
  const CompensateJob& job_;
  const int64_t k_, row_, rows_;
  Compensated& out_;
  int64_t width_;
  std::vector<float> w_, block_, errors_, number_, decoded_, change_, slope_;
};

}  // namespace

Compensated compensate(const Hessian& hessian, const CompensateJob& job) {
  const int64_t k = hessian.size();
  Compensated out;
  const size_t count = static_cast<size_t>(job.rows * k);
  out.w.resize(count);
  if (job.grid != nullptr) out.decoded.resize(count);
  if (job.kept != nullptr) out.kept = *job.kept;
  if (job.pattern != SparsityPattern::kDense) out.kept.assign(count, 1);
  parallel_for(job.rows, kRows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r += kRows) Piece(hessian, job, r, std::min(kRows, end - r), out).run();
  });
  return out;
}

}  // namespace tessera
