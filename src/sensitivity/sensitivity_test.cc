// SPDX-License-Identifier: Apache-2.0
#include "sensitivity/sensitivity.h"

#include <gtest/gtest.h>

#include <random>

#include "calibrate/calibrate.h"
#include "ir/text.h"
#include "sensitivity/auto_precision.h"
#include "testing/two_mlps.h"

namespace tessera {
namespace {

class SensitivityTest : public testing::Test {
 protected:
  void SetUp() override {
    auto parsed = parse_graph(kTwoMlps);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    graph_ = std::move(parsed).value();
    auto ranges = calibrate(graph_, {});  // seeded random inputs
    ASSERT_TRUE(ranges.ok()) << ranges.status().message();
    ranges_ = std::move(ranges).value();
    auto samples = samples_of(graph_, {.samples = 6});
    ASSERT_TRUE(samples.ok()) << samples.status().message();
    auto trials = Trials::make(graph_, std::move(samples->samples));
    ASSERT_TRUE(trials.ok()) << trials.status().message();
    trials_.emplace(std::move(trials).value());
  }
  QuantizeOptions types(const char* precision) const {
    QuantizeOptions t;
    t.precision = precision;
    t.ranges = &ranges_;
    return t;
  }
  Graph graph_;
  Ranges ranges_;
  std::optional<Trials> trials_;
};

TEST_F(SensitivityTest, EachLayerCostsMoreThanNoneAndLessThanAll) {
  for (const char* precision : {"fp8", "nvfp4"}) {
    SCOPED_TRACE(precision);
    const auto s = measure_sensitivity(*trials_, {.types = types(precision)});
    ASSERT_TRUE(s.ok()) << s.status().message();
    ASSERT_EQ(s->layers.size(), 4u);
    EXPECT_EQ(s->samples, 6);
    EXPECT_LT(s->carrier.relative_l2, s->all.relative_l2);
    for (const LayerCost& l : s->layers) {
      EXPECT_EQ(l.refused, "");
      EXPECT_GT(l.alone.relative_l2, s->carrier.relative_l2) << l.layer.name;
      EXPECT_LT(l.alone.relative_l2, s->all.relative_l2) << l.layer.name;
      EXPECT_NE(l.without.relative_l2, s->all.relative_l2) << l.layer.name;
      EXPECT_EQ(l.layer.weights, 64 * 32);
    }
    for (size_t i = 1; i < 4; ++i) EXPECT_GE(s->layers[i - 1].alone.relative_l2, s->layers[i].alone.relative_l2);
  }
  EXPECT_EQ(measure_sensitivity(*trials_, {.types = types("fp16")}).status().code(), Code::kUsage);
}

TEST_F(SensitivityTest, AutoReachesWhatIsAskedAndNoMore) {
  AutoOptions options{.types = types("")};
  const auto chosen = [&](double cosine) {
    options.min_cosine = cosine;
    auto c = choose_by_cosine(*trials_, options);
    EXPECT_TRUE(c.ok()) << c.status().message();
    return std::move(c).value();
  };
  const auto carrier = trials_->measure(types("fp16"));
  ASSERT_TRUE(carrier.ok());
  const AutoChoice cheap = chosen(0.5);
  const double high = cheap.reached.cosine_mean + 0.95 * (carrier->cosine_mean - cheap.reached.cosine_mean);
  ASSERT_GT(high, cheap.reached.cosine_mean);
  const AutoChoice most = chosen(high);
  EXPECT_EQ(cheap.allow.size(), 4u);
  for (const Allowance& a : cheap.allow) EXPECT_EQ(a.precision, "nvfp4");
  EXPECT_GE(most.reached.cosine_mean, high);
  EXPECT_GT(most.bytes, cheap.bytes);
  // Between the two: some layers move, not all of them, and what is said is what a run of the choice gives.
  const double middle = (cheap.reached.cosine_mean + high) / 2;
  const AutoChoice some = chosen(middle);
  EXPECT_GE(some.reached.cosine_mean, middle);
  EXPECT_GT(some.bytes, cheap.bytes);
  EXPECT_LE(some.bytes, most.bytes);
  QuantizeOptions again = types(some.base.c_str());
  again.allow = some.allow;
  const auto measured = trials_->measure(again);
  ASSERT_TRUE(measured.ok());
  EXPECT_EQ(measured->cosine_mean, some.reached.cosine_mean);
  options.min_cosine = 1;
  EXPECT_EQ(choose_by_cosine(*trials_, options).status().code(), Code::kRefused);
  // What the user allows goes before.
  options.types.allow = {{"b.fc2", "fp8"}};
  const AutoChoice pinned = chosen(0.5);
  again.allow = pinned.allow;
  again.allow.push_back({"b.fc2", "fp8"});
  const auto with_pin = trials_->measure(again);
  ASSERT_TRUE(with_pin.ok());
  EXPECT_EQ(with_pin->cosine_mean, pinned.reached.cosine_mean);
  EXPECT_EQ(pinned.layers.size(), 3u) << "what is allowed is not chosen";
  for (const AutoLayer& l : pinned.layers) EXPECT_NE(l.layer.name, "b.fc2");
  EXPECT_NE(pinned.sentence.find("3 nvfp4, 1 as --allow says;"), std::string::npos) << pinned.sentence;
  options.types.allow = {{"*", "fp16"}};
  EXPECT_EQ(choose_by_cosine(*trials_, options).status().code(), Code::kUsage);
}

}  // namespace
}  // namespace tessera
