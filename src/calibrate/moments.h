// SPDX-License-Identifier: Apache-2.0
// Second moments of what linear layers read (ir/moments.h). The f32 model runs over all samples piece by piece: each
// piece of nodes once, and what later pieces read is kept in memory in between. So only one X^T X exists at a time, and
// a layer that was changed meanwhile shows its effect on all that follow, at no extra cost.
// Rows beyond kMomentRows are thinned out evenly (every n-th is taken); sums are f32 in a fixed order, whatever the
// number of threads.
#pragma once

#include <map>
#include <vector>

#include "base/status.h"
#include "inputs/samples.h"
#include "ir/graph.h"
#include "ir/moments.h"

namespace tessera {

constexpr int64_t kMomentRows = 32768;  // ten times the columns of a ViT-B's widest layer
// What is kept between pieces, all samples together; samples beyond it are left out.
constexpr int64_t kMomentBytes = int64_t{2} << 30;

// Adds rows of x [rows, cols] up.
class MomentSum {
 public:
  // squares: X^T X too, else only magnitudes.
  MomentSum(int64_t cols, bool squares);
  void add(const float* x, int64_t rows);  // dense
  InputMoments finish() &&;

 private:
  int64_t width_;
  bool squares_;
  InputMoments sum_;
  std::vector<float> square_, panels_, total_abs_;  // square_: [cols, width], upper triangle
};

class PiecewiseRun {
 public:
  // `graph` is canonical and in f32; its batch is the number of samples per run. Uses at most `most` samples.
  static Result<PiecewiseRun> start(const Graph& graph, const Samples& samples, int64_t most);
  // Runs nodes up to `end` with the weights of `graph`, which has the same nodes and values as the one started with
  // (constants may differ). Contract: every weight is in f32.
  Status advance(const Graph& graph, size_t end);
  // Of a value that a node at or after the present place reads.
  Result<InputMoments> moments(const Graph& graph, ValueId x, bool squares) const;
  int64_t samples() const { return samples_; }

 private:
  size_t at_ = 0;
  int64_t samples_ = 0, batch_ = 1;
  std::vector<std::map<ValueId, Buffer>> runs_;  // what later nodes read, per run
};

}  // namespace tessera
