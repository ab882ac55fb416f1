// SPDX-License-Identifier: Apache-2.0
// A plan whose decoder layers run as phases of one persistent kernel gives, bit for bit, what the same kernels give
// when each is launched by itself: matmuls with residuals, a gate, moments and a norm's factor, rotary and writes into
// a cache, and attention over it. Many calls one after the other: a phase that begins too early is a race.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "base/random.h"
#include "ir/text.h"
#include "ops/ops.h"
#include "plan/engine_file.h"
#include "plan/make_plan.h"
#include "runtime/bind.h"
#include "runtime/executor.h"
#include "tiles/sm90/chain/chain.h"
#include "types/element.h"

namespace tessera {
namespace {

constexpr int kLayers = 3, kCacheRows = 96, kRuns = 40;

struct Form {
  const char* element;
  int rows, head, heads;
  const char* blocks = nullptr;  // at most; null: as many as the GPU holds
};

// The text with every word of the map replaced by its number or type.
std::string filled(std::string text, const std::map<std::string, std::string>& words) {
  for (const auto& [word, value] : words) {
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + value.size()))
      text.replace(at, word.size(), value);
  }
  return text;
}

std::map<std::string, std::string> words_of(const Form& f) {
  const int width = f.head * f.heads;
  return {{"$T", f.element},
          {"$asked", std::string(f.element) == "f16" ? "fp16" : "bf16"},
          {"$rows", cat(f.rows)},
          {"$head", cat(f.head)},
          {"$count", cat(f.heads)},
          {"$width", cat(width)},
          {"$turned", cat(width + f.head)},
          {"$all", cat(width + 2 * f.head)},
          {"$apart", cat(f.rows * (width + 2 * f.head))},
          {"$dense", cat(f.rows * width)},
          {"$tiles", cat(width / 64)},
          {"$wide", cat(2 * width)},
          {"$cache", cat(f.element, "[1,", kCacheRows, ",1,", f.head, "]")}};
}

// One decoder layer: q, k and v turned and kept, attention, its residual, a gated MLP behind a folded norm.
constexpr const char* kLayer =
    "  %qkv$i: $T[1,$rows,$all], %keys_after$i: $cache, %values_after$i: $cache = matmul(%h$i, %wqkv, %b, %angles, "
    "%keys$i, %length, %values$i, %length) {in_place=1, joined=[$width,$head,$head], "
    "kept=[$width,$head,1,4,5,$turned,$head,1,6,7]} then bias(2) rotary(3, $head.0, $turned.0) @\"qkv$i\" "
    "role block.attention_in asked $asked\n"
    "  %q$i: $T[1,$rows,$count,$head] = view(%qkv$i) {offset=0, strides=[$apart,$all,$head,1]}\n"
    "  %a$i: $T[1,$rows,$count,$head] = attention(%q$i, %keys_after$i, %values_after$i, _, %length) "
    "{fresh=$rows, scale=0.0883} @\"attn$i\" role block.attention asked $asked\n"
    "  %av$i: $T[1,$rows,$width] = view(%a$i) {strides=[$dense,$width,1]}\n"
    "  %o$i: $T[1,$rows,$width], %c$i: $T[1,$rows,$width], %m$i: f32[1,$rows,$tiles,2] = "
    "matmul(%av$i, %wo, %h$i, %gain) {codes=1, codes.gain=3, moments=1} then residual(2) @\"o$i\" "
    "role block.attention_out asked $asked\n"
    "  %g$i: $T[1,$rows,$wide] = matmul(%c$i, %wg, %m$i) {norm.eps=0.000001, norm.kind=\"rms\"} "
    "then normalise(2) gate(gelu_tanh) @\"gate$i\" role block.mlp asked $asked\n"
    "  %h$next: $T[1,$rows,$width] = matmul(%g$i, %wd, %o$i) then residual(2) @\"down$i\" role block.mlp "
    "asked $asked\n";

std::string decoder_text(const Form& f) {
  std::string text = "graph g {\n  in %x: $T[1,$rows,$width]\n  in %at: i32[1]\n  in %turns: $T[1,$rows,$head]\n";
  std::string outputs = "  %y: $T[1,$rows,$width] = copy(%h$last)\n  out %y\n", states;
  for (int i = 0; i < kLayers; ++i) {
    text += cat("  in %keys", i, ": $cache\n  in %values", i, ": $cache\n");
    outputs += cat("  out %keys_after", i, "\n  out %values_after", i, "\n");
    states += cat("  state %keys", i, " = %keys_after", i, "\n  state %values", i, " = %values_after", i, "\n");
  }
  // Text holds small constants only: with_weights makes constants of these four.
  text += "  in %wqkv: $T[$all,$width]\n  in %wo: $T[$width,$width]\n";
  text += cat("  in %wg: $T[", 4 * f.head * f.heads, ",$width]\n  in %wd: $T[$width,$wide]\n");
  text += "  const %b: $T[$all] = seed(5)\n  const %gain: $T[$width] = seed(6)\n";
  text += "  %h0: $T[1,$rows,$width] = copy(%x)\n  %length: i32[1] = copy(%at)\n";
  text += "  %angles: $T[1,$rows,$head] = copy(%turns)\n";
  for (int i = 0; i < kLayers; ++i) text += filled(kLayer, {{"$i", cat(i)}, {"$next", cat(i + 1)}});
  std::map<std::string, std::string> words = words_of(f);
  words["$last"] = cat(kLayers);
  return filled(text + outputs + states + "}\n", words);
}

Buffer random_numbers(Element e, int64_t count, double size, uint64_t seed) {
  std::vector<float> numbers(static_cast<size_t>(count));
  for (size_t n = 0; n < numbers.size(); ++n)
    numbers[n] = static_cast<float>(size * (static_cast<double>(mix64(seed + n) >> 40) * 0x1p-23 - 1));
  Buffer codes(static_cast<size_t>(packed_bytes(e, count)));
  info(e).encode(numbers.data(), count, codes.data(), 0);
  return codes;
}

Graph with_weights(Graph g) {
  for (uint64_t i = 0; i < 4; ++i) {
    Value& w = g.at(g.inputs.back());
    g.inputs.pop_back();
    w.constant = true;
    w.data = Bytes::own(random_numbers(w.type.quant.element, elements(w.type.shape), 0.05, i << 32));
  }
  return g;
}

Result<Engine> chained_engine(const Form& f, bool in_place = true) {
  std::string text = decoder_text(f);
  for (int i = 0; i < kLayers && !in_place; ++i) {
    const std::string keys = cat("%keys", i, ", "), kept = cat("%kept", i), layer = cat("  %qkv", i, ":");
    text.replace(text.find(keys), keys.size(), kept + ", ");
    const std::string cache = cat(f.element, "[1,", kCacheRows, ",1,", f.head, "]");
    text.insert(text.find(layer), cat("  ", kept, ": ", cache, " = copy(%keys", i, ")\n"));
  }
  if (!in_place) text = filled(text, {{"in_place=1, ", ""}});
  TS_ASSIGN(Graph graph, parse_graph(text));
  graph = with_weights(std::move(graph));
  Engine e;
  e.target = Arch::sm90;
  ConstantPool pool(e.constants, &e.states);
  TS_ASSIGN(Plan plan, make_plan(graph, {.target = Arch::sm90, .chains = true}, pool));
  e.plans.push_back(std::move(plan));
  return e;
}

// The same steps, each launched by itself.
Plan apart(Plan plan) {
  for (PlanStep& s : plan.steps) s.chain = -1;
  return plan;
}

using Buffers = std::vector<std::vector<uint8_t>>;

Buffers ports_of(const Plan& plan, const std::vector<Port>& ports, uint8_t poison) {
  Buffers all;
  for (const Port& p : ports) all.emplace_back(static_cast<size_t>(port_bytes(plan, p)), poison);
  return all;
}

// Fresh numbers in [-1, 1) of 16 bits each; `at` rows are in the cache.
void draw(const Plan& plan, Buffers& in, uint64_t seed, int32_t at) {
  for (size_t i = 0; i < in.size(); ++i) {
    const Element e = plan.tensors[static_cast<size_t>(plan.inputs[i].tensor)].desc.type.element;
    if (e == Element::i32) {
      std::memcpy(in[i].data(), &at, sizeof(at));
      continue;
    }
    const Buffer numbers = random_numbers(e, static_cast<int64_t>(in[i].size() / 2), 1, seed + i * 1000003);
    std::memcpy(in[i].data(), numbers.data(), in[i].size());
  }
}

Status run(Executor& executor, const Plan& plan, const Buffers& in, Buffers& out, bool first) {
  std::vector<const void*> from;
  std::vector<void*> to;
  for (size_t i = 0; i < in.size(); ++i)
    from.push_back(!first && is_state(plan, plan.inputs[i]) ? nullptr : in[i].data());
  for (auto& b : out) to.push_back(b.data());
  return executor.run(from, to);
}

class FewBlocks {
 public:
  explicit FewBlocks(const char* most) {
    if (most != nullptr) setenv(sm90::kMostBlocksVariable, most, 1);
  }
  ~FewBlocks() { unsetenv(sm90::kMostBlocksVariable); }
};

class Chains : public testing::TestWithParam<Form> {};

TEST(Chains, ALayerIsPhasesOfOne) {
  const auto e = chained_engine({"bf16", 10, 128, 2});
  ASSERT_TRUE(e.ok()) << e.status().message();
  ASSERT_TRUE(check_engine(*e).ok()) << check_engine(*e).message();
  const std::vector<PlanStep>& steps = e->plans[0].steps;
  EXPECT_EQ(std::count_if(steps.begin(), steps.end(), [](const PlanStep& s) { return s.chain == 0; }), 5 * kLayers);
}

// Keys that do not stay in their own memory are copied by another kernel first: the matmul is no phase then, and what
// is left between two of them is too short.
TEST(Chains, KeysWithMemoryOfTheirOwnEndOne) {
  const auto e = chained_engine({"bf16", 10, 128, 2}, /*in_place=*/false);
  ASSERT_TRUE(e.ok()) << e.status().message();
  for (const PlanStep& s : e->plans[0].steps) EXPECT_TRUE(!s.layer.starts_with("qkv") || s.chain == -1) << s.layer;
}

TEST_P(Chains, GivesTheBitsOfTheSameKernelsApart) {
  auto e = chained_engine(GetParam());
  ASSERT_TRUE(e.ok()) << e.status().message();
  if (const std::string why = why_not_here(Arch::sm90); !why.empty()) GTEST_SKIP() << why;
  e->plans.push_back(apart(e->plans[0]));
  const Plan& plan = e->plans[0];
  const FewBlocks few(GetParam().blocks);
  const auto chained = bind(*e, plan), single = bind(*e, e->plans[1]);
  ASSERT_TRUE(chained.ok()) << chained.status().message();
  ASSERT_TRUE(single.ok()) << single.status().message();
  Buffers in = ports_of(plan, plan.inputs, 0);
  std::vector<uint8_t> before;
  for (int i = 0; i < kRuns; ++i) {
    draw(plan, in, static_cast<uint64_t>(i) << 32, i % (kCacheRows - GetParam().rows + 1));
    Buffers got = ports_of(plan, plan.outputs, 0xff), want = ports_of(plan, plan.outputs, 0xff);
    ASSERT_TRUE(run(**chained, plan, in, got, i == 0).ok());
    ASSERT_TRUE(run(**single, plan, in, want, i == 0).ok());
    for (size_t o = 0; o < got.size(); ++o) ASSERT_EQ(got[o], want[o]) << plan.outputs[o].name << " of run " << i;
    ASSERT_NE(got[0], before) << "all answers are alike: this test would say nothing";
    before = got[0];
  }
}

// With few blocks each has several tiles and heads in a phase. 64 rows, 4 heads of 256: the ring has 7 stages.
INSTANTIATE_TEST_SUITE_P(
    sm90, Chains,
    testing::Values(Form{"bf16", 10, 256, 4}, Form{"bf16", 10, 256, 4, "8"}, Form{"bf16", 10, 256, 4, "27"},
                    Form{"bf16", 1, 128, 2}, Form{"bf16", 16, 64, 8}, Form{"bf16", 16, 64, 8, "8"},
                    Form{"f16", 10, 256, 2}, Form{"f16", 17, 128, 2}, Form{"bf16", 50, 256, 4},
                    Form{"bf16", 50, 256, 4, "8"}, Form{"bf16", 64, 128, 4}, Form{"bf16", 64, 256, 4, "16"}),
    [](const auto& of) {
      const Form& f = of.param;
      return cat(f.element, "_rows", f.rows, "_head", f.head, "_blocks", f.blocks == nullptr ? "" : f.blocks);
    });

}  // namespace
}  // namespace tessera
