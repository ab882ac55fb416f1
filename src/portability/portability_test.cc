// SPDX-License-Identifier: Apache-2.0
// Graphs that break one rule each, as text; one that breaks none; models as they are exported.
#include "portability/portability.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "import/onnx/onnx.h"
#include "ir/text.h"

namespace tessera {
namespace {

// An encoder that keeps every rule: 256 patches of an image, attention over [heads, tokens, size] with a scale, scales
// in the file.
const std::string kKept = R"ir(
graph kept {
  in %image: f32[1,3,64,64]
  const %embed: f32[32,48] = seed(1)
  const %gain: f32[32] = seed(2)
  const %wq: f32[32,32] = seed(3)
  const %wk: f32[32,32] = seed(4)
  const %half: f32[1] = {0.5}
  %patches: f32[1,16,16,3,4,4] = view(%image) {offset=0, strides=[12288,256,4,4096,64,1]}
  %pieces: f32[1,16,16,3,4,4] = copy(%patches) @"embed.patches"
  %rows: f32[1,256,48] = view(%pieces) {offset=0, strides=[12288,48,1]}
  %tokens: f32[1,256,32] = matmul(%rows, %embed) @"embed"
  %n: f32[1,256,32] = norm(%tokens, %gain) {eps=1e-06, kind="rms"} @"norm"
  %q: f32[1,256,32] = matmul(%n, %wq) {scale.0=0.01, type.0="e4m3:tensor(f32)"} @"q"
  %k: f32[1,256,32] = matmul(%n, %wk) @"k"
  %s: f32[1,256,256] = matmul(%q, %k) @"attn.scores"
  %scaled: f32[1,256,256] = map(%s, %half) {fn="mul"} @"attn.scale"
  %p: f32[1,256,256] = softmax(%scaled) @"attn.softmax"
  %vt: f32[1,32,256] = view(%k) {offset=0, strides=[8192,1,32]}
  %y: f32[1,256,32] = matmul(%p, %vt) @"attn.values"
  out %y
}
)ir";

std::string with(std::string text, std::initializer_list<std::pair<const char*, const char*>> changes) {
  for (const auto& [from, to] : changes) {
    EXPECT_NE(text.find(from), std::string::npos) << from;
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + std::strlen(to)))
      text.replace(at, std::strlen(from), to);
  }
  return text;
}

std::vector<RuleReport> reports_on(const Graph& graph) { return check_portability(graph, "tensorrt"); }
std::vector<RuleReport> reports_on(const std::string& text) {
  const auto graph = parse_graph(text);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  return graph.ok() ? reports_on(*graph) : std::vector<RuleReport>();
}
std::string broken(const std::vector<RuleReport>& reports) {
  std::string names;
  for (const RuleReport& r : reports) {
    if (r.broken()) names += (names.empty() ? "" : ", ") + std::string(r.rule->name);
  }
  return names;
}
const Breach& only_breach(const std::vector<RuleReport>& reports, const std::string& name) {
  static const Breach kNone;
  for (const RuleReport& r : reports) {
    if (r.rule->name == name && r.finding.breaches.size() == 1) return r.finding.breaches[0];
  }
  ADD_FAILURE() << "not one breach of " << name;
  return kNone;
}

std::string cost_of(const std::vector<RuleReport>& reports, const std::string& name) {
  for (const RuleReport& r : reports) {
    if (r.rule->name == name) return r.cost();
  }
  return "";
}

// Attention of one size of heads.
std::vector<RuleReport> with_heads_of(int64_t size) {
  const auto shape = [&](const char* name, int64_t a, int64_t b) {
    return cat("  %", name, ": f32[1,", a, ",", b, "] = ");
  };
  return reports_on(cat("graph t {\n  in %q: f32[1,64,", size, "]\n  in %k: f32[1,64,", size, "]\n", shape("s", 64, 64),
                        "matmul(%q, %k) @\"scores\"\n", shape("p", 64, 64), "softmax(%s) @\"softmax\"\n  out %p\n}\n"));
}

TEST(Portability, TheCostIsThatOfTheHeadsOfTheModel) {
  EXPECT_EQ(broken(with_heads_of(64)), "");
  EXPECT_EQ(cost_of(with_heads_of(80), "head size"),
            "heads of 80: blocks of 32 (MXFP8) lie across heads; FP8 and NVFP4 take multiples of 16");
  EXPECT_EQ(cost_of(with_heads_of(72), "head size"),
            "heads of 72: FP8 attention is supported for heads that are multiples of 16 only, and users found no fused "
            "attention for heads of 72 (NVIDIA/TensorRT#4104)");
  EXPECT_EQ(cost_of(with_heads_of(16), "head size").find("4104"), std::string::npos);
}

TEST(Portability, AModelThatKeepsEveryRule) {
  const auto reports = reports_on(kKept);
  EXPECT_EQ(broken(reports), "");
  for (const RuleReport& r : reports) {
    const bool absent = std::string(r.rule->name) == "class token";
    EXPECT_EQ(r.finding.places == 0, absent) << r.rule->name;
  }
}

TEST(Portability, EachRuleIsBrokenAlone) {
  // 48 patches: a multiple of 16, not of 32.
  auto r = reports_on(with(kKept, {{"[1,3,64,64]", "[1,3,32,24]"},
                                   {"[1,16,16,3,4,4]", "[1,8,6,3,4,4]"},
                                   {"[12288,256,4,4096,64,1]", "[2304,96,4,768,24,1]"},
                                   {"strides=[12288,48,1]", "strides=[2304,48,1]"},
                                   {"256,256", "48,48"},
                                   {"[1,256,", "[1,48,"},
                                   {"[1,32,256]", "[1,32,48]"},
                                   {"strides=[8192,1,32]", "strides=[1536,1,32]"}}));
  EXPECT_EQ(broken(r), "sequence length, image and patch size");
  EXPECT_EQ(only_breach(r, "sequence length").what, "48 tokens: no multiple of 32, though one of 16 (NVFP4)");
  EXPECT_EQ(only_breach(r, "sequence length").layers, std::vector<std::string>{"attn.softmax"});
  EXPECT_EQ(only_breach(r, "image and patch size").what,
            "32 x 24 pixels in 48 patches: no multiple of 32, though one of 16 (NVFP4)");
  EXPECT_EQ(only_breach(r, "image and patch size").layers, std::vector<std::string>{"embed"});

  r = reports_on(with(kKept, {{"f32[32,32]", "f32[24,32]"},
                              {"%q: f32[1,256,32]", "%q: f32[1,256,24]"},
                              {"%k: f32[1,256,32]", "%k: f32[1,256,24]"},
                              {"%vt: f32[1,32,256]", "%vt: f32[1,24,256]"},
                              {"strides=[8192,1,32]", "strides=[6144,1,24]"},
                              {"%y: f32[1,256,32]", "%y: f32[1,256,24]"}}));
  EXPECT_EQ(broken(r), "head size");
  EXPECT_EQ(only_breach(r, "head size").what, "heads of 24: no multiple of 32 or of 16");
  EXPECT_EQ(cost_of(r, "head size"), "heads of 24: FP8 attention is supported for heads that are multiples of 16 only");

  // The same attention with an axis of heads.
  r = reports_on(with(kKept, {{"%s: f32[1,256,256] = matmul(%q, %k)",
                               "%q4: f32[1,1,256,32] = view(%q) {offset=0, strides=[8192,8192,32,1]}\n"
                               "  %k4: f32[1,1,256,32] = view(%k) {offset=0, strides=[8192,8192,32,1]}\n"
                               "  %s: f32[1,1,256,256] = matmul(%q4, %k4)"},
                              {"%scaled: f32[1,", "%scaled: f32[1,1,"},
                              {"%p: f32[1,", "%p: f32[1,1,"},
                              {"%vt: f32[1,", "%vt: f32[1,1,"},
                              {"strides=[8192,1,32]", "strides=[8192,8192,1,32]"},
                              {"%y: f32[1,", "%y: f32[1,1,"}}));
  EXPECT_EQ(broken(r), "3D attention");

  r = reports_on(with(kKept, {{"%p: f32[1,256,256] = softmax(%scaled)",
                               "%capped: f32[1,256,256] = map(%scaled) {fn=\"tanh\"} @\"attn.cap\"\n"
                               "  %p: f32[1,256,256] = softmax(%capped)"}}));
  EXPECT_EQ(broken(r), "form of attention");
  EXPECT_EQ(only_breach(r, "form of attention").what, "tanh between scores and softmax");

  r = reports_on(with(kKept, {{" {scale.0=0.01, type.0=\"e4m3:tensor(f32)\"}", ""}}));
  EXPECT_EQ(broken(r), "scales in the file");
  EXPECT_EQ(only_breach(r, "scales in the file").layers, (std::vector<std::string>{"embed", "q", "k"}));

  r = reports_on(with(kKept, {{"  %n: f32[1,256,32] = norm(%tokens, %gain) {eps=1e-06, kind=\"rms\"} @\"norm\"",
                               "  %sq: f32[1,256,32] = map(%tokens, %tokens) {fn=\"mul\"} @\"norm.mul\"\n"
                               "  %mean: f32[1,256] = reduce(%sq) {fn=\"mean\"} @\"norm.mean\"\n"
                               "  %wide: f32[1,256,1] = view(%mean) {offset=0, strides=[256,1,1]}\n"
                               "  %n: f32[1,256,32] = map(%tokens, %wide) {fn=\"mul\"} @\"norm.scale\""}}));
  EXPECT_EQ(broken(r), "norms as operators");
  EXPECT_EQ(only_breach(r, "norms as operators").layers, std::vector<std::string>{"norm"});
}

TEST(Portability, AClassToken) {
  // 31 tokens and a learnt one keep the rule, 32 and one do not; two activations beside one another are no class token.
  const auto text = [](int tokens, bool learnt) {
    return cat("graph t {\n  in %x: f32[2,", tokens,
               ",8]\n  in %z: f32[2,1,8]\n  const %c: f32[2,1,8] = seed(1)\n  %y: f32[2,", tokens + 1, ",8] = concat(",
               learnt ? "%c" : "%z", ", %x) {axis=1} @\"cat\"\n  out %y\n}\n");
  };
  EXPECT_EQ(broken(reports_on(text(31, true))), "");
  EXPECT_EQ(broken(reports_on(text(32, false))), "");
  const auto r = reports_on(text(32, true));
  EXPECT_EQ(broken(r), "class token");
  EXPECT_EQ(only_breach(r, "class token").what, "32 tokens and 1 learnt make 33: no multiple of 32 or of 16");
}

TEST(Portability, SparseAndQuantized) {
  const auto text = [](const char* weights, const char* asks) {
    return cat("graph t {\n  in %x: f32[2,8]\n  const %w: f32[1,8] = {", weights, "}\n  %y: f32[2,1] = matmul(%x, %w)",
               asks, " @\"fc\"\n  out %y\n}\n");
  };
  const char* asks = " {scale.0=0.5, type.0=\"e4m3:tensor(f32)\"}";
  EXPECT_EQ(broken(reports_on(text("0, 1, 0, 2, 0, 0, 0, 3", asks))), "sparsity or quantization");
  EXPECT_EQ(broken(reports_on(text("0, 1, 0, 2, 0, 4, 5, 3", asks))), "");
  EXPECT_EQ(broken(reports_on(text("0, 0, 0, 0, 0, 0, 0, 0", asks))), "");
  EXPECT_EQ(broken(reports_on(text("0, 1, 0, 2, 0, 0, 0, 3", ""))), "scales in the file");
}

// Q/DQ pairs as the importer leaves them: a copy makes codes or reads them, beside the layer.
TEST(Portability, QuantizedAsImported) {
  const auto text = [](const char* codes) {
    return cat(
        "graph t {\n  in %x: f32[2,8]\n  const %s: f32[] = {0.5}\n  const %c: e4m3:tensor(f32)[1,8] scale=%s = data(",
        codes,
        ")\n  %q: e4m3:tensor(f32)[2,8] scale=%s = copy(%x)\n  %r: f32[2,8] = copy(%q) @\"x.dq\"\n"
        "  %w: f32[1,8] = copy(%c) @\"w.dq\"\n  %y: f32[2,1] = matmul(%r, %w) @\"fc\"\n  out %y\n}\n");
  };
  EXPECT_EQ(broken(reports_on(text("3840303138403031"))), "");
  const auto sparse = reports_on(text("0040803100403000"));  // minus zero is a zero
  EXPECT_EQ(broken(sparse), "sparsity or quantization");
  EXPECT_EQ(only_breach(sparse, "sparsity or quantization").layers, std::vector<std::string>{"fc"});
}

TEST(Portability, ModelsAsTheyAreExported) {
  const auto reports = [](const char* name) {
    const auto graph = import_onnx(cat(TS_SOURCE_DIR, "/tests/data/models/", name), {.batch = 2, .own_batch = true});
    EXPECT_TRUE(graph.ok()) << graph.status().message();
    return graph.ok() ? reports_on(*graph) : std::vector<RuleReport>();
  };
  EXPECT_EQ(broken(reports("vit_ts14.onnx")),
            "sequence length, head size, 3D attention, class token, image and patch size, scales in the file, norms as "
            "operators");
  // One operator for attention, one for a norm.
  EXPECT_EQ(broken(reports("vit_dyn23.onnx")),
            "sequence length, head size, class token, image and patch size, scales in the file");
  const auto siglip = reports("siglip_dyn18.onnx");  // no class token
  EXPECT_EQ(broken(siglip).find("class token"), std::string::npos) << broken(siglip);
  const auto gemma = reports("gemma2_ts17.onnx");  // scores are capped by tanh
  EXPECT_NE(broken(gemma).find("form of attention"), std::string::npos) << broken(gemma);
}

}  // namespace
}  // namespace tessera
