// SPDX-License-Identifier: Apache-2.0
// topk/cuda: a block per row. Numbers and their places become 64-bit keys that are all different: the number in an
// order-preserving form above, the place, inverted, below. Eight bits at a time the block counts how many keys have
// which digit, until it knows the prefix of the k greatest; these it collects in shared memory and sorts there.
#include "ops/topk/topk.h"
#include "tiles/cuda/device_axes.h"
#include "tiles/cuda/device_types.h"

#ifdef __CUDACC__
#include "tiles/cuda/elements.cuh"
#include "tiles/cuda/launch.cuh"
#endif

namespace tessera {
namespace {

constexpr const char* kName = "topk/cuda";
constexpr int kThreads = 512, kDigits = 256;
constexpr int64_t kMostKept = 4096;  // 32 KB of keys in shared memory

Verdict accepts(const Problem& p) {
  const TopkProblem t = TopkProblem::of(p);
  TS_REQUIRE(p.in[0].dense(), "reads dense rows");
  TS_REQUIRE(is_device_float(t.x) || t.x == QuantType(Element::i32), "reads f32, f16, bf16 or i32, not ",
             to_string(t.x));
  TS_REQUIRE(p.out[0].type == QuantType(Element::i64), "writes i64, not ", to_string(p.out[0].type));
  TS_REQUIRE(t.k <= kMostKept, "sorts at most ", kMostKept, " numbers of a row, not ", t.k);
  TS_REQUIRE(t.rows <= kMaxDeviceElements && t.cols <= kMaxDeviceElements, "too many elements for 31-bit indices");
  return {};
}

Arithmetic arithmetic(const Problem&) { return {.computed = Element::f32, .instruction = "comparisons"}; }

#ifdef __CUDACC__

struct Args {
  const void* x;
  int64_t* places;
  int64_t rows;
  int cols, k, sorted;  // sorted: a power of two, at least k
  Element element;
  bool least;
};

// Greater keys come first. NaN is the greatest number, zeros of both signs are equal.
__device__ __forceinline__ uint64_t key_of(const Args& p, int64_t row, int col) {
  const int64_t at = row * p.cols + col;
  uint32_t bits;
  if (p.element == Element::i32) {
    bits = static_cast<const uint32_t*>(p.x)[at] ^ 0x80000000u;
  } else {
    const float v = cuda::load_one(p.element, p.x, at);
    const uint32_t plain = __float_as_uint(v == 0.0f ? 0.0f : v);
    bits = v != v ? 0xffffffffu : plain ^ ((plain >> 31) != 0 ? 0xffffffffu : 0x80000000u);
  }
  if (p.least) bits = ~bits;
  return static_cast<uint64_t>(bits) << 32 | (0xffffffffu - static_cast<uint32_t>(col));
}

struct Selection {
  uint64_t prefix;  // of the least key that is kept, without its last `shift` bits
  int shift;
};

// By one warp: the digit at which so many keys are reached from the greatest digit down, how many of its keys are among
// them, and whether all are.
__device__ __forceinline__ void find_digit(const int* counts, int wanted, uint64_t* found) {
  constexpr int kOfLane = kDigits / 32;
  const int lane = static_cast<int>(threadIdx.x), greatest = kDigits - 1 - lane * kOfLane;
  int own = 0;
  for (int i = 0; i < kOfLane; ++i) own += counts[greatest - i];
  int until = own;  // with all lanes of greater digits
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int before = __shfl_up_sync(0xffffffffu, until, step);
    if (lane >= step) until += before;
  }
  int left = wanted - (until - own);
  if (left < 1 || left > own) return;
  int digit = greatest;
  while (counts[digit] < left) left -= counts[digit--];
  found[0] = static_cast<uint64_t>(digit);
  found[1] = static_cast<uint64_t>(left);
  found[2] = counts[digit] == left;
}

// Finds the k greatest keys of the row. Every thread gets the answer.
__device__ __forceinline__ Selection select_greatest(const Args& p, int64_t row, int* counts, uint64_t* found) {
  uint64_t prefix = 0;
  int wanted = p.k;
  for (int shift = 56;; shift -= 8) {
    for (int d = threadIdx.x; d < kDigits; d += kThreads) counts[d] = 0;
    __syncthreads();
    for (int col = threadIdx.x; col < p.cols; col += kThreads) {
      const uint64_t key = key_of(p, row, col);
      if (shift == 56 || key >> (shift + 8) == prefix) atomicAdd(&counts[key >> shift & (kDigits - 1)], 1);
    }
    __syncthreads();
    if (threadIdx.x < 32) find_digit(counts, wanted, found);
    __syncthreads();
    prefix = prefix << 8 | found[0];
    wanted = static_cast<int>(found[1]);
    const bool all = found[2] != 0;
    __syncthreads();  // before counts and found are written again
    if (all || shift == 0) return {prefix, shift};
  }
}

// Descending.
__device__ __forceinline__ void sort_keys(uint64_t* keys, int count) {
  for (int run = 2; run <= count; run *= 2) {
    for (int step = run / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < count / 2; i += kThreads) {
        const int low = i / step * step * 2 + i % step, high = low + step;
        const bool descends = (low & run) == 0;
        const uint64_t a = keys[low], b = keys[high];
        if ((a < b) == descends) keys[low] = b, keys[high] = a;
      }
    }
  }
  __syncthreads();
}

extern __shared__ __align__(16) uint64_t kept_keys[];

__global__ void __launch_bounds__(kThreads) find_greatest(const __grid_constant__ Args p) {
  __shared__ int counts[kDigits], next;
  __shared__ uint64_t found[3];
  cuda::let_next_kernel_start();
  cuda::wait_for_earlier_kernels();
  const int64_t row = blockIdx.x;
  const Selection least = select_greatest(p, row, counts, found);
  for (int i = threadIdx.x; i < p.sorted; i += kThreads) kept_keys[i] = 0;  // behind every key
  if (threadIdx.x == 0) next = 0;
  __syncthreads();
  for (int col = threadIdx.x; col < p.cols; col += kThreads) {
    const uint64_t key = key_of(p, row, col);
    if (key >> least.shift >= least.prefix) kept_keys[atomicAdd(&next, 1)] = key;
  }
  sort_keys(kept_keys, p.sorted);
  for (int i = threadIdx.x; i < p.k; i += kThreads)
    p.places[row * p.k + i] = 0xffffffffu - static_cast<uint32_t>(kept_keys[i]);
}

class TopkKernel final : public Kernel {
 public:
  explicit TopkKernel(const Problem& p) : t_(TopkProblem::of(p)) {}

  Status launch(std::span<const TensorView> in, std::span<const TensorView> out, void*, Stream stream) override {
    if (t_.rows * t_.k == 0) return {};
    Args p{.x = in[0].data, .places = static_cast<int64_t*>(out[0].data), .rows = t_.rows};
    p.cols = static_cast<int>(t_.cols), p.k = static_cast<int>(t_.k);
    p.sorted = 1;
    while (p.sorted < p.k) p.sorted *= 2;
    p.element = t_.x.element, p.least = t_.least;
    return cuda::launch_overlapping(kName, find_greatest, t_.rows, kThreads,
                                    sizeof(uint64_t) * static_cast<size_t>(p.sorted), stream.handle, 1, p);
  }

 private:
  const TopkProblem t_;
};

Result<std::unique_ptr<Kernel>> bind(const Problem& p) {
  return std::unique_ptr<Kernel>(std::make_unique<TopkKernel>(p));
}

#else
constexpr auto bind = nullptr;
#endif

}  // namespace

const Variant& topk_cuda() {
  static const Variant kVariant{.name = kName,
                                .arch = Arch::cuda,
                                .accepts = accepts,
                                .arithmetic = arithmetic,
                                .sass = shows({"LDG", "ATOMS"}),
                                .bind = bind};
  return kVariant;
}

}  // namespace tessera
