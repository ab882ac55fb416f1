// SPDX-License-Identifier: Apache-2.0
#include "traces/roofline.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

const Ceilings kMachine{
    .machine = "m", .measured = true, .bytes_per_s = 1e9, .flops_per_s = {{"fp16", 1e12}, {"fp8", 2e12}}};

KernelTime kernel(KernelClass c, const char* precision, double us, double flops, double bytes) {
  KernelTime k;
  k.kernel_class = c, k.precision = precision, k.us = us, k.flops = flops, k.bytes = bytes;
  return k;
}

TEST(Roofline, TheCeilingThatIsNearestBounds) {
  const Achieved products = achieved(kernel(KernelClass::kGemm, "fp16", 1000, 8e8, 1e5), kMachine);
  EXPECT_DOUBLE_EQ(*products.flops_per_s, 8e11);
  EXPECT_DOUBLE_EQ(*products.of_products, 0.8);
  EXPECT_DOUBLE_EQ(*products.of_memory, 0.1);
  EXPECT_EQ(*products.bound, Bound::kProducts);
  EXPECT_EQ(*achieved(kernel(KernelClass::kGemm, "fp16", 1000, 4e8, 9e5), kMachine).bound, Bound::kMemory);
  EXPECT_EQ(*achieved(kernel(KernelClass::kGemm, "fp8", 1000, 5e8, 1e5), kMachine).bound, Bound::kNeither)
      << "a quarter of what FP8 can do";
}

// Memory cannot bound what needs more than it can bring.
TEST(Roofline, BytesThatComeFasterThanMemoryBringsThemAreOfCaches) {
  const Achieved norm = achieved(kernel(KernelClass::kNorm, "fp16", 1000, 9e5, 2.5e6), kMachine);
  EXPECT_EQ(*norm.bound, Bound::kCaches);
  EXPECT_DOUBLE_EQ(norm.share_of_bound(), 2.5);
  EXPECT_STREQ(name_of(*norm.bound), "caches");
  const Achieved product = achieved(kernel(KernelClass::kGemm, "fp16", 1000, 4e8, 2.5e6), kMachine);
  EXPECT_EQ(*product.bound, Bound::kProducts) << "40 % of the rate, and memory is no limit";
  EXPECT_DOUBLE_EQ(product.share_of_bound(), 0.4);
  EXPECT_EQ(*achieved(kernel(KernelClass::kGemm, "fp16", 1000, 1e8, 2.5e6), kMachine).bound, Bound::kCaches);
  EXPECT_EQ(*achieved(kernel(KernelClass::kNorm, "fp16", 1000, 9e5, 1.04e6), kMachine).bound, Bound::kMemory)
      << "two measurements of one bandwidth differ by as much";
}

// What a norm computes does not run where products do.
TEST(Roofline, OthersAreHeldAgainstMemory) {
  const Achieved a = achieved(kernel(KernelClass::kNorm, "fp16", 1000, 9e8, 5e5), kMachine);
  EXPECT_FALSE(a.of_products);
  EXPECT_EQ(*a.bound, Bound::kMemory);
}

TEST(Roofline, WhatIsNotKnownIsNotSaid) {
  EXPECT_FALSE(achieved(kernel(KernelClass::kGemm, "fp16", 0, 1, 1), kMachine).bound);
  const Achieved bare = achieved(kernel(KernelClass::kGemm, "fp16", 10, 1e6, 1e3), Ceilings{});
  EXPECT_TRUE(bare.bytes_per_s && bare.flops_per_s);
  EXPECT_FALSE(bare.bound || bare.of_memory || bare.of_products);
  const Achieved fp32 = achieved(kernel(KernelClass::kGemm, "fp32", 1000, 1e9, 9e5), kMachine);
  EXPECT_FALSE(fp32.of_products);
  EXPECT_EQ(*fp32.bound, Bound::kMemory);
  EXPECT_FALSE(rate_of(kMachine, "fp4") || ridge_of(kMachine, "fp4"));
  EXPECT_DOUBLE_EQ(*ridge_of(kMachine, "fp8"), 2000);
}

// Flops count all weights, so that a sparse kernel may pass the dense ceiling; it has one of its own.
TEST(Roofline, SparseProductsAreHeldAgainstTheSparseRate) {
  Ceilings c{.machine = "a GPU", .measured = true, .bytes_per_s = 1e12, .flops_per_s = {{"fp8", 1e15}}};
  KernelTime k;
  k.kernel_class = KernelClass::kGemm, k.precision = "fp8", k.us = 100, k.flops = 1.5e11, k.bytes = 1e7;
  EXPECT_NEAR(*achieved(k, c).of_products, 1.5, 1e-9) << "taken for dense";
  k.sparsity = "2:4";
  EXPECT_EQ(rate_name(k), "fp8 2:4");
  EXPECT_NEAR(*achieved(k, c).of_products, 0.75, 1e-9) << "twice the dense rate, where none was measured";
  EXPECT_NEAR(*ridge_of(c, k), 2000, 1e-9);
  c.flops_per_s.push_back({"fp8 2:4", 1.6e15});
  EXPECT_NEAR(*achieved(k, c).of_products, 1.5 / 1.6, 1e-9);
  EXPECT_NEAR(*rate_of(c, k), 1.6e15, 1);
  k.precision = "int8";
  EXPECT_FALSE(achieved(k, c).of_products) << "no rate to make twice of";
}

}  // namespace
}  // namespace tessera
