// SPDX-License-Identifier: Apache-2.0
#include "ir/text.h"

#include <gtest/gtest.h>

#include <random>

#include "ir/check.h"

namespace tessera {
namespace {

constexpr const char* kText = R"(graph tiny {
  in %image: f32[2,3,8]
  in %ids: i64[4]
  const %w: f32[4,8] = seed(3)   # a comment
  const %b: f32[4] = {1, 2.5, -0.125, 1e-7}
  const %"two words": f32[] = {3}
  const %codes: e4m3:tensor(f32)[4] scale=%s = data(38403000)
  const %s: f32[1] = {0.5}
  const %zeros: f16[3]
  const %list: i64[3] = {0, -1, 4000000000}
  %onnx::MatMul_1: f32[2,3,4] = matmul(%image, %w, %b) {perm=[0,2,1], kind="a \"b\"", eps=1e-06, big=-7, neg=[-1]} )"
                              R"(then bias(2) act(gelu_erf) @"blocks.0.fc1" role block asked fp8
  %q: e4m3:tensor(f32)[2,3,4] scale=%s = copy(%onnx::MatMul_1)
  %n: f32[2,3,4] = norm(%q, _, %b)
  %v: f32[3,4] = view(%n) {offset=12, strides=[4,1]}
  %m: f32[3,4] = matmul(%v, %w) then quantize
  %kept: f32[2,3,8] = copy(%image)
  out %m
  out %image
  out %kept
  state %image = %kept
  state %ids
}
)";

TEST(Text, PrintsWhatItParsed) {
  const auto g = parse_graph(kText);
  ASSERT_TRUE(g.ok()) << g.status().message();
  for (const bool data : {false, true}) {
    const std::string printed = print_graph(*g, data);
    const auto again = parse_graph(printed);
    ASSERT_TRUE(again.ok()) << again.status().message() << "\n" << printed;
    EXPECT_EQ(print_graph(*again, data), printed);
    if (!data) continue;
    ASSERT_EQ(again->values.size(), g->values.size());
    for (size_t i = 0; i < g->values.size(); ++i) {
      const auto a = g->values[i].data.span(), b = again->values[i].data.span();
      EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << g->values[i].name;
    }
  }
}

TEST(Text, ValuesThatKeepTheirTypeSaySo) {
  constexpr const char* kExact = R"(graph euler {
  in %x: f32[2] exact
  const %dt: f32[1] exact = {-0.1}
  const %codes: e4m3:tensor(f32)[1] exact scale=%s = data(38)
  const %s: f32[1] = {0.5}
  %y: f32[2] exact = map(%x, %dt) {fn="mul"}
  %z: f32[2] = map(%y, %codes) {fn="mul"}
  out %z
}
)";
  const auto g = parse_graph(kExact);
  ASSERT_TRUE(g.ok()) << g.status().message();
  std::vector<std::string> exact;
  for (const Value& v : g->values) {
    if (v.exact) exact.push_back(v.name);
  }
  EXPECT_EQ(exact, (std::vector<std::string>{"x", "dt", "codes", "y"}));
  const std::string printed = print_graph(*g, true);
  EXPECT_NE(printed.find("%y: f32[2] exact = map"), std::string::npos) << printed;
  EXPECT_EQ(printed.find("%z: f32[2] exact"), std::string::npos) << printed;
  const auto again = parse_graph(printed);
  ASSERT_TRUE(again.ok()) << again.status().message() << "\n" << printed;
  ASSERT_EQ(again->values.size(), g->values.size());
  for (size_t i = 0; i < g->values.size(); ++i) EXPECT_EQ(again->values[i].exact, g->values[i].exact);
  EXPECT_EQ(print_graph(*again, true), printed);
}

TEST(Text, ReadsEveryPart) {
  const auto parsed = parse_graph(kText);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  const Graph& g = *parsed;
  const Node& n = g.nodes[0];
  EXPECT_EQ(n.name, "blocks.0.fc1");
  EXPECT_EQ(n.role, "block");
  EXPECT_EQ(n.asked, "fp8");
  EXPECT_EQ(n.attrs.list("perm"), (std::vector<int64_t>{0, 2, 1}));
  EXPECT_EQ(n.attrs.word("kind"), "a \"b\"");
  EXPECT_EQ(n.attrs.number("eps"), 1e-6);
  EXPECT_EQ(n.attrs.integer("big"), -7);
  EXPECT_TRUE(n.then.is({StepKind::bias, StepKind::act}));
  EXPECT_EQ(n.then.steps[0].operand, 2);
  EXPECT_EQ(n.then.steps[1].fn, Unary::gelu_erf);
  EXPECT_EQ(g.at(n.outputs[0]).name, "onnx::MatMul_1");
  EXPECT_EQ(g.nodes[2].inputs[1], kNoValue);
  EXPECT_EQ(g.numbers(n.inputs[2]), (std::vector<double>{1, 2.5, -0.125, static_cast<double>(1e-7f)}));
  EXPECT_EQ(g.at(g.nodes[1].outputs[0]).scale, g.at(5).scale);
  EXPECT_EQ(g.at(g.at(5).scale).name, "s");
  EXPECT_EQ(g.numbers(5), (std::vector<double>{1, 2, 0.5, 0}));
  EXPECT_EQ(g.numbers(8), (std::vector<double>{0, -1, 4e9}));
  const std::vector<double> seeded = g.numbers(2);
  double square = 0;
  for (double x : seeded) square += x * x;
  EXPECT_NEAR(std::sqrt(square / 32), 0.05, 0.03);
  EXPECT_NE(seeded[0], seeded[1]);
}

TEST(Text, ErrorsNameTheLine) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"graph g {\n  in %x: f99[2]\n}", "line 2"},
      {"graph g {\n in %x: f32[2]\n in %x: f32[2]\n}", "twice"},
      {"graph g {\n out %y\n}", "not declared"},
      {"graph g {\n in %x: f32[2]\n", "line 3"},
      {"graph g { const %w: f32[3] = {1, 2} }", "2 numbers for 3"},
      {"graph g { const %w: f32[3] = data(00) }", "12 bytes"},
      {"graph g { const %w: f32[1000000,1000000] = seed(1) }", "at most"},
      {"graph g { in %x: f32[9999999999,9999999999] }", "too large"},
      {"graph g { in %x: f32[2] %y: f32[2] = map(%x) {fn=\"relu} out %y }", "does not end"},
      {"graph g { in %x: f32[2] %y: f32[2] = map(%x) then act(nothing) out %y }", "nothing"},
      {"graph g { in %x: f32[2] scale=%s }", "%s"},
      {"nonsense", "line 1"},
      {"graph g { in %x: f32[2] %y: f32[2] = view(%x) {offset=1, strides=[1]} out %y }", "leaves its base"},
      {"graph g { in %x: e2m1[4] %y: e2m1[2] = view(%x) {offset=1, strides=[1]} out %y }", "inside a byte"},
      {"graph g { in %x: f32[2] %y: f32[2] = matmul(%x) then bias(3) out %y }", "operand 3"},
  };
  for (const auto& [text, word] : bad) {
    const auto g = parse_graphs(text);
    ASSERT_FALSE(g.ok()) << text;
    EXPECT_EQ(g.status().code(), Code::kBadInput);
    EXPECT_NE(g.status().message().find(word), std::string::npos) << text << "\n" << g.status().message();
  }
}

TEST(Text, DamagedTextNeverCrashes) {
  const std::string text = kText;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    std::mt19937_64 random(seed);
    std::string damaged = text;
    for (int i = 0; i < 1 + static_cast<int>(seed % 3); ++i) {
      const size_t at = random() % damaged.size();
      if (random() % 2 == 0) {
        damaged[at] = static_cast<char>(random());
      } else {
        damaged.erase(at, 1 + random() % 20);
      }
    }
    const auto g = parse_graphs(damaged);
    if (!g.ok()) continue;
    for (const Graph& graph : *g) EXPECT_TRUE(check(graph).ok());
  }
  for (size_t cut = 0; cut < text.size(); ++cut)
    EXPECT_TRUE(cut == 0 || !parse_graph(text.substr(0, cut)).ok() || cut > text.size() - 3);
}

TEST(Check, FindsWhatIsWrong) {
  const auto whole = parse_graph(kText);
  ASSERT_TRUE(whole.ok());
  const auto broken = [&](auto&& change) {
    Graph g = *whole;
    change(g);
    return check(g).message();
  };
  EXPECT_EQ(broken([](Graph&) {}), "");
  EXPECT_NE(broken([](Graph& g) { g.nodes[1].inputs[0] = 999; }), "");
  EXPECT_NE(broken([](Graph& g) { g.nodes[0].inputs[0] = g.nodes[1].outputs[0]; }).find("no earlier node"),
            std::string::npos);
  EXPECT_NE(broken([](Graph& g) { g.nodes[1].outputs = g.nodes[0].outputs; }).find("made already"), std::string::npos);
  EXPECT_NE(broken([](Graph& g) { g.nodes.pop_back(); }).find("output"), std::string::npos);
  EXPECT_NE(broken([](Graph& g) { g.values[2].type.shape = {4, 9}; }).find("takes 144"), std::string::npos);
  EXPECT_NE(broken([](Graph& g) { g.values[5].scale = 3; }).find("4 scales"), std::string::npos);
  EXPECT_NE(broken([](Graph& g) { g.values[3].scale = 6; }).find("takes none"), std::string::npos);
  EXPECT_NE(broken([](Graph& g) { g.nodes[3].attrs.set("offset", int64_t{13}); }).find("leaves its base"),
            std::string::npos);
  EXPECT_NE(broken([](Graph& g) { g.nodes[3].attrs.set("strides", std::vector<int64_t>{4}); }), "");
  EXPECT_NE(broken([](Graph& g) { g.nodes[0].then.steps[0].operand = 1; }).find("wanted 4 numbers"), std::string::npos);
  EXPECT_NE(broken([](Graph& g) {
              g.nodes[0].then.steps.insert(g.nodes[0].then.steps.begin(), Step{.kind = StepKind::quantize});
            }).find("last"),
            std::string::npos);
  EXPECT_NE(broken([](Graph& g) { g.inputs.push_back(g.inputs[0]); }), "");
}

}  // namespace
}  // namespace tessera
