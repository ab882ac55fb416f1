// SPDX-License-Identifier: Apache-2.0
#include "runtime/fit_lengths.h"

#include <gtest/gtest.h>

#include <numeric>

#include "runtime/batches.h"
#include "runtime/test_engine.h"

namespace tessera {
namespace {

// y = x for [batch, rows, 3], in plans of these rows.
Engine rows_engine(const std::vector<int64_t>& rows, const std::string& why) {
  Engine e;
  e.target = Arch::cpu;
  for (const int64_t n : rows) {
    for (const int64_t b : {1, 2}) {
      Plan p{.name = cat("rows", n, ".batch", b), .arch = Arch::cpu, .batch = b, .sizes = {{"rows", n}}};
      p.tensors = {test_tensor("x", {b, n, 3}, Storage::kInput, 0), test_tensor("y", {b, n, 3}, Storage::kOutput, 0)};
      p.inputs = {{"x", 0}};
      p.outputs = {{"y", 1}};
      p.steps.push_back({.layer = "copy", .op = "copy", .variant = "copy/cpu", .in = {0}, .out = {1}});
      e.plans.push_back(p);
    }
  }
  const LengthAxis x{.port = "x", .axis = 1, .per = {{"rows", 1}}}, y{.port = "y", .axis = 1, .per = {{"rows", 1}}};
  e.lengths = {.why_exact = {{"rows", why}}, .inputs = {x}, .outputs = {}};
  if (why.empty()) e.lengths.outputs = {y};
  return e;
}

std::string plan_for(const Engine& e, const Shape& x) {
  const auto fit = fit_lengths(e, "main", std::vector<Shape>{x});
  return fit.ok() ? fit->plans[0]->name : fit.status().message();
}

TEST(FitLengths, TheSmallestBucketThatHoldsThem) {
  const Engine e = rows_engine({9, 5, 2}, "");
  EXPECT_EQ(plan_for(e, {1, 2, 3}), "rows2.batch1");
  EXPECT_EQ(plan_for(e, {1, 3, 3}), "rows5.batch1");
  EXPECT_EQ(plan_for(e, {7, 5, 3}), "rows5.batch1");
  EXPECT_EQ(plan_for(e, {1, 9, 3}), "rows9.batch1");
  for (const int64_t n : {-1, 0, 1, 10})
    EXPECT_EQ(plan_for(e, {1, n, 3}), cat("array 'x' has ", n, " along axis 1 ('rows'); this engine takes 2 to 9"));
  EXPECT_EQ(plan_for(e, {1, 5, 4}), "array 'x' has shape [1,5,4]; wanted [samples,rows,3]");
  EXPECT_EQ(plan_for(e, {5, 3}), "array 'x' has shape [5,3]; wanted [samples,rows,3]");
}

TEST(FitLengths, ExactlyABucketWherePaddingIsNotAllowed) {
  const Engine e = rows_engine({9, 5, 2}, "zeros are numbers");
  EXPECT_EQ(plan_for(e, {1, 5, 3}), "rows5.batch1");
  EXPECT_EQ(plan_for(e, {1, 4, 3}),
            "array 'x' has 4 along axis 1 ('rows'); this engine takes exactly 2, 5 and 9, since "
            "zeros are numbers");
}

TEST(FitLengths, EverySampleComesBackWithItsOwnRows) {
  const Engine e = rows_engine({9, 5, 2}, "");
  BatchRunner runner(e);
  for (const int64_t n : {2, 3, 5, 8, 9}) {
    for (const int64_t samples : {1, 2, 5}) {
      const std::vector<float> x = test_input(static_cast<size_t>(samples * n * 3), static_cast<int>(n));
      std::vector<float> y(x.size() + 3, -1);
      const void* in[] = {x.data()};
      void* out[] = {y.data()};
      const auto fit = fit_lengths(e, "main", std::vector<Shape>{{samples, n, 3}});
      ASSERT_TRUE(fit.ok()) << fit.status().message();
      EXPECT_EQ(fit->outputs[0][1], n);
      ASSERT_TRUE(runner.run(*fit, samples, in, out).ok());
      EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin())) << n << " rows, " << samples << " samples";
      EXPECT_EQ(y[x.size()], -1) << "what was added is cut off";
    }
  }
}

TEST(FitLengths, TheFrontIsCopiedAxisByAxis) {
  std::vector<int32_t> from(2 * 3 * 4);
  std::iota(from.begin(), from.end(), 1);
  std::vector<int32_t> to(3 * 2 * 5, -1);
  copy_front({2, 3, 4}, from.data(), {3, 2, 5}, to.data(), 4);
  for (int a = 0; a < 3; ++a) {
    for (int b = 0; b < 2; ++b) {
      for (int c = 0; c < 5; ++c) {
        const int32_t want = a < 2 && c < 4 ? from[static_cast<size_t>((a * 3 + b) * 4 + c)] : 0;
        EXPECT_EQ(to[static_cast<size_t>((a * 2 + b) * 5 + c)], want) << a << " " << b << " " << c;
      }
    }
  }
  std::vector<int32_t> none(4, -1);
  copy_front({0, 3}, from.data(), {2, 2}, none.data(), 4);
  EXPECT_EQ(none, std::vector<int32_t>(4, 0));
  copy_front({}, from.data(), {}, to.data(), 4);
  EXPECT_EQ(to[0], 1);
}

}  // namespace
}  // namespace tessera
