// SPDX-License-Identifier: Apache-2.0
// Every precision, dense and 2:4, with attention in the carrier and in fp8, through all of `build` for the CPU: each
// must build, store what was asked in every layer, reproduce its golden values and stay near the model.
#include <gtest/gtest.h>

#include "assemble/build_engine.h"
#include "plan/engine_file.h"
#include "precision/choose_precisions.h"
#include "testing/engine_from.h"
#include "verify/verify.h"

namespace tessera {
namespace {

const std::string kDigits = std::string(TS_SOURCE_DIR) + "/assets/digits";

struct Combination {
  std::string precision;
  bool sparse, fp8_attention;
};
std::string name_of(const ::testing::TestParamInfo<Combination>& info) {
  return info.param.precision + (info.param.sparse ? "_24" : "") + (info.param.fp8_attention ? "_attention8" : "");
}
std::vector<Combination> all_combinations() {
  std::vector<Combination> all;
  for (const std::string& p : precision_names()) {
    for (const bool sparse : {false, true}) {
      for (const bool attention : {false, true}) all.push_back({p, sparse, attention});
    }
  }
  return all;
}

BuildOptions options_of(const Combination& c) {
  BuildOptions o{.model_path = kDigits + "/vit.onnx", .precision = c.precision, .batches = {1, 5}, .quiet = true};
  if (c.fp8_attention) o.attention = "fp8";
  if (c.sparse) o.refine.sparsity = {SparsityPattern::k24, SparsityMethod::kHessian};
  o.calib_samples = 64;
  const bool data = c.sparse || c.fp8_attention || find_precision(c.precision)->needs_ranges();
  if (data) o.calib_path = kDigits + "/calib.npz";
  return o;
}

class Combinations : public ::testing::TestWithParam<Combination> {};
INSTANTIATE_TEST_SUITE_P(All, Combinations, ::testing::ValuesIn(all_combinations()), name_of);

TEST_P(Combinations, BuildAndKeepTheirPromise) {
  const Combination& c = GetParam();
  const auto built = build_engine(options_of(c));
  ASSERT_TRUE(built.ok()) << built.status().message();
  const Engine* engine = &built->engine;
  const ModelReport& report = built->reports[0];
  const Precision& p = *find_precision(c.precision);
  int layers = 0, attentions = 0;
  for (const PlanStep& s : engine->plans[0].steps) {
    if (s.op == "attention") {
      ++attentions;
      EXPECT_EQ(s.asked, c.fp8_attention ? "fp8" : "") << s.layer;
      EXPECT_EQ(s.stored, c.fp8_attention ? "e4m3" : info(p.carrier).name) << s.layer;
    }
    if (s.op != "matmul" || !s.role.starts_with("block")) continue;
    ++layers;
    EXPECT_EQ(s.asked, c.precision + (c.sparse ? " 2:4" : "")) << s.layer;
    EXPECT_EQ(s.stored.ends_with(" 2:4"), c.sparse) << s.layer << " stores " << s.stored;
    const Operand& w = engine->plans[0].tensors[static_cast<size_t>(s.in[1])].desc;
    const Operand& x = engine->plans[0].tensors[static_cast<size_t>(s.in[0])].desc;
    EXPECT_EQ(to_string(w.type), to_string(p.weight)) << s.layer;
    EXPECT_EQ(to_string(x.type), to_string(p.activation)) << s.layer;
  }
  EXPECT_EQ(layers, 16);
  EXPECT_EQ(attentions, 4);
  for (size_t i = 0; i + 1 < engine->plans.size(); ++i) {
    const auto checked = check_golden(*engine, engine->plans[i]);
    ASSERT_TRUE(checked.ok()) << checked.status().message();
    EXPECT_TRUE(checked->ok) << checked->sentence;
  }
  ASSERT_EQ(report.outputs.size(), 1u);
  EXPECT_GT(report.outputs[0].closeness.cosine_mean, c.sparse ? 0.9 : 0.97);
}

TEST(Build, RefinementsAndRecipesReachTheirLayers) {
  for (const char* what : {"smooth", "awq", "clip", "compensate"}) {
    BuildOptions o = options_of({"nvfp4", false, false});
    const std::string word = what;
    o.refine.smooth = word == "smooth", o.refine.awq = word == "awq", o.refine.clip = word == "clip",
    o.refine.compensate = word == "compensate";
    const auto engine = engine_from(o);
    ASSERT_TRUE(engine.ok()) << what << ": " << engine.status().message();
    EXPECT_FALSE(engine->refinements.empty()) << what;
  }
  BuildOptions o = options_of({"fp8", false, false});
  o.precision.clear();
  o.recipe = *parse_recipe(R"({"tessera_recipe": 1, "precision": "fp8", "attention": "fp8", "rules": [
    {"role": "block.mlp", "precision": "nvfp4", "sparsity": "2:4"},
    {"layer": "*.1.mlp.fc2", "precision": "fp16", "sparsity": "none"}]})",
                           "test");
  const auto engine = engine_from(o);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  std::map<std::string, int> stored;
  for (const PlanStep& s : engine->plans[0].steps) {
    if (!s.asked.empty() && s.role.starts_with("block")) ++stored[s.stored];
  }
  EXPECT_EQ(stored, (std::map<std::string, int>{{"e4m3", 12}, {"nvfp4 2:4", 7}, {"f16", 1}}));
  EXPECT_EQ(engine->recipe, "test");
  // Patterns differ from rule to rule.
  o.recipe = *parse_recipe(R"({"tessera_recipe": 1, "precision": "fp16", "rules": [
    {"role": "block.mlp", "sparsity": "4:8"}, {"layer": "*.1.mlp.fc2", "sparsity": "2:4"}]})",
                           "pairs");
  const auto pairs = engine_from(o);
  ASSERT_TRUE(pairs.ok()) << pairs.status().message();
  int in_pairs = 0, by_four = 0;
  for (const std::string& note : pairs->refinements) {
    in_pairs += note.find("4:8 in pairs") != std::string::npos;
    by_four += note.find("2:4 by") != std::string::npos;
  }
  EXPECT_EQ(std::pair(in_pairs, by_four), std::pair(7, 1));
}

// What could not be realised is an error, never left out silently.
TEST(Build, RequestsWithoutEffectAreRefused) {
  const auto fails = [](BuildOptions o, const char* part) {
    const auto engine = engine_from(o);
    ASSERT_FALSE(engine.ok()) << part;
    EXPECT_NE(engine.status().message().find(part), std::string::npos) << engine.status().message();
  };
  BuildOptions o = options_of({"fp16", false, false});
  o.calib_path = kDigits + "/calib.npz";
  o.refine.clip = true;
  fails(o, "--refine: no layer of fp16");
  o = options_of({"bf16", false, false});
  o.attention = "fp16";
  fails(o, "--attention fp16");
  o = options_of({"mxfp8", false, false});
  o.calib_method = "mse";
  fails(o, "--calib-method");
  o = options_of({"nvfp4", false, false});
  o.refine.compensate = true;
  o.calib_path.clear();
  fails(o, "--calib");
}

}  // namespace
}  // namespace tessera
