// SPDX-License-Identifier: Apache-2.0
// Moments of a model that runs piece by piece, and the refinements that are made from them.
#include "calibrate/moments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "calibrate/refine.h"
#include "ir/text.h"
#include "ops/matmul/matmul.h"
#include "precision/roles.h"
#include "testing/run_graph.h"

namespace tessera {
namespace {

TEST(MomentSum, AgreesWithPlainSums) {
  for (const int64_t cols : {1, 6, 16, 37, 130}) {
    const int64_t rows = 901;
    std::mt19937_64 bits(static_cast<uint64_t>(cols));
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<size_t>(rows * cols));
    for (float& v : x) v = normal(bits);
    MomentSum sum(cols, true);
    sum.add(x.data(), 400);
    sum.add(x.data() + 400 * cols, rows - 400);
    const InputMoments m = std::move(sum).finish();
    ASSERT_EQ(m.rows, rows);
    for (int64_t i = 0; i < cols; ++i) {
      double mean = 0, amax = 0;
      for (int64_t r = 0; r < rows; ++r) {
        const double a = std::fabs(x[static_cast<size_t>(r * cols + i)]);
        mean += a / static_cast<double>(rows), amax = std::max(amax, a);
      }
      EXPECT_FLOAT_EQ(m.amax[static_cast<size_t>(i)], static_cast<float>(amax));
      EXPECT_NEAR(m.mean_abs[static_cast<size_t>(i)], mean, mean * static_cast<double>(rows) * 0x1p-24);
      for (int64_t j = 0; j < cols; ++j) {
        double product = 0, size = 0;
        for (int64_t r = 0; r < rows; ++r) {
          const double p =
              static_cast<double>(x[static_cast<size_t>(r * cols + i)]) * x[static_cast<size_t>(r * cols + j)];
          product += p, size += std::fabs(p);
        }
        EXPECT_NEAR(m.xtx[static_cast<size_t>(i * cols + j)], product, size * static_cast<double>(rows) * 0x1p-24)
            << i << "," << j;
      }
    }
  }
}

// Two blocks with attention over views of one matrix, a residual stream, and a layer that reads a few rows only.
constexpr const char* kModel = R"(graph model {
  in %image: f32[2,5,12]
  const %we: f32[16,12] = seed(1)
  const %g: f32[16] = seed(2)
  const %wq: f32[48,16] = seed(3)
  const %bq: f32[48] = seed(4)
  const %wp: f32[16,16] = seed(5)
  const %w1: f32[24,16] = seed(6)
  const %w2: f32[16,24] = seed(7)
  const %wh: f32[3,16] = seed(8)
  %e: f32[2,5,16] = matmul(%image, %we) @"embed"
  %n: f32[2,5,16] = norm(%e, %g) {eps=0.000001, kind="layer"} @"norm1"
  %qkv: f32[2,5,48] = matmul(%n, %wq, %bq) then bias(2) @"qkv"
  %q: f32[2,5,2,8] = view(%qkv) {offset=0, strides=[240,48,8,1]}
  %k: f32[2,5,2,8] = view(%qkv) {offset=16, strides=[240,48,8,1]}
  %v: f32[2,5,2,8] = view(%qkv) {offset=32, strides=[240,48,8,1]}
  %a: f32[2,5,2,8] = attention(%q, %k, %v) {scale=0.35} @"attn"
  %am: f32[2,5,16] = view(%a) {offset=0, strides=[80,16,1]}
  %r: f32[2,5,16] = matmul(%am, %wp, %e) then residual(2) @"proj"
  %m: f32[2,5,16] = norm(%r, %g) {eps=0.000001, kind="layer"} @"norm2"
  %h: f32[2,5,24] = matmul(%m, %w1) then act(gelu_erf) @"fc1"
  %s: f32[2,5,16] = matmul(%h, %w2, %r) then residual(2) @"fc2"
  %o: f32[2,5,16] = norm(%s, %g) {eps=0.000001, kind="layer"} @"norm3"
  %cls: f32[2,16] = view(%o) {offset=0, strides=[80,1]}
  %y: f32[2,3] = matmul(%cls, %wh) @"head"
  out %y
}
)";

Graph model() {
  auto g = parse_graph(kModel);
  EXPECT_TRUE(g.ok()) << g.status().message();
  return std::move(g).value();
}

Samples samples_of(int64_t count) {
  std::mt19937_64 bits(3);
  std::normal_distribution<float> normal;
  Buffer b(static_cast<size_t>(count * 60) * sizeof(float));
  for (int64_t i = 0; i < count * 60; ++i) reinterpret_cast<float*>(b.data())[i] = normal(bits);
  Samples s{.count = count, .names = {"image"}, .data = {}};
  s.data.push_back(Bytes::own(std::move(b)));
  return s;
}

size_t index_of(const Graph& g, const std::string& name) {
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    if (g.nodes[n].name == name) return n;
  }
  ADD_FAILURE() << name;
  return 0;
}

TEST(PiecewiseRun, SamplesThatFillABatchCountOnce) {
  const Graph g = model();  // runs of two samples
  const Samples samples = samples_of(3);
  const size_t n = index_of(g, "qkv");
  const auto of = [&](const Samples& some, int64_t most) {
    auto run = PiecewiseRun::start(g, some, most);
    EXPECT_TRUE(run.ok()) << run.status().message();
    EXPECT_EQ(run->samples(), std::min(some.count, most));
    EXPECT_TRUE(run->advance(g, n).ok());
    return run->moments(g, g.nodes[n].inputs[0], true).value();
  };
  const InputMoments all = of(samples, 3), two = of(samples.part(0, 2), 2), last = of(samples.part(2, 1), 1);
  EXPECT_EQ(two.rows, 2 * last.rows);
  EXPECT_EQ(all.rows, two.rows + last.rows);
  for (size_t i = 0; i < all.xtx.size(); ++i) {
    const float sum = two.xtx[i] + last.xtx[i];
    EXPECT_NEAR(all.xtx[i], sum, 1e-5f * (std::fabs(sum) + static_cast<float>(all.rows)));
  }
}

TEST(PiecewiseRun, PiecesSeeWhatTheWholeSees) {
  const Graph g = model();
  const Samples samples = samples_of(6);
  auto run = PiecewiseRun::start(g, samples, 100);
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(run->samples(), 6);
  for (const char* layer : {"qkv", "proj", "fc1", "fc2", "head"}) {
    const size_t n = index_of(g, layer);
    const Status s = run->advance(g, n);
    ASSERT_TRUE(s.ok()) << s.message();
    const ValueId x = g.nodes[n].inputs[0];
    const auto m = run->moments(g, x, true);
    ASSERT_TRUE(m.ok()) << m.status().message();
    // The same by the references, all nodes at once.
    Graph whole = model();
    whole.outputs = {x};
    std::vector<double> sum(m->xtx.size(), 0.0);
    int64_t rows = 0;
    for (int64_t first = 0; first < 6; first += 2) {
      const auto* from = reinterpret_cast<const float*>(samples.data[0].data()) + first * 60;
      const std::vector<testing::Numbers> in{testing::Numbers(from, from + 120)};
      const auto out = testing::run_graph(whole, in);
      ASSERT_TRUE(out.ok()) << out.status().message();
      const size_t k = static_cast<size_t>(m->cols);
      for (size_t r = 0; r < out->front().size() / k; ++r, ++rows) {
        for (size_t i = 0; i < k; ++i) {
          for (size_t j = 0; j < k; ++j) sum[i * k + j] += out->front()[r * k + i] * out->front()[r * k + j];
        }
      }
    }
    EXPECT_EQ(m->rows, rows);
    double off = 0, all = 0;
    for (size_t i = 0; i < sum.size(); ++i)
      off = std::max(off, std::fabs(sum[i] - m->xtx[i])), all = std::max(all, std::fabs(sum[i]));
    EXPECT_LT(off, 1e-4 * all) << layer;
  }
}

RefineOptions options_of(const Refinements& what, const QuantType& type) {
  return {.what = what, .type_of = [type](const Node& n) { return in_block(n) ? type : QuantType(Element::f32); }};
}

TEST(RefineModel, MigrationIsExactAndFindsAPlaceForEveryLayer) {
  for (const bool awq : {false, true}) {
    Graph g = model();
    const Samples samples = samples_of(8);
    const auto before = testing::run_graph(g, testing::random_inputs(g, 9));
    const auto done = refine_model(g, &samples, options_of({.smooth = !awq, .awq = awq}, kNvfp4));
    ASSERT_TRUE(done.ok()) << done.status().message();
    const std::vector<std::string> places{"into the gain of norm1", "into the rows of qkv", "into the gain of norm2",
                                          "into a scale after fc1"};
    ASSERT_EQ(done->notes.size(), places.size());
    for (size_t i = 0; i < places.size(); ++i) EXPECT_TRUE(done->notes[i].ends_with(places[i])) << done->notes[i];
    const auto after = testing::run_graph(g, testing::random_inputs(g, 9));
    ASSERT_TRUE(before.ok() && after.ok());
    // Factors and their inverses are rounded to f32: a few roundings per layer, far below what any wrong place would
    // do.
    EXPECT_LT(testing::relative_error(after->front(), before->front()), 1e-5);
    const Graph original = model();
    for (const char* layer : {"qkv", "proj", "fc1", "fc2"}) {
      const size_t n = index_of(g, layer);
      EXPECT_NE(g.numbers(g.nodes[n].inputs[1]), original.numbers(original.nodes[n].inputs[1])) << layer;
    }
  }
}

TEST(RefineModel, MagnitudeNeedsNoData) {
  Graph g = model();
  const auto done = refine_model(g, nullptr, options_of({.sparsity = *parse_sparsity("2:4", "magnitude")}, kNvfp4));
  ASSERT_TRUE(done.ok()) << done.status().message();
  EXPECT_EQ(done->layers, (std::vector<std::string>{"qkv", "proj", "fc1", "fc2"}));
  for (const Node& n : g.nodes) EXPECT_EQ(n.attrs.integer(kSparse24), is_linear(g, n) && in_block(n) ? 1 : 0) << n.name;
  Graph h = model();
  EXPECT_EQ(refine_model(h, nullptr, options_of({.clip = true}, kNvfp4)).status().code(), Code::kUsage);
}

TEST(RefineModel, HandsTypedWeightsOnAndCarriesThemOver) {
  Graph g = model();
  const Samples samples = samples_of(8);
  const Refinements what{
      .sparsity = *parse_sparsity("2:4", "hessian"), .smooth = true, .clip = true, .compensate = true};
  const auto done = refine_model(g, &samples, options_of(what, kNvfp4));
  ASSERT_TRUE(done.ok()) << done.status().message();
  for (const Node& n : g.nodes) {
    if (!is_linear(g, n) || !in_block(n)) continue;
    const Value& w = g.at(n.inputs[1]);
    EXPECT_EQ(w.type.quant, kNvfp4);
    EXPECT_TRUE(w.scale != kNoValue && w.scale2 != kNoValue);
  }
  Graph other = model();
  const Status moved = carry_over(g, *done, other);
  ASSERT_TRUE(moved.ok()) << moved.message();
  const auto a = testing::run_graph(g, testing::random_inputs(g, 9)),
             b = testing::run_graph(other, testing::random_inputs(g, 9));
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->front(), b->front());
  Graph missing = model();
  missing.nodes[index_of(missing, "fc1")].name = "other";
  EXPECT_FALSE(carry_over(g, *done, missing).ok());
  // What has scales already is somebody else's: nothing to do.
  const auto again = refine_model(g, &samples, options_of({.clip = true, .compensate = true}, kNvfp4));
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_TRUE(again->layers.empty());
}

}  // namespace
}  // namespace tessera
