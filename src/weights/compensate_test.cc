// SPDX-License-Identifier: Apache-2.0
// Pruning and rounding with compensation against plain ones, on inputs whose channels depend on each other: the
// weighted error goes down, masks are valid, and what codes decode to is what was measured.
#include "weights/compensate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "precision/layer_weights.h"
#include "precision/migrate.h"
#include "types/sparse24.h"
#include "weights/clip_weights.h"
#include "weights/sparsify.h"

namespace tessera {
namespace {

std::vector<float> random_numbers(int64_t n, uint64_t seed) {
  std::mt19937_64 bits(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<size_t>(n));
  for (float& x : out) x = normal(bits);
  return out;
}

// Rows of x = z * mix: k channels from k / 2 + 1 sources with strengths that differ, a little noise, one silent
// channel.
InputMoments correlated(int64_t k, int64_t rows, uint64_t seed) {
  const int64_t sources = k / 2 + 1;
  const std::vector<float> mix = random_numbers(sources * k, seed), z = random_numbers(rows * sources, seed + 1),
                           noise = random_numbers(rows * k, seed + 2);
  InputMoments m{.rows = rows, .cols = k};
  m.xtx.assign(static_cast<size_t>(k * k), 0.0f);
  std::vector<double> sum(m.xtx.size(), 0.0), x(static_cast<size_t>(k));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < k; ++c) {
      double v = 0.1 * noise[static_cast<size_t>(r * k + c)];
      for (int64_t s = 0; s < sources; ++s)
        v += z[static_cast<size_t>(r * sources + s)] * mix[static_cast<size_t>(s * k + c)] /
             (1.0 + 0.2 * static_cast<double>(s));
      x[static_cast<size_t>(c)] = c == 5 ? 0.0 : v;
    }
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t j = 0; j < k; ++j)
        sum[static_cast<size_t>(i * k + j)] += x[static_cast<size_t>(i)] * x[static_cast<size_t>(j)];
    }
  }
  for (size_t i = 0; i < sum.size(); ++i) m.xtx[i] = static_cast<float>(sum[i]);
  return m;
}

Hessian hessian_of(const InputMoments& m) {
  auto h = make_hessian(m, 0.01, /*factored=*/true);
  EXPECT_TRUE(h.ok()) << h.status().message();
  return std::move(h).value();
}

double error_of(const Hessian& h, const std::vector<float>& from, const std::vector<float>& to) {
  std::vector<float> e(from.size());
  for (size_t i = 0; i < e.size(); ++i) e[i] = to[i] - from[i];
  return error_under(h, e.data(), static_cast<int64_t>(e.size()) / h.size());
}

// Plain double loops.
double slow_error(const Hessian& h, const std::vector<float>& from, const std::vector<float>& to) {
  const int64_t k = h.size();
  double sum = 0;
  for (size_t row = 0; row < from.size(); row += static_cast<size_t>(k)) {
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t j = 0; j < k; ++j) {
        const size_t a = row + static_cast<size_t>(i), b = row + static_cast<size_t>(j);
        sum += (static_cast<double>(to[a]) - from[a]) * h.h.at(i, j) * (static_cast<double>(to[b]) - from[b]);
      }
    }
  }
  return sum;
}

class Sizes : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(K, Sizes, ::testing::Values(6, 16, 71, 128, 138, 200));

TEST_P(Sizes, FactorIsTheInversesRoot) {
  const int64_t k = GetParam();
  const Hessian h = hessian_of(correlated(k, 3 * k, 1));
  for (int64_t i = 0; i < k; ++i) {  // (U H) U^T = I
    std::vector<double> uh(static_cast<size_t>(k), 0.0);
    for (int64_t m = i; m < k; ++m) {
      for (int64_t j = 0; j < k; ++j) uh[static_cast<size_t>(j)] += static_cast<double>(h.u.at(i, m)) * h.h.at(m, j);
    }
    for (int64_t j = 0; j < k; ++j) {
      double sum = 0, size = 0;
      for (int64_t m = j; m < k; ++m) {
        sum += uh[static_cast<size_t>(m)] * h.u.at(j, m);
        size += std::fabs(uh[static_cast<size_t>(m)] * h.u.at(j, m));
      }
      // U and H are rounded to f32, each product of three numbers carries three roundings.
      double terms = 0;
      for (int64_t m = i; m < k; ++m) {
        for (int64_t l = j; l < k; ++l)
          terms += std::fabs(static_cast<double>(h.u.at(i, m)) * h.h.at(m, l) * h.u.at(j, l));
      }
      EXPECT_NEAR(sum, i == j ? 1 : 0, 3 * 0x1p-24 * terms + 1e-9) << i << "," << j << " " << size;
    }
    for (int64_t j = 0; j < i; ++j) EXPECT_EQ(h.u.at(i, j), 0);
  }
}

TEST_P(Sizes, ErrorUnderIsTheQuadraticForm) {
  const int64_t k = GetParam();
  const Hessian h = hessian_of(correlated(k, 2 * k, 3));
  const std::vector<float> w = random_numbers(53 * k, 4), zero(w.size(), 0.0f);
  const double slow = slow_error(h, zero, w);
  EXPECT_NEAR(error_of(h, zero, w), slow, 1e-4 * slow);
}

TEST_P(Sizes, CompensatedPruningLosesLess) {
  const int64_t k = GetParam(), rows = 59;
  const Hessian h = hessian_of(correlated(k, 3 * k, 5));
  const std::vector<float> w = random_numbers(rows * k, 6);
  for (const SparsityPattern pattern : {SparsityPattern::k24, SparsityPattern::k48Pairs}) {
    std::vector<float> plain = w;
    prune_by_magnitude(pattern, plain.data(), rows, k);
    EXPECT_TRUE(compress24(Element::f32, plain.data(), rows, k).ok());
    const double by_magnitude = slow_error(h, w, plain);
    double last = by_magnitude;
    for (int sweeps : {0, 1, 2, 5, 20}) {
      const Compensated made = compensate(h, {.w = w.data(), .rows = rows, .pattern = pattern, .sweeps = sweeps});
      const auto packed = compress24(Element::f32, made.w.data(), rows, k);
      EXPECT_TRUE(packed.ok()) << packed.status().message();
      for (size_t i = 0; i < w.size(); ++i) {
        if (made.kept[i] == 0) {
          EXPECT_EQ(made.w[i], 0);
        }
      }
      if (pattern == SparsityPattern::k48Pairs) {
        for (int64_t i = 0; i < rows * k; ++i) {
          const int64_t c = i % k, pair = c / 2 * 2;
          if (pair + 1 == k) continue;
          EXPECT_EQ(made.kept[static_cast<size_t>(i - c + pair)], made.kept[static_cast<size_t>(i - c + pair + 1)]);
        }
      }
      const double now = slow_error(h, w, made.w);
      EXPECT_LT(now, last * (sweeps == 0 ? 1 : 1 + 1e-5)) << "sweeps " << sweeps;
      last = now;
    }
    EXPECT_LT(last, 0.8 * by_magnitude);
  }
}

TEST_P(Sizes, CompensatedRoundingLosesLessAndHandsItsCodesOn) {
  const int64_t k = GetParam(), rows = 50;
  const InputMoments moments = correlated(k, 3 * k, 7);
  const Hessian h = hessian_of(moments);
  const std::vector<float> w = random_numbers(rows * k, 8);
  for (const QuantType& type :
       {kE4m3PerTensor, kE4m3PerChannel, kMxfp8, kNvfp4, kNvfp4AsE4m3, *parse_quant_type("i8:channel(f32)")}) {
    SCOPED_TRACE(to_string(type));
    auto grid = amax_grid(type, w.data(), rows, k);
    ASSERT_TRUE(grid.ok()) << grid.status().message();
    std::vector<float> decoded(w.size()), plain(w.size());
    grid->round_all(w.data(), decoded.data(), plain.data());
    const double rounded = slow_error(h, w, plain);
    double last = rounded;
    for (int sweeps : {0, 1, 4}) {
      const Compensated made = compensate(h, {.w = w.data(), .rows = rows, .grid = &*grid, .sweeps = sweeps});
      const double now = slow_error(h, w, made.w);
      EXPECT_LE(now, last * (1 + 1e-5)) << "sweeps " << sweeps;
      last = now;
      Graph g;
      const ValueId id = add_weight(g, "w", {rows, k}, type, grid->encode(made.decoded.data()));
      EXPECT_EQ(weight_numbers(g, id), made.w) << "codes must decode to what was measured";
    }
    EXPECT_LT(last, 0.9 * rounded);
    // Together with a mask.
    const Compensated sparse = compensate(h, {.w = w.data(), .rows = rows, .pattern = SparsityPattern::k24});
    auto fine = clip_weights(type, sparse.w.data(), rows, k, {});
    ASSERT_TRUE(fine.ok());
    const Compensated both =
        compensate(h, {.w = w.data(), .rows = rows, .kept = &sparse.kept, .start = sparse.w.data(), .grid = &*fine});
    EXPECT_TRUE(compress24(Element::f32, both.w.data(), rows, k).ok());
    Graph g;
    const ValueId id = add_weight(g, "w", {rows, k}, type, fine->encode(both.decoded.data()));
    EXPECT_EQ(weight_numbers(g, id), both.w);
    std::vector<float> naive(w.size());
    fine->round_all(sparse.w.data(), decoded.data(), naive.data());
    // At 8 bits nearly all of the error is the pruning's, which both share.
    EXPECT_LT(slow_error(h, w, both.w), slow_error(h, w, naive) * (info(type.element).bits < 8 ? 1 : 1 + 1e-4));
  }
}

TEST_P(Sizes, SearchedScalesAreNeverWorse) {
  const int64_t k = GetParam(), rows = 40;
  std::vector<float> w = random_numbers(rows * k, 9), importance = random_numbers(k, 10);
  for (float& x : importance) x = x * x;
  w[3] = 9;  // one large number, which clipping gives up for its neighbours
  for (const QuantType& type :
       {kE4m3PerTensor, kE4m3PerChannel, kMxfp8, kNvfp4, kNvfp4AsE4m3, *parse_quant_type("i8:channel(f32)")}) {
    SCOPED_TRACE(to_string(type));
    const auto group_errors = [&](const WeightGrid& grid) {
      std::vector<float> decoded(w.size()), number(w.size());
      grid.round_all(w.data(), decoded.data(), number.data());
      std::vector<double> error(static_cast<size_t>(scale_count(type.scale, rows, k)), 0.0);
      for (int64_t i = 0; i < rows * k; ++i) {
        const double off = static_cast<double>(number[static_cast<size_t>(i)]) - w[static_cast<size_t>(i)];
        error[static_cast<size_t>(scale_index(type.scale, i / k, i % k, k))] +=
            importance[static_cast<size_t>(i % k)] * off * off;
      }
      return error;
    };
    const auto plain = amax_grid(type, w.data(), rows, k), searched = clip_weights(type, w.data(), rows, k, importance);
    ASSERT_TRUE(plain.ok() && searched.ok());
    const std::vector<double> before = group_errors(*plain), after = group_errors(*searched);
    double sum_before = 0, sum_after = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_LE(after[i], before[i]) << "group " << i;
      sum_before += before[i], sum_after += after[i];
    }
    if (type.element == Element::e2m1) {
      EXPECT_LT(sum_after, 0.95 * sum_before);
    }
  }
}

TEST(Compensate, ThreadsAndCallsDoNotChangeBits) {
  const int64_t k = 138, rows = 131;
  const InputMoments m = correlated(k, 300, 11);
  const std::vector<float> w = random_numbers(rows * k, 12);
  const auto grid = amax_grid(kNvfp4, w.data(), rows, k);
  const Compensated a = compensate(hessian_of(m), {.w = w.data(), .rows = rows, .grid = &*grid});
  const Compensated b = compensate(hessian_of(m), {.w = w.data(), .rows = rows, .grid = &*grid});
  EXPECT_EQ(a.w, b.w);
  // A row does not depend on its neighbours, but for the tensor's scale, which is the same grid here.
  const Compensated first = compensate(hessian_of(m), {.w = w.data(), .rows = 7, .grid = &*grid});
  EXPECT_TRUE(std::equal(first.w.begin(), first.w.end(), a.w.begin()));
}

TEST(Hessian, RefusesWhatIsNotFinite) {
  InputMoments m = correlated(8, 20, 13);
  m.xtx[0] = NAN;
  EXPECT_FALSE(make_hessian(m, 0.01, true).ok());
  m.xtx.assign(64, 0.0f);  // an input of zeros is no reason to fail
  EXPECT_TRUE(make_hessian(m, 0.01, true).ok());
}

TEST(Migrate, AwqLowersTheErrorOfRoundedWeights) {
  const int64_t k = 64, rows = 96;
  InputMoments m = correlated(k, 300, 14);
  std::vector<float> sizes(static_cast<size_t>(k));
  for (size_t j = 0; j < sizes.size(); ++j) sizes[j] = j % 7 == 0 ? 0.05f : 1.0f;  // some channels are far larger
  m.amax.assign(sizes.size(), 1.0f), m.mean_abs.assign(sizes.size(), 1.0f);
  divide_moments(m, sizes);
  const std::vector<MigratedWeight> weights{{random_numbers(rows * k, 15), kNvfp4},
                                            {random_numbers(rows * k, 16), kMxfp8}};
  const Hessian h = hessian_of(m);
  const auto awq = awq_factors(m, h, weights);
  ASSERT_TRUE(awq.ok()) << awq.status().message();
  EXPECT_LT(awq->after, 0.8 * awq->before);
  // The error that it promises is that of the weights with these factors, rounded and divided again.
  double error = 0, all = 0;
  for (const auto& [w, type] : weights) {
    std::vector<float> scaled(w.size()), decoded(w.size()), zero(w.size(), 0.0f);
    for (size_t i = 0; i < w.size(); ++i) scaled[i] = w[i] * awq->factors[i % static_cast<size_t>(k)];
    const auto grid = amax_grid(type, scaled.data(), rows, k);
    grid->round_all(scaled.data(), decoded.data(), scaled.data());
    for (size_t i = 0; i < w.size(); ++i) scaled[i] /= awq->factors[i % static_cast<size_t>(k)];
    error += slow_error(h, w, scaled), all += slow_error(h, zero, w);
  }
  EXPECT_NEAR(awq->after, std::sqrt(error / all), 1e-3 * awq->after);
}

TEST(Sparsify, EqualMagnitudesKeepTheLowerPlaces) {
  std::vector<float> w{1, -1, 1, 1, 0, 2, -2, 2, 3, 1, -1, 3};
  prune_by_magnitude(SparsityPattern::k24, w.data(), 1, 12);
  EXPECT_EQ(w, (std::vector<float>{1, -1, 0, 0, 0, 2, -2, 0, 3, 0, 0, 3}));
  w = {1, -1, 1, 1, 0, 2, -2, 2, 3, 1, -1, 3, 1, 2, 4};
  prune_by_magnitude(SparsityPattern::k48Pairs, w.data(), 1, 15);
  EXPECT_EQ(w, (std::vector<float>{1, -1, 0, 0, 0, 0, -2, 2, 3, 1, 0, 0, 0, 0, 4}));
}

TEST(Sparsify, WordsAreChecked) {
  EXPECT_EQ(to_string(*parse_sparsity("2:4", "hessian")), "2:4 by hessian");
  EXPECT_EQ(to_string(*parse_sparsity("4:8", "magnitude")), "4:8 in pairs by magnitude");
  EXPECT_EQ(parse_sparsity("1:2", "hessian").status().code(), Code::kUsage);
  EXPECT_EQ(parse_sparsity("2:4", "luck").status().code(), Code::kUsage);
}

}  // namespace
}  // namespace tessera
