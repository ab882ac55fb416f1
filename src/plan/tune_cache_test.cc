// SPDX-License-Identifier: Apache-2.0
#include "plan/tune_cache.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace tessera {
namespace {

Problem linear(int64_t m) {
  Problem p{.op = "matmul",
            .in = {dense_operand({m, 768}, kE4m3PerTensor), dense_operand({3072, 768}, kE4m3PerChannel, true),
                   dense_operand({3072}, Element::f16, true)},
            .out = {dense_operand({m, 3072}, Element::f16)}};
  p.then.steps = {{.kind = StepKind::bias, .operand = 2}, {.kind = StepKind::act, .fn = Unary::gelu_erf}};
  return p;
}

TuningTable two_entries() {
  TuningTable t{.gpu = "NVIDIA H200", .arch = Arch::sm90, .entries = {}};
  t.record("b", {"matmul/x", "", 12.3456});
  t.record("a \"quoted\"", {"matmul/x", "128x192", 41.25});
  t.record("a \"quoted\"", {"matmul/x", "128x128", 37});
  t.record("a \"quoted\"", {"matmul/y", "", 41.25});
  return t;
}

TEST(TuningKey, SaysEverythingThatDecidesTheTime) {
  const Problem p = linear(197);
  const std::string key = problem_key(p, Arch::sm90);
  EXPECT_EQ(key,
            "sm90 matmul e4m3:tensor(f32)[197,768] e4m3:channel(f32)[3072,768]c f16[3072]c -> f16[197,3072] bias(2) "
            "act=gelu_erf");
  std::vector<Problem> others(8, p);
  others[0].in[0].shape[0] = 198;
  others[1].in[0].strides[0] = 800;
  others[2].in[1].type = kE4m3PerTensor;
  others[3].in[1].constant = false;
  others[4].attrs.set("scale", 0.125);
  others[5].then.steps[1].fn = Unary::gelu_tanh;
  others[6].in[2].present = false;
  others[7].out[0].type = kE4m3PerTensor;
  for (size_t i = 0; i < others.size(); ++i) EXPECT_NE(problem_key(others[i], Arch::sm90), key) << i;
  EXPECT_NE(problem_key(p, Arch::cuda), key);
  // The same before and after the choice, which brings a weight into an order and takes a tile shape.
  Problem chosen = p;
  chosen.in[1].layout = Layout::kPanels16;
  chosen.config = "128x192";
  EXPECT_EQ(problem_key(chosen, Arch::sm90), key);
}

TEST(TuningTable, TextReadsBackAsTheSameText) {
  const TuningTable t = two_entries();
  const std::string text = print_tuning(t);
  const auto again = parse_tuning(text);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(print_tuning(*again), text);
  EXPECT_EQ(tuning_hash(*again), tuning_hash(t));
  EXPECT_EQ(tuning_hash(t).size(), 16u);
  EXPECT_EQ(again->find("b")->at(0).us, 12.35);
  TuningTable other = t;
  other.record("b", {"matmul/x", "", 12.36});
  EXPECT_NE(tuning_hash(other), tuning_hash(t));
}

TEST(TuningTable, EntriesAreFastestFirstAndReplaced) {
  TuningTable t = two_entries();
  const auto names = [&] {
    std::string all;
    for (const TunedTime& x : *t.find("a \"quoted\"")) all += x.variant + x.config + " ";
    return all;
  };
  EXPECT_EQ(names(), "matmul/x128x128 matmul/x128x192 matmul/y ");
  t.record("a \"quoted\"", {"matmul/y", "", 1.5});
  EXPECT_EQ(names(), "matmul/y matmul/x128x128 matmul/x128x192 ");
  EXPECT_EQ(t.find("a \"quoted\"", "matmul/y", "")->us, 1.5);
  EXPECT_EQ(t.find("a \"quoted\"", "matmul/y", "64x64"), nullptr);
  EXPECT_EQ(t.find("c"), nullptr);
}

TEST(TuningTable, TimesInAPlanDecideWhereThereAreSome) {
  TuningTable t = two_entries();
  t.record("a \"quoted\"", {"matmul/y", "", 41.25, 30.004});
  t.record("a \"quoted\"", {"matmul/x", "128x192", 41.25, 29});
  std::string all;
  for (const TunedTime& x : *t.find("a \"quoted\"")) all += x.variant + x.config + " ";
  EXPECT_EQ(all, "matmul/x128x192 matmul/y matmul/x128x128 ") << "who was timed alone only comes last";
  const std::string text = print_tuning(t);
  EXPECT_NE(text.find("\"us\": 41.25, \"in_plan_us\": 30}"), std::string::npos) << text;
  const auto again = parse_tuning(text);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(print_tuning(*again), text);
  std::string bad = text;
  bad.replace(bad.find("\"in_plan_us\": 30"), 16, "\"in_plan_us\": 0 ");
  EXPECT_NE(parse_tuning(bad).status().message().find("'in_plan_us' is 0"), std::string::npos);
}

TEST(TuningTable, BadFilesAreSaidInASentence) {
  const std::string good = print_tuning(two_entries());
  struct {
    const char *from, *to, *says;
  } const cases[] = {
      {"\"tuning 1\"", "\"tuning 2\"", "'tessera' is 'tuning 2'; wanted 'tuning 1'"},
      {"\"tessera\": \"tuning 1\",", "", "'tessera' is missing"},
      {"\"gpu\": \"NVIDIA H200\"", "\"gpu\": 200", "'gpu' is not text"},
      {"\"arch\": \"sm90\"", "\"arch\": \"cpu\"", "'arch' is 'cpu', which is no GPU"},
      {"\"arch\": \"sm90\"", "\"arch\": \"sm90\", \"date\": 1", "'date' is no entry of a tuning table"},
      {"\"us\": 37", "\"us\": 0", "entry 'a \"quoted\"': 'us' is 0; a time is above 0"},
      {"\"us\": 37", "\"us\": -1e3", "a time is above 0"},
      {"\"us\": 37", "\"us\": 1e308", "at most 1e+09"},
      {"\"us\": 37", "\"us\": \"37\"", "'us' is not a number"},
      {", \"us\": 37", "", "'us' is not a number"},
      {"\"config\": \"128x128\"", "\"config\": \"128x192\"", "names 'matmul/x' '128x192' twice"},
      {"\"variant\": \"matmul/y\"", "\"variant\": \"matmul/y\", \"tile\": 3", "'tile' is no entry"},
      {"{\"variant\": \"matmul/x\", \"config\": \"\", \"us\": 12.35}", "", "entry 'b': is not a list of times"},
      {"{\"variant\": \"matmul/x\", \"config\": \"\", \"us\": 12.35}", "7", "holds something else than an object"},
      {"\"entries\": {", "\"entries\": [{", "is not JSON"},
  };
  for (const auto& c : cases) {
    std::string text = good;
    const size_t at = text.find(c.from);
    ASSERT_NE(at, std::string::npos) << c.from;
    text.replace(at, std::string(c.from).size(), c.to);
    const auto table = parse_tuning(text);
    ASSERT_FALSE(table.ok()) << c.to;
    EXPECT_NE(table.status().message().find(c.says), std::string::npos) << table.status().message();
  }
  EXPECT_FALSE(parse_tuning("").ok());
  EXPECT_NE(parse_tuning("[]").status().message().find("is not a JSON object"), std::string::npos);
}

TEST(TuningTable, FilesAreWrittenAndReadWhole) {
  const std::string path = (std::filesystem::temp_directory_path() / "tessera_tune_cache_test.json").string();
  ASSERT_TRUE(write_tuning(two_entries(), path).ok());
  const auto read = read_tuning(path);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(print_tuning(*read), print_tuning(two_entries()));
  std::filesystem::remove(path);
  EXPECT_NE(read_tuning(path).status().message().find(path), std::string::npos);
}

TEST(TuningTable, TheCommittedOneIsOfItsArch) {
  const TuningTable* table = default_tuning(Arch::sm90);
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->gpu, "NVIDIA H200");
  for (const auto& [key, times] : table->entries) EXPECT_TRUE(key.starts_with("sm90 ")) << key;
  EXPECT_EQ(default_tuning(Arch::cpu), nullptr);
}

}  // namespace
}  // namespace tessera
