// SPDX-License-Identifier: Apache-2.0
// approximate.h against the instructions themselves: tanh.approx.f16x2 of every number, the others over every 61st f32.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "archs/sm90/approximate.h"
#include "types/element.h"

namespace tessera {
namespace {

enum class Instruction { kTanh, kTanhHalf, kExp2, kReciprocal, kRsqrt };

__global__ void run(Instruction what, uint32_t first, uint32_t step, uint32_t count, uint32_t* results) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const uint32_t x = first + i * step;
  uint32_t y = 0;
  switch (what) {
    case Instruction::kTanh:
      asm("tanh.approx.f32 %0, %1;" : "=r"(y) : "r"(x));
      break;
    case Instruction::kTanhHalf:
      asm("tanh.approx.f16x2 %0, %1;" : "=r"(y) : "r"(x & 0xffff));
      break;
    case Instruction::kExp2:
      asm("ex2.approx.ftz.f32 %0, %1;" : "=r"(y) : "r"(x));
      break;
    case Instruction::kReciprocal:
      asm("rcp.approx.ftz.f32 %0, %1;" : "=r"(y) : "r"(x));
      break;
    case Instruction::kRsqrt:
      asm("rsqrt.approx.f32 %0, %1;" : "=r"(y) : "r"(x));
      break;
  }
  results[i] = y;
}

std::vector<uint32_t> results_of(Instruction what, uint32_t first, uint32_t step, uint32_t count) {
  uint32_t* device = nullptr;
  EXPECT_EQ(cudaMalloc(&device, count * sizeof(uint32_t)), cudaSuccess);
  run<<<(count + 255) / 256, 256>>>(what, first, step, count, device);
  std::vector<uint32_t> host(count);
  EXPECT_EQ(cudaMemcpy(host.data(), device, count * sizeof(uint32_t), cudaMemcpyDeviceToHost), cudaSuccess);
  cudaFree(device);
  return host;
}

bool no_device() {
  int devices = 0;
  cudaDeviceProp properties;
  return cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0 ||
         cudaGetDeviceProperties(&properties, 0) != cudaSuccess || properties.major != 9;
}

TEST(Approximate, sm90_tanh_of_every_half) {
  if (no_device()) GTEST_SKIP() << "no Hopper GPU here";
  const std::vector<uint32_t> got = results_of(Instruction::kTanhHalf, 0, 1, 65536);
  int different = 0;
  for (uint32_t code = 0; code < 65536; ++code) {
    const auto x = static_cast<uint16_t>(code), y = static_cast<uint16_t>(got[code] & 0xffff);
    double argument = 0, result = 0;
    info(Element::f16).decode_f64(&x, 0, 1, &argument);
    info(Element::f16).decode_f64(&y, 0, 1, &result);
    if (std::isfinite(argument)) different += sm90::tanh_half(argument) != result;
  }
  EXPECT_EQ(different, 0);
}

// The largest relative error over positive numbers from `low` to `high`.
double worst_of(Instruction what, float low, float high, double (*exact)(double)) {
  constexpr uint32_t kStep = 61;
  const auto first = std::bit_cast<uint32_t>(low);
  const uint32_t count = (std::bit_cast<uint32_t>(high) - first) / kStep;
  const std::vector<uint32_t> got = results_of(what, first, kStep, count);
  double worst = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const double want = exact(std::bit_cast<float>(first + i * kStep));
    worst = std::max(worst, std::fabs(std::bit_cast<float>(got[i]) - want) / want);
  }
  return worst;
}

TEST(Approximate, sm90_errors_are_as_stated) {
  if (no_device()) GTEST_SKIP() << "no Hopper GPU here";
  EXPECT_LE(worst_of(Instruction::kExp2, 0x1p-20f, 126.0f, [](double x) { return std::exp2(x); }), sm90::kExp2Error);
  EXPECT_LE(worst_of(Instruction::kReciprocal, 0x1p-100f, 0x1p100f, [](double x) { return 1 / x; }),
            sm90::kReciprocalError);
  EXPECT_LE(worst_of(Instruction::kRsqrt, 0x1p-100f, 0x1p100f, [](double x) { return 1 / std::sqrt(x); }),
            sm90::kRsqrtError);
  EXPECT_LE(worst_of(Instruction::kTanh, 0x1p-8f, 8.0f, [](double x) { return std::tanh(x); }), sm90::kTanhError);
  for (const float edge : {0x1p-20f, 0x1p-9f, 0x1.fffffep-9f}) {
    EXPECT_EQ(results_of(Instruction::kTanh, std::bit_cast<uint32_t>(edge), 1, 1)[0], std::bit_cast<uint32_t>(edge));
  }
  EXPECT_EQ(results_of(Instruction::kTanh, std::bit_cast<uint32_t>(8.0f), 1, 1)[0], std::bit_cast<uint32_t>(1.0f));
}

}  // namespace
}  // namespace tessera
