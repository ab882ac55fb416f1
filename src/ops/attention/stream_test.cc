// SPDX-License-Identifier: Apache-2.0
// Lengths around the blocks of the streaming kernels, heads of every padding, shared keys, masks and biases of every
// form; all variants that accept them.
#include <cmath>
#include <optional>

#include "ops/attention/attention.h"
#include "ops/ops.h"
#include "testing/variant_harness.h"

namespace tessera {
namespace {

const OpInfo& op() { return *find_op("attention"); }
const QuantType kF32 = Element::f32, kF16 = Element::f16, kBf16 = Element::bf16;

struct Form {
  int64_t batch, queries, keys, heads, kv_heads, size;
};
struct How {
  bool causal = false;
  std::optional<Shape> bias = {};
  QuantType bias_type = kF32;
  std::optional<QuantType> y = {};
  int64_t value_size = 0;  // 0: as the head's
  bool swapped = false;    // [batch, heads, tokens, size] in memory
  bool padded = true;      // FP8: heads start at multiples of 16 bytes
};

// Operands of type t; e4m3 asks for a rounded softmax too.
Problem problem(const Form& f, const QuantType& t, const How& how = {}) {
  const int64_t value_size = how.value_size > 0 ? how.value_size : f.size;
  const auto tensor = [&](int64_t tokens, int64_t heads, int64_t size) {
    const Shape shape{f.batch, tokens, heads, size};
    if (how.swapped) return swapped(shape, t, 1, 2);
    return gapped(shape, t, t.scaled() && how.padded ? (16 - size % 16) % 16 : 0);
  };
  std::vector<Operand> in = {tensor(f.queries, f.heads, f.size), tensor(f.keys, f.kv_heads, f.size),
                             tensor(f.keys, f.kv_heads, value_size)};
  if (how.bias) in.push_back(dense_operand(*how.bias, how.bias_type));
  Attrs attrs = {{"scale", 1 / std::sqrt(static_cast<double>(f.size))}, {"causal", int64_t{how.causal}}};
  if (t.scaled()) attrs.set("p", to_string(t));
  const QuantType y = how.y.value_or(t.scaled() ? kF16 : t);
  Program then;
  if (y.scaled()) then.steps.push_back({.kind = StepKind::quantize});
  return make_problem("attention", std::move(in), std::move(attrs), std::move(then), y);
}

std::vector<QuantType> operand_types() { return {kF16, kBf16, kE4m3PerTensor}; }

class AttentionStream : public ::testing::TestWithParam<const Variant*> {
 protected:
  void SetUp() override { TS_SKIP_WITHOUT_DEVICE(*GetParam()); }
  void run(const std::vector<Problem>& list, Values values = Values::kRandom, Adjust adjust = nullptr) {
    uint64_t seed = 1;
    for (const Problem& p : list) {
      Problem here = p;
      for (const std::string& config :
           GetParam()->accepts(p) ? configs_of(*GetParam(), p) : std::vector<std::string>{""}) {
        here.config = config;
        check_variant(*GetParam(), here, seed, values, adjust);
      }
      ++seed;
    }
  }
};

TEST_P(AttentionStream, AgreesAtEveryLength) {
  std::vector<Problem> list;
  for (const QuantType& t : operand_types()) {
    for (const int64_t tokens : {1, 63, 64, 65, 127, 128, 129, 300}) {
      list.push_back(problem({1, tokens, tokens, 2, 2, 64}, t));
      list.push_back(problem({1, 20, tokens, 1, 1, 128}, t));
      list.push_back(problem({1, tokens, 40, 1, 1, 256}, t));
    }
    list.push_back(problem({1, 30, 712, 2, 1, 128}, t));
    list.push_back(problem({1, 30, 712, 8, 1, 256}, t));
  }
  run(list);
}

TEST_P(AttentionStream, AgreesForEveryHeadSize) {
  std::vector<Problem> list;
  for (const QuantType& t : operand_types()) {
    for (const int64_t size : {8, 16, 40, 64, 72, 80, 96, 120, 128, 136, 192, 256}) {
      list.push_back(problem({1, 70, 150, 2, 2, size}, t));
      list.push_back(problem({2, 9, 150, 2, 2, size}, t, {.swapped = true}));
    }
    list.push_back(problem({1, 20, 150, 2, 2, 64}, t, {.value_size = 128}));
    list.push_back(problem({1, 20, 150, 2, 2, 128}, t, {.value_size = 32}));
  }
  run(list);
  run(list, Values::kExtremes);
  run(list, Values::kZeros);
}

TEST_P(AttentionStream, AgreesWithSharedKeys) {
  std::vector<Problem> list;
  for (const QuantType& t : operand_types()) {
    for (const bool causal : {false, true}) {
      list.push_back(problem({2, 50, 200, 8, 2, 64}, t, {.causal = causal}));
      list.push_back(problem({1, 50, 200, 8, 1, 256}, t, {.causal = causal}));
      list.push_back(problem({2, 17, 333, 8, 1, 128}, t, {.causal = causal}));
      list.push_back(problem({1, 40, 90, 6, 2, 64}, t, {.causal = causal}));  // three share: not a power of two
      list.push_back(problem({1, 3, 130, 64, 1, 64}, t, {.causal = causal}));
      list.push_back(problem({1, 2, 130, 128, 1, 64}, t, {.causal = causal}));  // more than the rows of a warpgroup
    }
  }
  run(list);
}

TEST_P(AttentionStream, AgreesUnderACausalMask) {
  std::vector<Problem> list;
  for (const QuantType& t : operand_types()) {
    for (const int64_t size : {64, 80, 128, 256}) {
      list.push_back(problem({1, 130, 130, 2, 2, size}, t, {.causal = true}));
      list.push_back(problem({1, 300, 301, 1, 1, size}, t, {.causal = true}));
      list.push_back(problem({1, 5, 300, 2, 2, size}, t, {.causal = true}));
      list.push_back(problem({1, 1, 257, 2, 2, size}, t, {.causal = true}));
    }
    list.push_back(problem({3, 260, 260, 5, 5, 64}, t, {.causal = true}));
  }
  run(list);
}

TEST_P(AttentionStream, AgreesWithABias) {
  std::vector<Problem> list;
  for (const QuantType& t : operand_types()) {
    for (const Shape& bias : {Shape{2, 4, 37, 200}, Shape{1, 4, 37, 200}, Shape{2, 1, 1, 200}, Shape{37, 200},
                              Shape{2, 4, 37, 1}, Shape{1}}) {
      list.push_back(problem({2, 37, 200, 4, 4, 64}, t, {.bias = bias}));
      list.push_back(problem({2, 37, 200, 4, 1, 96}, t, {.bias = bias, .bias_type = kF16}));
    }
    for (const int64_t size : {80, 128, 256}) {
      list.push_back(
          problem({1, 37, 300, 2, 1, size}, t, {.causal = true, .bias = Shape{1, 2, 37, 300}, .bias_type = kBf16}));
    }
  }
  run(list);
}

// Keys hidden by minus infinity: the last ones, as padding hides them; the first ones; all keys of the last batch item.
TEST_P(AttentionStream, AgreesWhereKeysAreHidden) {
  std::vector<Problem> list;
  for (const QuantType& t : operand_types()) {
    for (const QuantType& bias_type : {kF32, kF16, kBf16}) {
      list.push_back(problem({3, 20, 300, 2, 2, 64}, t, {.bias = Shape{3, 1, 1, 300}, .bias_type = bias_type}));
      list.push_back(problem({3, 20, 300, 4, 1, 256}, t, {.bias = Shape{3, 1, 1, 300}, .bias_type = bias_type}));
    }
    list.push_back(problem({3, 20, 300, 2, 2, 128}, t, {.causal = true, .bias = Shape{3, 1, 1, 300}}));
  }
  run(list, Values::kRandom, [](const Problem&, size_t i, std::vector<double>& numbers) {
    if (i != 3) return;
    for (size_t j = 0; j < numbers.size(); ++j) {
      const size_t item = j / 300, key = j % 300;
      numbers[j] = item == 0 ? (key < 100 ? 0 : -INFINITY) : item == 1 ? (key < 270 ? -INFINITY : 0) : -INFINITY;
    }
  });
}

TEST_P(AttentionStream, AgreesForEveryResultType) {
  std::vector<Problem> list;
  for (const QuantType& t : operand_types()) {
    for (const QuantType& y : {kF16, kBf16, kE4m3PerTensor}) {
      for (const int64_t size : {40, 96, 128, 200}) list.push_back(problem({1, 70, 70, 3, 3, size}, t, {.y = y}));
    }
  }
  run(list);
}

// Scores that rise from key to key: the maximum moves with every block of keys, whichever end a kernel begins at.
TEST_P(AttentionStream, AgreesWhereTheMaximumMoves) {
  std::vector<Problem> list;
  for (const QuantType& t : operand_types()) {
    list.push_back(problem({2, 9, 700, 2, 2, 64}, t, {.bias = Shape{2, 1, 1, 700}}));
    list.push_back(problem({2, 9, 700, 8, 1, 256}, t, {.bias = Shape{2, 1, 1, 700}}));
  }
  run(list, Values::kRandom, [](const Problem&, size_t i, std::vector<double>& numbers) {
    if (i != 3) return;
    for (size_t j = 0; j < numbers.size(); ++j) numbers[j] = (j < 700 ? 0.02 : -0.02) * static_cast<double>(j % 700);
  });
}

TEST_P(AttentionStream, Sanitize) {
  std::vector<Problem> list;
  for (const QuantType& t : operand_types()) {
    list.push_back(problem({1, 70, 140, 4, 1, 72}, t, {.causal = true}));
    list.push_back(problem({1, 9, 140, 2, 2, 256}, t, {.bias = Shape{140}}));
  }
  run(list);
}

INSTANTIATE_TEST_SUITE_P(Variants, AttentionStream, ::testing::ValuesIn(op().variants.begin(), op().variants.end()),
                         short_name);

TEST(AttentionStreamContract, TakesWhatItSays) {
  const Variant &half = *find_variant("attention/sm90_stream"), &fp8 = *find_variant("attention/sm90_stream_fp8");
  EXPECT_TRUE(half.accepts(problem({4, 4096, 4096, 16, 16, 128}, kF16)));
  EXPECT_TRUE(half.accepts(problem({1, 968, 968, 8, 1, 256}, kBf16, {.y = kE4m3PerTensor})));
  EXPECT_TRUE(half.accepts(problem({1, 9, 9, 2, 2, 8}, kF16)));
  EXPECT_FALSE(half.accepts(problem({1, 9, 9, 2, 2, 4}, kF16)));
  EXPECT_FALSE(half.accepts(problem({1, 9, 9, 2, 2, 264}, kF16)));
  EXPECT_FALSE(half.accepts(problem({1, 9, 9, 2, 2, 64}, kF32)));
  EXPECT_FALSE(half.accepts(problem({1, 9, 9, 2, 2, 64}, kE4m3PerTensor)));
  EXPECT_TRUE(fp8.accepts(problem({4, 4096, 4096, 16, 16, 128}, kE4m3PerTensor)));
  EXPECT_TRUE(fp8.accepts(problem({1, 968, 968, 8, 1, 256}, kE4m3PerTensor, {.y = kE4m3PerTensor})));
  EXPECT_TRUE(fp8.accepts(problem({2, 256, 256, 16, 16, 72}, kE4m3PerTensor)));
  const Verdict odd = fp8.accepts(problem({2, 256, 256, 16, 16, 72}, kE4m3PerTensor, {.padded = false}));
  EXPECT_NE(odd.refusal.find("multiples of 16 bytes"), std::string::npos) << odd.refusal;
  Problem plain = problem({1, 9, 9, 2, 2, 64}, kE4m3PerTensor);
  plain.attrs.set("p", "e5m2:tensor(f32)");
  EXPECT_FALSE(fp8.accepts(plain));
  EXPECT_FALSE(fp8.accepts(problem({1, 9, 9, 2, 2, 64}, kF16)));
}

}  // namespace
}  // namespace tessera
