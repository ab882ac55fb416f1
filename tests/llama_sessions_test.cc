// SPDX-License-Identifier: Apache-2.0
// A small Llama with a KV cache, two sequences by turns: through two sessions over the same weights, and through the
// executors of one session that are handed each sequence's cache. Both give, bit for bit, what each sequence gives
// alone. tests/llama_test.py holds the model with a cache against the model without one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/random_weights.h"
#include "runtime/bind.h"
#include "runtime/session.h"
#include "testing/engine_from.h"

namespace tessera {
namespace {

constexpr int64_t kPrompt = 5, kCache = 16, kVocabulary = 31, kWidth = 32, kHeads = 4, kKeyHeads = 2, kHead = 8,
                  kHidden = 48, kLayers = 2;
constexpr int kTokens = 12;

RandomModel small_llama() {
  RandomModel m;
  m.config = {{"model_type", "llama"},         {"hidden_size", kWidth},    {"num_hidden_layers", kLayers},
              {"num_attention_heads", kHeads}, {"head_dim", kHead},        {"num_key_value_heads", kKeyHeads},
              {"intermediate_size", kHidden},  {"vocab_size", kVocabulary}};
  const auto add = [&](const std::string& name, const Shape& shape) {
    m.tensors.push_back(random_tensor(name + ".weight", shape));
    if (shape.size() == 1) m.tensors.back().mean = 1;
  };
  add("model.embed_tokens", {kVocabulary, kWidth});
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string layer = cat("model.layers.", i);
    add(layer + ".input_layernorm", {kWidth});
    add(layer + ".post_attention_layernorm", {kWidth});
    add(layer + ".self_attn.q_proj", {kHeads * kHead, kWidth});
    add(layer + ".self_attn.k_proj", {kKeyHeads * kHead, kWidth});
    add(layer + ".self_attn.v_proj", {kKeyHeads * kHead, kWidth});
    add(layer + ".self_attn.o_proj", {kWidth, kHeads * kHead});
    add(layer + ".mlp.gate_proj", {kHidden, kWidth});
    add(layer + ".mlp.up_proj", {kHidden, kWidth});
    add(layer + ".mlp.down_proj", {kWidth, kHidden});
  }
  add("model.norm", {kWidth});
  add("lm_head", {kVocabulary, kWidth});
  return m;
}

class LlamaSessions : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto bytes = write_random_checkpoint(small_llama(), 7, SafetensorsType::F32, folder_);
    ASSERT_TRUE(bytes.ok()) << bytes.status().message();
    auto built =
        engine_from({.model_path = folder_,
                     .family = "llama",
                     .precision = GetParam(),
                     .batches = {1},
                     .sizes = {{"cache", kCache}},
                     .graphs = {{.name = "prefill", .shapes = {}, .sizes = {{"tokens", kPrompt}}, .buckets = {}},
                                {.name = "decode", .shapes = {}, .sizes = {{"tokens", 1}}, .buckets = {}}},
                     .target = Arch::cpu,
                     .quiet = true});
    ASSERT_TRUE(built.ok()) << built.status().message();
    engine_ = std::move(built).value();
    ASSERT_EQ(engine_.states.size(), static_cast<size_t>(2 * kLayers));
    for (int s = 0; s < 2; ++s) {
      for (int t = 0; t < kTokens; ++t) ids_[s].push_back((7 * t * (s + 1) + 3 * s + t / 2) % kVocabulary);
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Session> session(std::shared_ptr<State> state = nullptr) {
    auto made = Session::make(engine_, {.state = std::move(state)});
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.ok() ? std::move(made).value() : nullptr;
  }

  // Turn 0 is the prompt, each one after that a token. Logits of the last token. `cache`, where it is given: what lies
  // in the states before, and after.
  static constexpr int kTurns = kTokens - kPrompt + 1;
  std::vector<float> turn(Session& session, int sequence, int turn, std::vector<Buffer>* cache = nullptr) {
    const std::string graph = turn == 0 ? "prefill" : "decode";
    const Plan& plan = **session.plan(graph);
    const auto first = static_cast<int32_t>(turn == 0 ? 0 : kPrompt + turn - 1);
    const size_t rows = turn == 0 ? kPrompt : 1;
    std::vector<const void*> in;
    std::vector<void*> out;
    std::vector<float> logits(rows * kVocabulary, -1);
    size_t kept_in = 0, kept_out = 0;
    for (const Port& p : plan.inputs) {
      if (is_state(plan, p)) {
        in.push_back(cache == nullptr ? nullptr : (*cache)[kept_in++].data());
      } else {
        in.push_back(p.name == "input_ids" ? static_cast<const void*>(&ids_[sequence][static_cast<size_t>(first)])
                                           : &first);
      }
    }
    for (const Port& p : plan.outputs)
      out.push_back(p.name == "logits" ? static_cast<void*>(logits.data())
                    : cache == nullptr ? nullptr
                                       : (*cache)[kept_out++].data());
    const auto executor = session.graph(graph);
    EXPECT_TRUE(executor.ok()) << executor.status().message();
    const Status ran = (*executor)->run(in, out);
    EXPECT_TRUE(ran.ok()) << ran.message();
    return {logits.end() - kVocabulary, logits.end()};
  }
  std::vector<std::vector<float>> alone(int sequence) {
    const auto one = session();
    std::vector<std::vector<float>> logits;
    for (int t = 0; t < kTurns; ++t) logits.push_back(turn(*one, sequence, t));
    return logits;
  }

  Engine engine_;
  std::vector<int64_t> ids_[2];

 private:
  const std::string folder_ = (std::filesystem::temp_directory_path() / cat("llama_sessions_", getpid())).string();
};

TEST_P(LlamaSessions, TwoByTurnsAreEachAlone) {
  const std::vector<std::vector<float>> want[2] = {alone(0), alone(1)};
  const auto a = session(), b = session();
  for (int t = 0; t < kTurns; ++t) {
    EXPECT_NE(want[0][static_cast<size_t>(t)], want[1][static_cast<size_t>(t)]) << "this test would say nothing";
    EXPECT_EQ(turn(*a, 0, t), want[0][static_cast<size_t>(t)]) << t;
    EXPECT_EQ(turn(*b, 1, t), want[1][static_cast<size_t>(t)]) << t;
  }
  // The second sequence again, while the first goes no further, and after a clear() the first one.
  for (int t = 0; t < kTurns; ++t) EXPECT_EQ(turn(*b, 1, t), want[1][static_cast<size_t>(t)]) << t;
  ASSERT_TRUE(a->clear().ok());
  for (int t = 0; t < kTurns; ++t) EXPECT_EQ(turn(*a, 0, t), want[0][static_cast<size_t>(t)]) << t;
}

TEST_P(LlamaSessions, OneSetOfExecutorsTakesTheirCachesByTurns) {
  const std::vector<std::vector<float>> want[2] = {alone(0), alone(1)};
  const auto both = session();
  std::vector<Buffer> caches[2];
  for (std::vector<Buffer>& cache : caches) {
    for (const Port& p : (*both->plan("decode"))->inputs) {
      if (is_state(**both->plan("decode"), p))
        cache.emplace_back(static_cast<size_t>(port_bytes(**both->plan("decode"), p)));
    }
    ASSERT_EQ(cache.size(), engine_.states.size());
  }
  for (int t = 0; t < kTurns; ++t) {
    for (int s = 0; s < 2; ++s)
      EXPECT_EQ(turn(*both, s, t, &caches[s]), want[s][static_cast<size_t>(t)]) << s << " " << t;
  }
}

// What the tests above would see: two sessions over one cache are not each alone.
TEST_P(LlamaSessions, OverOneCacheTheyAreNot) {
  const std::vector<std::vector<float>> want = alone(0);
  const auto a = session();
  const auto b = session(a->state());
  bool differs = false;
  for (int t = 0; t < kTurns; ++t) {
    differs = differs || turn(*a, 0, t) != want[static_cast<size_t>(t)];
    turn(*b, 1, t);
  }
  EXPECT_TRUE(differs);
}

INSTANTIATE_TEST_SUITE_P(Precisions, LlamaSessions, testing::Values("fp32", "fp16", "bf16"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tessera
