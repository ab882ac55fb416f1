// SPDX-License-Identifier: Apache-2.0
// Scales that are made while running: the planner gives them a place that lives as long as their codes, views share it,
// and an engine file cannot say otherwise.
#include "plan/make_plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ir/check.h"
#include "ir/text.h"
#include "op/reference.h"
#include "plan/engine_file.h"
#include "plan/manifest.h"
#include "runtime/executor.h"

namespace tessera {
namespace {

// Two quantized values at once, one of them read through folded and unfolded axes, 4-bit rows that end inside a byte.
Result<Graph> parse_quantized(const std::string& type, const std::string& scale2, const std::string& view) {
  const std::string text = R"(graph g {
  in %x: f32[2,3,35]
  const %s2: f32[1] = {0.01}
  %a: )" + type + "[2,3,35]" +
                           scale2 + R"( = copy(%x)
  %h: f32[2,3,35] = copy(%a)
  %b: )" + type + "[2,3,35]" +
                           scale2 + R"( = copy(%h)
  %v: )" + type + "[6,35]" +
                           scale2 + " = view(%a) " + view + R"(
  %w: )" + type + "[2,1,3,35]" +
                           scale2 + R"( = view(%b) {strides=[105,105,35,1]}
  %p: f32[6,35] = copy(%v)
  %q: f32[2,1,3,35] = copy(%w)
  %pv: f32[2,1,3,35] = view(%p) {strides=[105,105,35,1]}
  %y: f32[2,1,3,35] = map(%pv, %q) {fn="sub"}
  out %y
}
)";
  return parse_graph(text);
}

Graph quantized_graph(const std::string& type, const std::string& scale2) {
  auto g = parse_quantized(type, scale2, "{strides=[35,1]}");
  EXPECT_TRUE(g.ok()) << g.status().message();
  return std::move(g).value();
}

Result<Engine> engine_of(const Graph& graph, Arch target, bool as_reference) {
  Engine e;
  e.target = target;
  ConstantPool pool(e.constants);
  TS_ASSIGN(Plan plan, make_plan(graph, {.target = target, .batch = 2, .as_reference = as_reference}, pool));
  e.plans.push_back(std::move(plan));
  return e;
}

const PlanTensor* find(const Plan& plan, const std::string& name) {
  for (const PlanTensor& t : plan.tensors) {
    if (t.name == name) return &t;
  }
  return nullptr;
}

struct Made {
  const char *type, *scale2;
};
const Made kMade[] = {{"e4m3:token(f32)!", ""},
                      {"i8:token(f32)!", ""},
                      {"e4m3:tensor(f32)!", ""},
                      {"e4m3:block32(e8m0)!", ""},
                      {"e2m1:block16(e4m3):tensor(f32)!", " scale2=%s2"}};

TEST(DynamicScales, LieInTheArenaBesideTheirCodes) {
  for (const auto& [type, scale2] : kMade) {
    const Graph g = quantized_graph(type, scale2);
    ASSERT_TRUE(check(g).ok()) << check(g).message();
    const auto made = engine_of(g, Arch::ref, true);
    ASSERT_TRUE(made.ok()) << made.status().message();
    ASSERT_TRUE(check_engine(*made).ok()) << check_engine(*made).message();
    const Plan& plan = made->plans[0];
    const QuantType quant = *parse_quant_type(type);
    const PlanTensor *a = find(plan, "a"), *scale = find(plan, "a.scale"), *view = find(plan, "v");
    ASSERT_NE(scale, nullptr) << type;
    EXPECT_EQ(scale->storage, Storage::kArena);
    EXPECT_EQ(scale->desc.type, QuantType(quant.scale.element));
    EXPECT_EQ(elements(scale->desc.shape), scale_count(quant.scale, 6, 35));
    EXPECT_EQ(&plan.tensors[static_cast<size_t>(a->scale)], scale);
    EXPECT_EQ(view->scale, a->scale) << "a view shares the scales of its base";
    EXPECT_EQ(view->offset_bytes, a->offset_bytes);
    EXPECT_EQ(a->scale2 >= 0, quant.scale2.granularity != Granularity::kNone);
    // a and b live together: none of their four pieces overlap.
    const PlanTensor* live[] = {a, scale, find(plan, "b"), find(plan, "b.scale")};
    for (const PlanTensor* s : live) {
      for (const PlanTensor* t : live) {
        const int64_t bytes = packed_bytes(s->desc.type.element, elements(s->desc.shape));
        if (s == t || s->offset_bytes > t->offset_bytes) continue;
        EXPECT_LE(s->offset_bytes + bytes, t->offset_bytes) << type << " " << s->name << " and " << t->name;
      }
    }
  }
}

// a and its copy b are the same codes of the same numbers but for a second rounding, which leaves codes alone.
TEST(DynamicScales, RunOnTheReference) {
  for (const auto& [type, scale2] : kMade) {
    const auto made = engine_of(quantized_graph(type, scale2), Arch::ref, true);
    ASSERT_TRUE(made.ok()) << made.status().message();
    const auto bytes = write_manifest(*made);  // and the engine file keeps them
    EXPECT_NE(bytes.find("a.scale"), std::string::npos);
    auto executor = bind(*made, made->plans[0]);
    ASSERT_TRUE(executor.ok()) << executor.status().message();
    std::vector<float> x(210), y(210, NAN);
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i)) * (i < 100 ? 1.0f : 0.01f);
    const void* in[] = {x.data()};
    void* out[] = {y.data()};
    ASSERT_TRUE((*executor)->run(in, out).ok());
    for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], 0.0f) << type << " " << i;
  }
}

TEST(DynamicScales, ViewsKeepRowsWhole) {
  for (const char* view : {"{strides=[1,6]}", "{strides=[34,1], offset=2}", "{strides=[0,1]}"}) {
    const auto rows = parse_quantized("e4m3:token(f32)!", "", view);  // parsing checks the graph
    ASSERT_FALSE(rows.ok()) << view;
    EXPECT_NE(rows.status().message().find("fold or unfold"), std::string::npos) << rows.status().message();
    EXPECT_TRUE(parse_quantized("f16", "", view).ok()) << view;
  }
}

TEST(DynamicScales, GraphsAndEnginesThatSayOtherwiseAreRefused) {
  Graph g = quantized_graph("e4m3:token(f32)!", "");
  g.values[1].type.quant.dynamic = true;  // %s2: a plain constant
  EXPECT_FALSE(check(g).ok());
  g = quantized_graph("e4m3:token(f32)!", "");
  g.outputs = {g.nodes[0].outputs[0]};
  EXPECT_FALSE(engine_of(g, Arch::ref, true).ok()) << "the caller has no place for scales";
  const auto made = engine_of(quantized_graph("e4m3:token(f32)!", ""), Arch::ref, true);
  ASSERT_TRUE(made.ok());
  const size_t a = static_cast<size_t>(find(made->plans[0], "a") - made->plans[0].tensors.data());
  Engine other = *made;
  other.plans[0].tensors[a].scale = -1;
  EXPECT_FALSE(check_engine(other).ok());
  other = *made;
  other.plans[0].tensors[static_cast<size_t>(other.plans[0].tensors[a].scale)].desc = dense_operand({5}, Element::f32);
  EXPECT_FALSE(check_engine(other).ok()) << "six rows have six scales";
  other = *made;
  Buffer numbers(24);
  std::memset(numbers.data(), 0, numbers.size());
  other.constants.push_back({"read only", Bytes::own(std::move(numbers))});
  PlanTensor& scale = other.plans[0].tensors[static_cast<size_t>(other.plans[0].tensors[a].scale)];
  scale.storage = Storage::kConstant, scale.offset_bytes = 0;
  scale.index = static_cast<int64_t>(other.constants.size()) - 1;
  EXPECT_FALSE(check_engine(other).ok()) << "a producer may not write to a constant";
}

// The planner chooses kernels before it knows where operands lie, so a norm that is offered any view must run one that
// begins at no multiple of 16 bytes.
TEST(Views, NormsOfRowsThatBeginAnywhereHaveAPlan) {
  for (const int64_t rows : {1, 5, 4096}) {
    const std::string wide = cat("bf16[2,", rows, ",1032]"), own = cat("bf16[2,", rows, ",1024]");
    auto g = parse_graph(
        cat("graph g {\n  in %x: ", wide, "\n  const %g: bf16[1024] = seed(1)\n  %c: ", wide,
            " = copy(%x)\n  %v: ", own, " = view(%c) {offset=4, strides=[", 1032 * rows, ",1032,1]}\n  %n: ", own,
            " = norm(%v, %g) {eps=0.000001, kind=\"rms\"} @\"norm\"\n  %y: ", own, " = copy(%n)\n  out %y\n}\n"));
    ASSERT_TRUE(g.ok()) << g.status().message();
    const auto engine = engine_of(*g, Arch::sm90, false);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    EXPECT_TRUE(check_engine(*engine).ok()) << rows << " rows: " << check_engine(*engine).message();
  }
}

// A few numbers of the file stand for many: rows that are repeated, and others read backward.
TEST(Views, OfConstantsAreReadWhereTheyLie) {
  auto g = parse_graph(R"(graph g {
  in %x: f32[2,2,3]
  const %c: f32[4] = {1, 2, 3, 4}
  %again: f32[2,2,2] = view(%c) {strides=[0,0,1], offset=2}
  %turned: f32[2,2,2] = view(%c) {strides=[1,0,2]}
  %y: f32[2,2,7] = concat(%x, %again, %turned) {axis=2} @"join"
  out %y
}
)");
  ASSERT_TRUE(g.ok()) << g.status().message();
  for (const Arch arch : {Arch::ref, Arch::cpu, Arch::sm90}) {
    const auto made = engine_of(*g, arch, arch == Arch::ref);
    ASSERT_TRUE(made.ok()) << made.status().message();
    EXPECT_TRUE(check_engine(*made).ok()) << check_engine(*made).message();
    ASSERT_EQ(made->constants.size(), 1u);
    EXPECT_EQ(made->constants[0].data.size(), 16u);
    if (arch == Arch::sm90) continue;  // that it can be planned
    auto executor = bind(*made, made->plans[0]);
    ASSERT_TRUE(executor.ok()) << executor.status().message();
    const std::vector<float> x = {7, 7, 7, 8, 8, 8, 9, 9, 9, 6, 6, 6};
    std::vector<float> y(28, NAN);
    const void* in[] = {x.data()};
    void* out[] = {y.data()};
    ASSERT_TRUE((*executor)->run(in, out).ok());
    EXPECT_EQ(y, (std::vector<float>{7, 7, 7, 3, 4, 1, 3, 8, 8, 8, 3, 4, 1, 3,  //
                                     9, 9, 9, 3, 4, 2, 4, 6, 6, 6, 3, 4, 2, 4}));
  }
}

// A weight's precision is asked for: it is a constant, and says so.
TEST(Views, WeightsAreConstantsOfTheirOwn) {
  const auto with = [](const std::string& w) {
    return parse_graph(cat("graph g {\n  in %x: f32[2,4]\n  const %c: f32[12] = seed(1)\n", w,
                           "  %y: f32[2,3] = matmul(%x, %w) @\"fc\" asked fp32\n  out %y\n}\n"));
  };
  for (const char* view : {"  %w: f32[3,4] = view(%c) {strides=[0,1]}\n", "  %w: f32[3,4] = view(%c) {strides=[4,1]}\n",
                           "  %v: f32[3,4] = view(%c) {strides=[1,3]}\n  %w: f32[3,4] = copy(%v)\n"}) {
    const auto g = with(view);
    ASSERT_TRUE(g.ok()) << g.status().message();
    const auto made = engine_of(*g, Arch::cpu, false);
    ASSERT_FALSE(made.ok()) << view;
    EXPECT_NE(made.status().message().find("layer fc: its weight 'c' is a view of a constant"), std::string::npos)
        << made.status().message();
  }
  const auto g = with("  const %w: f32[3,4] = seed(2)\n");
  ASSERT_TRUE(g.ok()) << g.status().message();
  auto engine = engine_of(*g, Arch::cpu, false);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  ASSERT_TRUE(check_engine(*engine).ok()) << check_engine(*engine).message();
  for (PlanTensor& t : engine->plans[0].tensors) t.desc.constant = false;
  EXPECT_NE(check_engine(*engine).message().find("it is not said to be constant"), std::string::npos)
      << check_engine(*engine).message();
}

}  // namespace
}  // namespace tessera
