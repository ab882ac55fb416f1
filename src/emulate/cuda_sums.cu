// SPDX-License-Identifier: Apache-2.0
#include "emulate/cuda_sums.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#endif

namespace tessera {

#ifdef __CUDACC__

namespace {

constexpr int kTile = 32, kThreads = 256, kOutputs = kTile * kTile / kThreads;
constexpr int kSlices = 8;
constexpr int kNone = -4096;  // exponent of zero

struct Args {
  const float *x, *w;
  float* y;
  int m, n, k;
  int least_x, least_w;
  int fraction_bits, kept_bits, products, promote_every;
  int slices, slice[kSlices + 1];
};

// A number of at most 11 significant bits: significand with 10 bits of fraction in the low half, exponent in the high.
__device__ __forceinline__ int pack(float v, int least) {
  const uint32_t bits = __float_as_uint(v), biased = bits >> 23 & 0xff;
  int exponent = static_cast<int>(biased == 0 ? 1 : biased) - 127;
  int significand = static_cast<int>((bits & 0x7fffff) | (biased == 0 ? 0 : 0x800000)) >> 13;
  if ((bits & 0x7fffffff) == 0) return kNone * 65536;
  if (exponent < least) significand >>= min(31, least - exponent), exponent = least;
  return exponent * 65536 + ((bits >> 31 != 0 ? -significand : significand) & 0xffff);
}
__device__ __forceinline__ int exponent_of(int packed) { return packed >> 16; }
__device__ __forceinline__ int significand_of(int packed) { return static_cast<int16_t>(packed & 0xffff); }

// |v| >> places, toward zero, with v's sign.
__device__ __forceinline__ int shift_toward_zero(int v, int places) {
  const int sign = v >> 31, size = (v ^ sign) - sign;
  return ((size >> min(places, 31)) ^ sign) - sign;
}

__device__ __forceinline__ float fuse(const Args& p, float c, const int* x, const int* w) {
  const uint32_t bits = __float_as_uint(c), biased = bits >> 23 & 0xff;
  const int c_exponent = (bits & 0x7fffffff) == 0 ? 3 * kNone : static_cast<int>(biased == 0 ? 1 : biased) - 127;
  int largest = c_exponent;
  for (int i = 0; i < p.products; ++i) largest = max(largest, exponent_of(x[i]) + exponent_of(w[i]));
  if (largest < kNone / 2) return 0.0f;
  largest = max(largest, -126);
  long long sum = 0;
  if (c_exponent > 3 * kNone) {
    int size = static_cast<int>((bits & 0x7fffff) | (biased == 0 ? 0 : 0x800000));
    const int places = 23 - p.fraction_bits + largest - c_exponent;
    size = places <= 0 ? size << -places : size >> min(places, 31);
    sum = bits >> 31 != 0 ? -size : size;
  }
  for (int i = 0; i < p.products; ++i) {
    const int product = significand_of(x[i]) * significand_of(w[i]);  // 20 bits of fraction
    const int places = 20 - p.fraction_bits + largest - exponent_of(x[i]) - exponent_of(w[i]);
    sum += places <= 0 ? product * (1 << -places) : shift_toward_zero(product, places);
  }
  if (sum == 0) return 0.0f;
  const unsigned long long size = sum < 0 ? -sum : sum;
  const int top = 63 - __clzll(static_cast<long long>(size)), unit = largest - p.fraction_bits;
  const int drop = max(top - p.kept_bits, -126 - p.kept_bits - unit);
  const unsigned long long kept = drop > 0 ? size >> drop << drop : size;
  return copysignf(scalbnf(static_cast<float>(kept), unit), sum < 0 ? -1.0f : 1.0f);
}

__global__ void __launch_bounds__(kThreads) add_up(const __grid_constant__ Args p) {
  __shared__ int x[kTile][kTile + 1], w[kTile][kTile + 1];
  const int row = blockIdx.y * kTile, col = blockIdx.x * kTile, lane = threadIdx.x % kTile, first = threadIdx.x / kTile;
  float all[kOutputs] = {}, promoted[kOutputs] = {}, sum[kOutputs] = {};
  for (int s = 0; s < p.slices; ++s) {
    const int begin = p.slice[s], end = p.slice[s + 1];
    bool any = false;
    for (int at = begin; at < end; at += kTile) {
      __syncthreads();
      for (int r = first; r < kTile; r += kThreads / kTile) {
        const bool in_k = at + lane < end;
        x[r][lane] = in_k && row + r < p.m ? pack(p.x[static_cast<size_t>(row + r) * p.k + at + lane], p.least_x)
                                           : kNone * 65536;
        w[r][lane] = in_k && col + r < p.n ? pack(p.w[static_cast<size_t>(col + r) * p.k + at + lane], p.least_w)
                                           : kNone * 65536;
      }
      __syncthreads();
      for (int i = 0; i < kOutputs; ++i) {
        for (int g = 0; g < kTile; g += p.products)
          sum[i] = fuse(p, sum[i], &x[first + i * (kThreads / kTile)][g], &w[lane][g]);
      }
      if (p.promote_every > 0 && (at + kTile - begin) % p.promote_every == 0) {
        for (int i = 0; i < kOutputs; ++i) promoted[i] = any ? promoted[i] + sum[i] : sum[i], sum[i] = 0.0f;
        any = true;
      }
    }
    const bool rest = p.promote_every == 0 || (end - begin) % p.promote_every != 0;
    for (int i = 0; i < kOutputs; ++i) {
      const float slice = !any ? sum[i] : rest ? promoted[i] + sum[i] : promoted[i];
      all[i] = s == 0 ? slice : all[i] + slice;
      sum[i] = 0.0f;
    }
  }
  for (int i = 0; i < kOutputs; ++i) {
    const int r = row + first + i * (kThreads / kTile), c = col + lane;
    if (r < p.m && c < p.n) p.y[static_cast<size_t>(r) * p.n + c] = all[i];
  }
}

struct DeviceArray {
  explicit DeviceArray(int64_t count) {
    if (cudaMalloc(&data, static_cast<size_t>(count) * sizeof(float)) != cudaSuccess)
      data = nullptr, (void)cudaGetLastError();
  }
  ~DeviceArray() { cudaFree(data); }
  float* data = nullptr;
};

}  // namespace

bool emulate_sums_on_device(const SumOrder& order, const CoreOperand& x, const CoreOperand& w, float* sums, int64_t m,
                            int64_t n, int64_t k) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return (void)cudaGetLastError(), false;
  if (order.core == nullptr || kTile % order.core->products != 0 || order.promote_every % kTile != 0 ||
      order.slices.size() > kSlices)
    return false;
  Args p{.x = nullptr,
         .w = nullptr,
         .y = nullptr,
         .m = static_cast<int>(m),
         .n = static_cast<int>(n),
         .k = static_cast<int>(k),
         .least_x = x.least_exponent,
         .least_w = w.least_exponent,
         .fraction_bits = order.core->fraction_bits,
         .kept_bits = order.core->kept_bits,
         .products = order.core->products,
         .promote_every = order.promote_every,
         .slices = 1,
         .slice = {}};
  for (size_t s = 0; s < order.slices.size(); ++s) {
    if (order.slices[s] % kTile != 0) return false;
    p.slice[s] = static_cast<int>(order.slices[s]);
  }
  if (!order.slices.empty()) p.slices = static_cast<int>(order.slices.size());
  p.slice[p.slices] = p.k;
  const DeviceArray dx(m * k), dw(n * k), dy(m * n);
  if (dx.data == nullptr || dw.data == nullptr || dy.data == nullptr) return false;
  const auto bytes = [](int64_t count) { return static_cast<size_t>(count) * sizeof(float); };
  bool fine = cudaMemcpy(dx.data, x.numbers, bytes(m * k), cudaMemcpyHostToDevice) == cudaSuccess &&
              cudaMemcpy(dw.data, w.numbers, bytes(n * k), cudaMemcpyHostToDevice) == cudaSuccess;
  p.x = dx.data, p.w = dw.data, p.y = dy.data;
  const dim3 grid(static_cast<unsigned>((n + kTile - 1) / kTile), static_cast<unsigned>((m + kTile - 1) / kTile));
  if (fine) add_up<<<grid, kThreads>>>(p);
  fine = fine && cudaGetLastError() == cudaSuccess &&
         cudaMemcpy(sums, dy.data, bytes(m * n), cudaMemcpyDeviceToHost) == cudaSuccess;
  return fine;
}

#else

bool emulate_sums_on_device(const SumOrder&, const CoreOperand&, const CoreOperand&, float*, int64_t, int64_t,
                            int64_t) {
  return false;
}

#endif

}  // namespace tessera
