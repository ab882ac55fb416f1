// SPDX-License-Identifier: Apache-2.0
// The sums of wgmma as our kernels issue it (products.cuh), before any rounding, against emulate/tensor_core.h: every
// width, both sources of operand A, all types, short and long k. And the emulation on CUDA cores against that on the
// host.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "archs/cuda/instructions.cuh"
#include "archs/sm90/instructions.cuh"
#include "archs/sm90/products.cuh"
#include "archs/sm90/swizzle.h"
#include "emulate/cuda_sums.h"
#include "emulate/tensor_core.h"
#include "types/element.h"

namespace tessera {
namespace {

using sm90::SumOf, sm90::Products;
constexpr int kRows = 64;

// One warpgroup: d[64, kN] = a[64, k] b[kN, k]^T, in blocks of 128 bytes of k. promote: f32 sums of blocks.
template <class Operand, int kN, bool kRegisters>
__global__ void __launch_bounds__(128)
    multiply(const uint8_t* a, const uint8_t* b, SumOf<Operand>* d, int k_bytes, bool promote) {
  using namespace sm90;
  extern __shared__ __align__(1024) uint8_t shared[];
  uint8_t *const a_tile = shared, *const b_tile = shared + kRows * 128;
  SumOf<Operand> sums[kN / 2], all[kN / 2] = {};
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
  for (int at = 0; at < k_bytes; at += 128) {
    __syncthreads();
    for (int i = threadIdx.x; i < (kRows + kN) * 128; i += 128) {
      const int r = i / 128, byte = i % 128;
      const uint8_t value = at + byte < k_bytes ? (r < kRows ? a[size_t(r) * k_bytes + at + byte]
                                                             : b[size_t(r - kRows) * k_bytes + at + byte])
                                                : 0;
      (r < kRows ? a_tile : b_tile)[swizzled_offset(r < kRows ? r : r - kRows, byte)] = value;
    }
    fence_for_tma();
    __syncthreads();
    uint32_t fragment[4][4];
    for (int step = 0; step < 4; ++step) {
      for (int i = 0; i < 4; ++i) {  // rows row and row + 8, four bytes from lane % 4 * 4 on in each half of the step
        const int byte = step * 32 + i / 2 * 16 + lane % 4 * 4;
        fragment[step][i] = *reinterpret_cast<const uint32_t*>(a_tile + swizzled_offset(row + i % 2 * 8, byte));
      }
    }
    const uint64_t a_desc = operand_descriptor(cuda::shared_address(a_tile)),
                   b_desc = operand_descriptor(cuda::shared_address(b_tile));
    pin(sums);
    begin_products();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const int more = step > 0 || (at > 0 && !promote);
      if constexpr (kRegisters) {
        Products<Operand, kN>::registers(sums, fragment[step], b_desc + step * kDescriptorStepK, more);
      } else {
        Products<Operand, kN>::shared(sums, a_desc + step * kDescriptorStepK, b_desc + step * kDescriptorStepK, more);
      }
    }
    commit_products();
    wait_products<0>();
    pin(sums);
    for (int i = 0; i < kN / 2; ++i) all[i] = !promote || at == 0 ? sums[i] : all[i] + sums[i];
  }
  for (int i = 0; i < kN / 2; ++i)
    d[(result_row(threadIdx.x) + i / 2 % 2 * 8) * kN + i / 4 * 8 + result_col(threadIdx.x) + i % 2] = all[i];
}

enum class Kind { kNormal, kSubnormal, kCancelling, kGrowing };

struct Numbers {
  std::vector<uint8_t> codes;
  std::vector<float> numbers;
};
Numbers draw(Element e, int64_t rows, int64_t k, Kind kind, bool first, std::mt19937_64& random) {
  const ElementInfo& element = info(e);
  std::normal_distribution<double> normal;
  std::vector<double> v(static_cast<size_t>(rows * k));
  for (size_t i = 0; i < v.size(); ++i) {
    v[i] = normal(random) * (e == Element::i8 ? 40 : 1);
    if (kind == Kind::kSubnormal) v[i] = std::ldexp(v[i], element.min_exponent + static_cast<int>(random() % 4) - 2);
    if (kind == Kind::kSubnormal && !first && i % 3 == 0) v[i] = normal(random);
    if (kind == Kind::kCancelling && first && i % 2 == 1) v[i] = -v[i - 1] * (1 + 0.01 * normal(random));
    if (kind == Kind::kCancelling && !first && i % 2 == 1) v[i] = v[i - 1];
    if (kind == Kind::kGrowing) v[i] = std::fabs(v[i]);
  }
  Numbers n{std::vector<uint8_t>(static_cast<size_t>(packed_bytes(e, rows * k))), std::vector<float>(v.size())};
  element.encode_f64(v.data(), rows * k, n.codes.data(), 0);
  element.decode(n.codes.data(), 0, rows * k, n.numbers.data());
  return n;
}

struct OnDevice {
  explicit OnDevice(size_t bytes) { EXPECT_EQ(cudaMalloc(&data, bytes), cudaSuccess); }
  ~OnDevice() { cudaFree(data); }
  uint8_t* data = nullptr;
};

bool no_device() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return true;
  cudaDeviceProp properties;
  return cudaGetDeviceProperties(&properties, 0) != cudaSuccess || properties.major != 9;
}

int64_t compared = 0, equal = 0;

template <class Operand, int kN>
void compare(Element e, bool registers, bool promote, int64_t k, Kind kind) {
  std::mt19937_64 random(static_cast<uint64_t>(k * 1000 + kN * 4 + static_cast<int>(kind)));
  const Numbers a = draw(e, kRows, k, kind, true, random), b = draw(e, kN, k, kind, false, random);
  OnDevice da(a.codes.size()), db(b.codes.size()), dd(kRows * kN * 4);
  ASSERT_EQ(cudaMemcpy(da.data, a.codes.data(), a.codes.size(), cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(db.data, b.codes.data(), b.codes.size(), cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemset(dd.data, 0xff, kRows * kN * 4), cudaSuccess);
  const auto kernel = registers ? multiply<Operand, kN, true> : multiply<Operand, kN, false>;
  const int bytes = (kRows + kN) * 128 + 1024;
  ASSERT_EQ(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), cudaSuccess);
  kernel<<<1, 128, bytes>>>(da.data, db.data, reinterpret_cast<SumOf<Operand>*>(dd.data),
                            static_cast<int>(a.codes.size() / kRows), promote);
  std::vector<SumOf<Operand>> got(kRows * kN);
  ASSERT_EQ(cudaMemcpy(got.data(), dd.data, got.size() * 4, cudaMemcpyDeviceToHost), cudaSuccess)
      << cudaGetErrorString(cudaGetLastError());
  const TensorCore* core = e == Element::i8 ? nullptr : e == Element::e4m3 ? &kWgmmaE4m3 : &kWgmmaHalf;
  std::vector<float> want(got.size());
  const int least = info(e).min_exponent, per_block = 128 * 8 / info(e).bits;
  emulate_sums({core, promote ? per_block : 0}, {a.numbers.data(), least}, {b.numbers.data(), least}, want.data(),
               kRows, kN, k);
  int64_t different = 0;
  for (size_t i = 0; i < got.size(); ++i) different += !(static_cast<float>(got[i]) == want[i]);
  compared += static_cast<int64_t>(got.size()), equal += static_cast<int64_t>(got.size()) - different;
  EXPECT_EQ(different, 0) << info(e).name << " n " << kN << " k " << k << (registers ? " registers" : " shared")
                          << (promote ? " promoted" : "") << " kind " << static_cast<int>(kind);
}

template <class Operand, int... kN>
void compare_all(Element e) {
  for (const bool registers : {false, true}) {
    for (const Kind kind : {Kind::kNormal, Kind::kSubnormal, Kind::kCancelling, Kind::kGrowing}) {
      (compare<Operand, kN>(e, registers, false, kN % 64 == 0 ? 768 : 64, kind), ...);
      for (const int64_t k : {64, 208, 768, 3072, 16384}) {
        compare<Operand, 64>(e, registers, false, k, kind);
        if (e == Element::e4m3) compare<Operand, 128>(e, registers, true, k, kind);
      }
    }
  }
}
#define TS_WIDTHS 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256

TEST(Products, sm90_e4m3) {
  if (no_device()) GTEST_SKIP() << "no Hopper GPU here";
  compare_all<__nv_fp8_e4m3, TS_WIDTHS>(Element::e4m3);
}
TEST(Products, sm90_f16) {
  if (no_device()) GTEST_SKIP() << "no Hopper GPU here";
  compare_all<__half, TS_WIDTHS>(Element::f16);
}
TEST(Products, sm90_bf16) {
  if (no_device()) GTEST_SKIP() << "no Hopper GPU here";
  compare_all<__nv_bfloat16, TS_WIDTHS>(Element::bf16);
}
TEST(Products, sm90_int8) {
  if (no_device()) GTEST_SKIP() << "no Hopper GPU here";
  compare_all<int8_t, TS_WIDTHS>(Element::i8);
}

// The emulation in integers on CUDA cores gives the host's bits.
TEST(EmulatedSums, cuda_cores) {
  if (no_device()) GTEST_SKIP() << "no Hopper GPU here";
  for (const Element e : {Element::e4m3, Element::f16, Element::bf16}) {
    const TensorCore* core = e == Element::e4m3 ? &kWgmmaE4m3 : &kWgmmaHalf;
    for (const Kind kind : {Kind::kNormal, Kind::kSubnormal, Kind::kCancelling, Kind::kGrowing}) {
      for (const auto& [promote, slices] :
           {std::pair{0, std::vector<int64_t>{}}, {128, {}}, {0, {0, 128, 384}}, {128, {0, 192}}}) {
        std::mt19937_64 random(7);
        const int64_t m = 70, n = 50, k = 784;
        const Numbers a = draw(e, m, k, kind, true, random), b = draw(e, n, k, kind, false, random);
        std::vector<float> here(static_cast<size_t>(m * n)), there(here.size(), NAN);
        const int least = info(e).min_exponent;
        const SumOrder order{core, promote, slices};
        emulate_sums(order, {a.numbers.data(), least}, {b.numbers.data(), least}, here.data(), m, n, k);
        ASSERT_TRUE(
            emulate_sums_on_device(order, {a.numbers.data(), least}, {b.numbers.data(), least}, there.data(), m, n, k));
        EXPECT_EQ(here, there) << info(e).name << " kind " << static_cast<int>(kind) << " promote " << promote
                               << " slices " << slices.size();
      }
    }
  }
}

TEST(Products, sm90_share_of_equal_sums) {
  if (no_device()) GTEST_SKIP() << "no Hopper GPU here";
  std::printf("%lld of %lld sums are equal to the last bit\n", static_cast<long long>(equal),
              static_cast<long long>(compared));
  EXPECT_EQ(equal, compared);
}

}  // namespace
}  // namespace tessera
