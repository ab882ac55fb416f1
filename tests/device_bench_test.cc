// SPDX-License-Identifier: Apache-2.0
// What the GPU benches rest on and can be seen without one: a few rows of a large problem are a problem of their own
// with the same results.
#include "testing/device_bench.h"

#include <cmath>

#include "op/reference.h"
#include "ops/ops.h"
#include "runtime/time_kernel.h"

namespace tessera {
namespace {

// The whole problem by the reference: codes of its result.
Buffer run_whole(const Problem& p, const ProblemBytes& bytes) {
  const auto at = [](const Bytes& b) { return b.empty() ? nullptr : const_cast<uint8_t*>(b.data()); };
  std::vector<TensorView> in(p.in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    if (p.in[i].present)
      in[i] = {.desc = &p.in[i],
               .data = at(bytes.in[i].data),
               .scale = at(bytes.in[i].scale),
               .scale2 = at(bytes.in[i].scale2)};
  }
  Buffer y(static_cast<size_t>(packed_bytes(p.out[0].type.element, elements(p.out[0].shape))));
  const TensorView out{
      .desc = &p.out[0], .data = y.data(), .scale = at(bytes.out[0].scale), .scale2 = at(bytes.out[0].scale2)};
  EXPECT_TRUE(run_reference(*find_op(p.op), p, in, {&out, 1}).ok());
  return y;
}

void expect_rows_of_the_whole(const Problem& p, double amax) {
  const ProblemBytes bytes = random_bytes(p, 3, amax);
  Buffer y = run_whole(p, bytes);
  const Case few = sampled_case(p, bytes);
  EXPECT_LT(elements(few.problem.out[0].shape), elements(p.out[0].shape));
  const Judge judge = judge_of(*reference_variant(*find_op(p.op)), few);
  const auto share = [&] {
    const HostTensor rows = sampled_result(p, bytes, y);
    return judge.of({{rows.view()}}).share;
  };
  EXPECT_LE(share(), 1.0) << few.text();
  // Numbers are spread over the result's range, or a wrong kernel would pass.
  double largest = 0;
  for (double v : few.exact[0].v) largest = std::max(largest, std::fabs(v));
  EXPECT_GT(largest, amax / 16) << few.text();
  for (size_t i = 0; i < y.size(); ++i) y.data()[i] ^= 0x41;
  EXPECT_GT(share(), 1.0) << few.text();
}

TEST(DeviceBench, RowsOfALinearLayerWithItsProgram) {
  Program then;
  then.steps = {{.kind = StepKind::bias, .operand = 2},
                {.kind = StepKind::act, .fn = Unary::gelu_erf},
                {.kind = StepKind::residual, .operand = 3}};
  expect_rows_of_the_whole(
      make_problem("matmul",
                   {dense_operand({300, 64}, kE4m3PerTensor), dense_operand({48, 64}, kE4m3PerChannel, true),
                    dense_operand({48}, Element::f16, true), dense_operand({300, 48}, Element::f16)},
                   {}, then, Element::f16),
      32);
  then.steps = {{.kind = StepKind::quantize}};
  expect_rows_of_the_whole(
      make_problem("matmul", {dense_operand({300, 64}, kInt8PerTensor), dense_operand({48, 64}, kInt8PerChannel, true)},
                   {}, then, kInt8PerTensor),
      32);
}

TEST(DeviceBench, QueriesOfTheLastEntryOfAStridedAttention) {
  const auto packed = [](const QuantType& t) {
    Operand o = dense_operand({3, 150, 4, 24}, t);
    o.strides = {150 * 12 * 32, 12 * 32, 32, 1};
    return o;
  };
  Attrs attrs = {{"scale", 1 / std::sqrt(24.0)}};
  const Operand h = packed(Element::f16);
  expect_rows_of_the_whole(make_problem("attention", {h, h, h}, attrs), 1);
  attrs.set("p", to_string(kE4m3PerTensor));
  const Operand e = packed(kE4m3PerTensor);
  expect_rows_of_the_whole(make_problem("attention", {e, e, e}, attrs, {}, Element::f16), 1);
}

TEST(DeviceBench, ArgumentsOfTheGpuAreTakenOut) {
  std::string words[] = {"bench", "--gpu=out.json", "--benchmark_filter=x", "--gpu_filter=b64"};
  char* argv[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data()};
  int argc = 4;
  const DeviceBench b = device_bench_arguments(argc, argv);
  EXPECT_TRUE(b.wanted);
  EXPECT_EQ(b.file, "out.json");
  EXPECT_EQ(b.filter, "b64");
  ASSERT_EQ(argc, 2);
  EXPECT_STREQ(argv[1], "--benchmark_filter=x");
}

TEST(DeviceBench, RooflineIsTheLargerOfProductsAndBytes) {
  EXPECT_NEAR(roofline_seconds("NVIDIA H200", Element::f16, 989.4e12, 1), 1, 1e-9);
  EXPECT_NEAR(roofline_seconds("NVIDIA H200", Element::e4m3, 989.4e12, 1), 0.5, 1e-3);
  EXPECT_NEAR(roofline_seconds("NVIDIA H200", Element::e4m3, 1, 4.8e12), 1, 1e-9);
  EXPECT_EQ(roofline_seconds("another", Element::e4m3, 1, 1), 0);
}

}  // namespace
}  // namespace tessera
