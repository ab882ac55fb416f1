// SPDX-License-Identifier: Apache-2.0
#include "emulate/tensor_core.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "types/element.h"

namespace tessera {
namespace {

// Numbers of an element: of about `size`, with zeros and subnormals among them; kind 1: pairs nearly cancel, 2: all
// positive.
std::vector<float> draw(Element e, int64_t rows, int64_t k, int kind, double size, std::mt19937_64& random) {
  std::normal_distribution<double> normal(0, size);
  std::vector<double> v(static_cast<size_t>(rows * k));
  for (size_t i = 0; i < v.size(); ++i) {
    v[i] = normal(random);
    if (random() % 16 == 0) v[i] = 0;
    if (random() % 16 == 0) v[i] = std::ldexp(normal(random), info(e).min_exponent - 1);
    if (kind == 1 && i % 2 == 1) v[i] = -v[i - 1] * (1 + 0.01 * normal(random) / size);
    if (kind == 2) v[i] = std::fabs(v[i]);
  }
  std::vector<uint16_t> codes(v.size());
  std::vector<float> numbers(v.size());
  info(e).encode_f64(v.data(), static_cast<int64_t>(v.size()), codes.data(), 0);
  info(e).decode(codes.data(), 0, static_cast<int64_t>(v.size()), numbers.data());
  return numbers;
}

// The order said plainly, instruction by instruction.
float plainly(const SumOrder& order, const float* x, int least_x, const float* w, int least_w, int64_t k) {
  std::vector<int64_t> slices = order.slices.empty() ? std::vector<int64_t>{0} : order.slices;
  slices.push_back(k);
  float all = 0;
  for (size_t s = 0; s + 1 < slices.size(); ++s) {
    float acc = 0, promoted = 0;
    bool any = false;
    for (int64_t at = slices[s]; at < slices[s + 1]; at += order.core->products) {
      acc = fused_sum(*order.core, acc, {x + at, least_x}, {w + at, least_w},
                      std::min<int64_t>(order.core->products, slices[s + 1] - at));
      if (order.promote_every > 0 && (at - slices[s] + order.core->products) % order.promote_every == 0)
        promoted = any ? promoted + acc : acc, any = true, acc = 0;
    }
    const float slice = any ? promoted + acc : acc;
    all = s == 0 ? slice : all + slice;
  }
  return all;
}

TEST(TensorCore, OneInstructionTruncates) {
  std::vector<float> x(32, 0.0f), w(32, 0.0f);
  x[0] = 1, w[0] = 1, x[1] = 0x1p-6f, w[1] = 0x1p-7f;
  EXPECT_EQ(fused_sum(kWgmmaE4m3, 0, {x.data(), -6}, {w.data(), -6}, 32), 1 + 0x1p-13f);
  w[1] = 0x1p-8f;
  EXPECT_EQ(fused_sum(kWgmmaE4m3, 0, {x.data(), -6}, {w.data(), -6}, 32), 1.0f);
  EXPECT_EQ(fused_sum(kWgmmaHalf, 0, {x.data(), -14}, {w.data(), -14}, 16), 1 + 0x1p-14f);
  // Toward zero, of negative numbers too; an accumulator is a term like any other.
  EXPECT_EQ(fused_sum(kWgmmaE4m3, -1 - 0x1p-13f, {x.data(), -6}, {w.data(), -6}, 1), -0x1p-13f);
  EXPECT_EQ(fused_sum(kWgmmaE4m3, 1024, {x.data(), -6}, {w.data(), -6}, 32), 1025.0f);
  EXPECT_EQ(fused_sum(kWgmmaE4m3, 16384, {x.data(), -6}, {w.data(), -6}, 32), 16384.0f);  // 1 is below 2^14-13
  // A subnormal operand has its type's least exponent: 2^-9 * 2^-9 (e4m3) is aligned as 2^-12.
  std::vector<float> tiny(32, 0.0f);
  tiny[0] = 0x1p-9f;
  EXPECT_EQ(fused_sum(kWgmmaE4m3, 0x1p-25f, {tiny.data(), -6}, {tiny.data(), -6}, 32), 0x1p-18f + 0x1p-25f);
  EXPECT_EQ(fused_sum(kWgmmaE4m3, 0x1p-26f, {tiny.data(), -6}, {tiny.data(), -6}, 32), 0x1p-18f);
}

TEST(TensorCore, ManySumsAreThoseOfInstructions) {
  std::mt19937_64 random(1);
  const struct {
    Element element;
    const TensorCore* core;
  } kinds[] = {{Element::e4m3, &kWgmmaE4m3},
               {Element::f16, &kWgmmaHalf},
               {Element::bf16, &kWgmmaHalf},
               {Element::e5m2, &kWgmmaE4m3}};
  for (const auto& [element, core] : kinds) {
    for (const int kind : {0, 1, 2}) {
      for (const int64_t k : {1, 16, 31, 32, 33, 200, 784}) {
        for (const auto& [promote, slices] :
             {std::pair{0, std::vector<int64_t>{}}, {128, {}}, {0, {0, 64, 128}}, {128, {0, 96}}}) {
          if (!slices.empty() && slices.back() >= k) continue;
          const int64_t m = 5, n = 19;
          const double size = kind == 0 ? 1 : 30;
          const int least = info(element).min_exponent;
          const std::vector<float> x = draw(element, m, k, kind, size, random),
                                   w = draw(element, n, k, kind == 1 ? 0 : kind, 1, random);
          const SumOrder order{core, promote, slices};
          std::vector<float> sums(static_cast<size_t>(m * n), NAN);
          emulate_sums(order, {x.data(), least}, {w.data(), least}, sums.data(), m, n, k);
          for (int64_t i = 0; i < m * n; ++i) {
            const float want = plainly(order, x.data() + i / n * k, least, w.data() + i % n * k, least, k);
            ASSERT_EQ(sums[static_cast<size_t>(i)], want)
                << info(element).name << " kind " << kind << " k " << k << " promote " << promote << " at " << i;
          }
        }
      }
    }
  }
}

// Numbers that f32 cannot multiply take the slow way and are right all the same.
TEST(TensorCore, HugeAndTinyNumbers) {
  for (const double size : {0x1p-60, 0x1p-100, 0x1p61, 0x1p-40}) {
    std::mt19937_64 random(2);
    const int64_t m = 3, n = 17, k = 40;
    const std::vector<float> x = draw(Element::bf16, m, k, 0, size, random),
                             w = draw(Element::bf16, n, k, 0, size > 1 ? 1 : size, random);
    std::vector<float> sums(static_cast<size_t>(m * n), NAN);
    emulate_sums({&kWgmmaHalf}, {x.data(), -126}, {w.data(), -126}, sums.data(), m, n, k);
    for (int64_t i = 0; i < m * n; ++i)
      ASSERT_EQ(sums[static_cast<size_t>(i)],
                plainly({&kWgmmaHalf}, x.data() + i / n * k, -126, w.data() + i % n * k, -126, k))
          << size;
  }
}

TEST(TensorCore, WhatIsNotFiniteStaysSo) {
  std::vector<float> x(32, 1.0f), w(64, 1.0f);
  x[3] = NAN;
  float sums[2];
  emulate_sums({&kWgmmaE4m3}, {x.data(), -6}, {w.data(), -6}, sums, 1, 2, 32);
  EXPECT_TRUE(std::isnan(sums[0]) && std::isnan(sums[1]));
  x[3] = 1, w[32] = INFINITY;
  emulate_sums({&kWgmmaHalf}, {x.data(), -14}, {w.data(), -14}, sums, 1, 2, 32);
  EXPECT_EQ(sums[0], 32.0f);
  EXPECT_EQ(sums[1], INFINITY);
}

TEST(TensorCore, IntegersAreExact) {
  std::vector<float> x(64, 127.0f), w(64, -127.0f);
  float sum = 0;
  emulate_sums({}, {x.data(), 0}, {w.data(), 0}, &sum, 1, 1, 64);
  EXPECT_EQ(sum, -64.0f * 127 * 127);
}

// All-positive products are what fast accumulation loses most of; promotion keeps them.
TEST(TensorCore, PromotionKeepsGrowingSums) {
  std::mt19937_64 random(3);
  const int64_t k = 12288;
  const std::vector<float> x = draw(Element::e4m3, 1, k, 2, 1, random), w = draw(Element::e4m3, 1, k, 2, 1, random);
  double exact = 0;
  for (int64_t i = 0; i < k; ++i) exact += static_cast<double>(x[static_cast<size_t>(i)]) * w[static_cast<size_t>(i)];
  float fast = 0, promoted = 0;
  emulate_sums({&kWgmmaE4m3}, {x.data(), -6}, {w.data(), -6}, &fast, 1, 1, k);
  emulate_sums({&kWgmmaE4m3, 128}, {x.data(), -6}, {w.data(), -6}, &promoted, 1, 1, k);
  EXPECT_GT(1 - fast / exact, 0.01);
  EXPECT_LT(std::fabs(1 - promoted / exact), 2e-3);
}

}  // namespace
}  // namespace tessera
