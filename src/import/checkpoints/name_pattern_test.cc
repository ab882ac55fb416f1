// SPDX-License-Identifier: Apache-2.0
#include "import/checkpoints/name_pattern.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(NamesModule, TakesTheModuleAndWhatItHolds) {
  EXPECT_TRUE(names_module("classifier", "classifier"));
  EXPECT_TRUE(names_module("blocks.0", "blocks.0.attn.qkv"));
  EXPECT_FALSE(names_module("blocks.1", "blocks.10.attn.qkv"));
  EXPECT_FALSE(names_module("qkv", "blocks.0.attn.qkv"));
  EXPECT_TRUE(names_module("*.qkv", "blocks.0.attn.qkv"));
  EXPECT_TRUE(names_module("blocks.*.attn*", "blocks.3.attn.proj"));
  EXPECT_TRUE(names_module("*", "a"));
  EXPECT_FALSE(names_module("", "a"));
}

struct Case {
  const char *pattern, *name;
  bool matches;
};

// As Python's re.match: from the first character on, not to the end.
TEST(NameExpression, MatchesLikePython) {
  constexpr Case kCases[] = {
      {".*lm_head", "model.lm_head", true},
      {".*lm_head", "model.lm_hea", false},
      {"visual.*", "visual.blocks.0", true},
      {"visual.*", "my.visual", false},
      {".*mlp.gate$", "a.mlp.gate", true},
      {".*mlp.gate$", "a.mlp.gate_proj", false},
      {".*[.]fc[12]$", "blocks.0.fc2", true},
      {".*[.]fc[12]$", "blocks.0.fc3", false},
      {"blocks\\.\\d+\\.attn", "blocks.17.attn.qkv", true},
      {"blocks\\.\\d+\\.attn", "blocks.x.attn.qkv", false},
      {"^a.c", "abcd", true},
      {"a+b?c", "aaac", true},
      {"a+b?c", "bc", false},
      {"a*", "", true},
      {".*(query|key)$", "a.key", true},
      {".*(query|key)$", "a.value", false},
      {"(a|b)(c|d)", "bd", true},
      {"x|y", "yes", true},
      {"[a-c0-9]+$", "b7", true},
      {"[a-c0-9]+$", "b7z", false},
      {"a$", "ab", false},
      {"\\w+[.]q", "enc_1.q", true},
  };
  for (const Case& c : kCases) {
    const auto e = NameExpression::parse(c.pattern);
    ASSERT_TRUE(e.ok()) << c.pattern;
    EXPECT_EQ(e->matches(c.name), c.matches) << c.pattern << " " << c.name;
  }
}

TEST(NameExpression, WhatIsNotUnderstoodIsAnError) {
  for (const char* text : {"(a", "a)", "(a)*", "((a))", "[a", "[]", "[^a]", "*a", "a**", "a{2}", "\\b", "a\\", "a^b"}) {
    const auto e = NameExpression::parse(text);
    ASSERT_FALSE(e.ok()) << text;
    EXPECT_NE(e.status().message().find("is not understood"), std::string::npos);
  }
  EXPECT_FALSE(NameExpression::parse(std::string(2000, 'a')).ok());
  std::string many;  // 2^20 choices
  for (int i = 0; i < 20; ++i) many += "(a|b)";
  EXPECT_FALSE(NameExpression::parse(many).ok());
}

// A pattern that backtracking would take years for.
TEST(NameExpression, TimeIsBounded) {
  std::string pattern;
  for (int i = 0; i < 100; ++i) pattern += "a*";
  const auto e = NameExpression::parse(pattern + "$");
  ASSERT_TRUE(e.ok());
  EXPECT_FALSE(e->matches(std::string(100, 'a') + "b"));
}

}  // namespace
}  // namespace tessera
