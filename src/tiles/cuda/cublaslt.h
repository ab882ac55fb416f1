// SPDX-License-Identifier: Apache-2.0
// One matrix product through cuBLASLt: y[m,n] = x[m,k] * w[n,k]^T (+ bias[n]) (+ c[m,n]), rows as this product stores
// them. The library counts columns first, so it is asked for the transposed product: A = w (K x N, transposed), B = x
// (K x M), D = y (N x M). The algorithm is one of the first few that the library's heuristic names; which one is a
// config of the variant, so the tuner chooses it and the plan keeps it. Running allocates nothing and can be captured.
// Reductions across thread blocks are in f32 and in a fixed order: identical inputs give identical bits.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <string_view>

#include "base/status.h"
#include "types/element.h"

namespace tessera {

constexpr int64_t kCublasWorkspaceBytes = int64_t{32} << 20;

// Configs of variants that call the library: the heuristic's algorithms in its own order.
inline constexpr const char* kCublasConfigs[] = {"heuristic 1", "heuristic 2", "heuristic 3"};
// 0 for the first. An unnamed config is the first.
inline int cublas_rank(std::string_view config) {
  for (size_t i = 0; i < std::size(kCublasConfigs); ++i) {
    if (config == kCublasConfigs[i]) return static_cast<int>(i);
  }
  return 0;
}

enum class GemmScales : uint8_t {
  kNone,
  kScalar,  // one f32 factor for x, one for w; either may be absent (1)
  kOuter,   // f32 factors per row of x and per row of w, both present
};

struct GemmSpec {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  int64_t x_row_stride = 0, w_row_stride = 0,
          c_row_stride = 0;                       // elements; y's rows are dense; matrices of a batch follow each other
  bool shared_w = false, shared_c = false;        // one w, one c for the whole batch
  Element in = Element::f16, out = Element::f16;  // of x and w; of y, c and bias
  bool bias = false, c = false;
  GemmScales scales = GemmScales::kNone;
  int alignment = 16;  // bytes, of every pointer
  int rank = 0;        // which of the heuristic's algorithms; the last where it names fewer
};

struct GemmPointers {
  const void *x = nullptr, *w = nullptr, *c = nullptr, *bias = nullptr;
  void* y = nullptr;
  const void *x_scale = nullptr, *w_scale = nullptr;
};

class Gemm {
 public:
  // Null where the library has no algorithm for it.
  static Result<std::unique_ptr<Gemm>> make(const GemmSpec& spec);
  ~Gemm();
  // `workspace`: kCublasWorkspaceBytes, aligned to 256. `stream`: a cudaStream_t.
  Status run(const GemmPointers& p, void* workspace, void* stream);

 private:
  struct Parts;
  explicit Gemm(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace tessera
