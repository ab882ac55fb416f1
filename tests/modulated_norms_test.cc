// SPDX-License-Identifier: Apache-2.0
// Norms whose gain and shift change with time, folded for Hopper: which ones, what the plan then is, that it computes
// what the norms did, and that faults in it are found.
#include <gtest/gtest.h>

#include <algorithm>

#include "calibrate/ranges_file.h"
#include "compile/compile.h"
#include "golden/golden_run.h"
#include "lower/fold_norms.h"
#include "op/extra_results.h"
#include "precision/quantize.h"
#include "testing/modulated_block.h"
#include "testing/planted.h"
#include "testing/run_graph.h"

namespace tessera {
namespace {

using namespace testing;

const std::set<std::string> kAll{"norm1", "norm2", "norm3"};
const std::vector<std::string> kPrecisions = {"fp16", "bf16", "fp8", "fp8_bf16"};

const PlantedModel& model() {
  static const PlantedModel kModel = [] {
    PlantedModel m = text_model("modulated", modulated_block());
    m.folded = kAll;
    return m;
  }();
  return kModel;
}

LowerOptions asking(const std::string& precision, bool folded, Arch target = Arch::sm90) {
  LowerOptions lowering;
  lowering.types.precision = precision;
  lowering.types.ranges = &model().ranges;
  lowering.types.target = target;
  if (folded) lowering.types.folded_norms = kAll;
  lowering.plan.target = target;
  lowering.plan.as_reference = true;
  return lowering;
}

std::set<std::string> foldable(const Graph& graph, const QuantizeOptions& types) {
  const auto names = foldable_norms(graph, types, {});
  EXPECT_TRUE(names.ok()) << names.status().message();
  return names.ok() ? *names : std::set<std::string>();
}

TEST(ModulatedNorms, FoldBetweenLinearLayersOfFewRows) {
  for (const std::string& precision : kPrecisions)
    EXPECT_EQ(foldable(model().canonical, asking(precision, false).types), kAll) << precision;
  EXPECT_EQ(foldable(model().canonical, asking("int8", false).types), (std::set<std::string>{"norm3"}))
      << "what leaves is in 16 bits";
  EXPECT_TRUE(foldable(model().canonical, asking("fp16", false, Arch::cpu).types).empty());
  EXPECT_TRUE(foldable(canonical(modulated_block(300)), asking("fp16", false).types).empty());
  EXPECT_EQ(modulated_norms(model().canonical), (std::vector<std::string>{"norm1", "norm2", "norm3"}));
  EXPECT_TRUE(norms_between_layers(model().canonical).empty());
}

// Only about zero, and in 8 bits only with a range of what is rounded.
TEST(ModulatedNorms, StayWhereTheyDoNotFit) {
  const auto with = [](const std::string& from, const std::string& to) {
    std::string text = modulated_block();
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return canonical(text.replace(at, from.size(), to));
  };
  const QuantizeOptions types = asking("fp16", false).types;
  EXPECT_EQ(foldable(with("kind=\"rms\"", "kind=\"layer\""), types), (std::set<std::string>{"norm2", "norm3"}));
  QuantizeOptions fp8 = asking("fp8_bf16", false).types;
  Ranges ranges = model().ranges;
  ranges.values.erase(gained_value("norm2"));
  fp8.ranges = &ranges;
  EXPECT_EQ(foldable(model().canonical, fp8), (std::set<std::string>{"norm1", "norm3"}));
  ranges = model().ranges;
  ranges.values.at("norm3").by_hand = 2.0f;
  EXPECT_EQ(foldable(model().canonical, fp8), (std::set<std::string>{"norm1", "norm2"}));
}

TEST(ModulatedNorms, HaveARangeOfWhatIsRounded) {
  for (const std::string& norm : kAll) {
    ASSERT_TRUE(model().ranges.values.contains(gained_value(norm)));
    EXPECT_GT(model().ranges.values.at(gained_value(norm)).amax, 0);
  }
  EXPECT_TRUE(check_ranges(model().ranges, model().canonical).ok());
}

Result<Plan> lowered(const LowerOptions& lowering, Engine& engine) {
  ConstantPool pool(engine.constants);
  return lower(model().canonical, lowering, pool);
}

TEST(ModulatedNorms, LeaveNoKernelBehind) {
  for (const std::string& precision : kPrecisions) {
    Engine engine;
    const auto plan = lowered(asking(precision, true), engine);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    std::vector<std::string> kernels;
    int64_t tables = 0;
    for (const PlanStep& s : plan->steps) {
      EXPECT_NE(s.op, "norm") << precision;
      EXPECT_NE(s.op, "map") << precision << " " << s.layer;
      if (s.op == "gather") tables += s.attrs.integer(kTables);
      if (s.op == "matmul") kernels.push_back(s.layer);
      for (size_t o = 1; o < s.out.size(); ++o) {
        const bool codes = static_cast<int>(o) == ExtraResults::of(s.attrs).codes;
        const QuantType& type = plan->tensors[static_cast<size_t>(s.out[o])].desc.type;
        const Element carrier = precision == "fp16" || precision == "fp8" ? Element::f16 : Element::bf16;
        const bool head = s.layer == "down";  // the last two are asked for in the carrier
        EXPECT_EQ(type, !codes                                  ? QuantType(Element::f32)
                        : precision.starts_with("fp8") && !head ? kE4m3PerTensor
                                                                : QuantType(carrier))
            << s.layer;
      }
    }
    EXPECT_EQ(kernels, (std::vector<std::string>{"embed", "q+k+v", "o", "gate+up", "down", "left", "right", "further"}))
        << precision;
    const auto count =
        std::count_if(plan->steps.begin(), plan->steps.end(), [](const PlanStep& s) { return s.op == "gather"; });
    EXPECT_EQ(count, 2) << "one for each type: gains and the biases of what leaves; gates and the other biases";
    EXPECT_EQ(tables, 9) << "two of the model, and a bias each of seven layers";
  }
}

// By the references. In f32 the algebra is exact but for the rounding of biases to f32; in 16 bits what is rounded
// moves, in 8 bits too (tests/folded_norms_test.cc).
TEST(ModulatedNorms, AreComputedAsBefore) {
  for (const std::string precision : {"fp32", "fp16", "bf16", "fp8"}) {
    std::vector<Outputs64> outputs;
    for (const bool folded : {false, true}) {
      LowerOptions lowering = asking(precision, folded, precision == "fp32" ? Arch::cpu : Arch::sm90);
      Engine engine;
      ConstantPool pool(engine.constants);
      Graph graph = model().canonical;
      if (precision == "fp32" && folded) {
        ASSERT_TRUE(fold_norms(graph, kAll, {}).ok());
        lowering.types.folded_norms.clear();
        lowering.plan.target = Arch::ref;
      }
      const auto plan =
          precision == "fp32" && folded ? make_plan(graph, lowering.plan, pool) : lower(graph, lowering, pool);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      const auto made = run_plan(engine, *plan, random_samples(*plan, 1, 5));
      ASSERT_TRUE(made.ok()) << made.status().message();
      outputs.push_back(*made);
    }
    const double step = precision == "fp32"   ? 0x1p-24
                        : precision == "fp16" ? 0x1p-11
                        : precision == "bf16" ? 0x1p-8
                                              : 0x1p-4;
    for (size_t o = 0; o < 3; ++o) {
      EXPECT_GT(*std::max_element(outputs[1][o].begin(), outputs[1][o].end()), 0);
      EXPECT_LE(relative_error(outputs[0][o], outputs[1][o]), 10 * step) << precision;
    }
  }
}

TEST(ModulatedNorms, NothingIsFoundInThoseThatAreFoldedRight) {
  EXPECT_GE(expect_none_found(model(), kPrecisions), 6);
  for (const std::string& precision : kPrecisions) {  // with joined layers too
    Engine engine;
    const auto plan = lowered(asking(precision, true), engine);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const Validation v = validate_plan(engine.constants, *plan, model().canonical, {.ranges = &model().ranges});
    EXPECT_TRUE(v.faults.empty()) << precision << ": " << v.faults[0];
    EXPECT_TRUE(v.followed);
    EXPECT_EQ(v.computed, 4) << "three layers behind the norms, of which one is two";
  }
}

Fault in_graph(const std::string& name, const std::function<std::string(Graph&)>& body) { return {name, body}; }

Node* node_of(Graph& g, const std::string& name) {
  const auto at = std::find_if(g.nodes.begin(), g.nodes.end(), [&](const Node& n) { return n.name == name; });
  return at == g.nodes.end() ? nullptr : &*at;
}

// What shows a layer the row that it reads as operand `at`.
Node* view_of(Graph& g, const Node& layer, size_t at) {
  for (Node& n : g.nodes) {
    if (n.op == "view" && n.outputs[0] == layer.inputs[at]) return &n;
  }
  return nullptr;
}

std::string move_view(Graph& g, const std::string& layer, size_t at, int64_t by) {
  Node* view = view_of(g, *node_of(g, layer), at);
  if (view == nullptr) return "";
  view->attrs.set("offset", view->attrs.integer("offset") + by);
  return layer;
}

size_t gain_at(Graph& g) { return static_cast<size_t>(ExtraResults::of(node_of(g, "embed")->attrs).gain); }
size_t bias_at(Graph& g, const char* layer) {
  return static_cast<size_t>(node_of(g, layer)->then.find(StepKind::bias)->operand);
}
bool is_folded(Graph& g) { return ExtraResults::of(node_of(g, "embed")->attrs).gain > 0; }

// Swaps two rows of the table that a layer's bias is picked of.
std::string swap_rows(Graph& g, const char* layer) {
  Node* view = view_of(g, *node_of(g, layer), bias_at(g, layer));
  if (view == nullptr) return "";
  for (Node& n : g.nodes) {
    if (n.op != "gather" || n.outputs[0] != view->inputs[0]) continue;
    const int64_t cols = g.at(n.inputs[0]).type.shape[1];
    reorder_codes(own_constant(g, n, 0), [=](int64_t i) { return i < 2 * cols ? (i + cols) % (2 * cols) : i; });
    return layer;
  }
  return "";
}

std::vector<Fault> faults() {
  const auto folded = [](const std::string& name, const std::function<std::string(Graph&)>& body) {
    return in_graph(name, [=](Graph& g) { return is_folded(g) ? body(g) : std::string(); });
  };
  return {folded("modulated: gain of another norm", [](Graph& g) { return move_view(g, "embed", gain_at(g), 64); }),
          folded("modulated: codes without gain",
                 [](Graph& g) -> std::string {
                   Node& n = *node_of(g, "embed");
                   if (g.at(n.outputs[1]).type.quant.scaled()) {
                     n.attrs.erase(kCodesGain);
                     n.inputs.pop_back();
                     return "q";
                   }
                   return "";
                 }),
          folded("modulated: bias of another layer", [](Graph& g) { return move_view(g, "k", bias_at(g, "k"), 64); }),
          folded("modulated: biases of other steps", [](Graph& g) { return swap_rows(g, "q"); }),
          folded("modulated: no shift",
                 [](Graph& g) {
                   Node& n = *node_of(g, "v");
                   n.then.steps.erase(n.then.steps.begin() + 1);
                   return std::string("v");
                 }),
          folded("modulated: eps x1000", [](Graph& g) {
            Node& n = *node_of(g, "k");
            n.attrs.set(kFoldedEps, 1000 * n.attrs.number(kFoldedEps));
            return std::string("k");
          })};
}

TEST(ModulatedNorms, PlantedFaultsAreFound) { expect_caught(faults(), {model()}, kPrecisions); }

TEST(ModulatedNorms, TheScaleOfTheirCodesIsTheirOwn) {
  const Fault scale{"scale", [&](Graph& g) -> std::string {
                      const ValueId codes = node_of(g, "embed")->outputs[1];
                      if (g.at(codes).scale == kNoValue) return "";
                      const float other = 1.5f * static_cast<float>(g.numbers(g.at(codes).scale)[0]);
                      const ValueId made = g.add_constant("planted", {1}, {other});
                      for (Value& v : g.values) {
                        if (v.scale == g.at(codes).scale) v.scale = made;
                      }
                      return "embed";
                    }};
  const Lowered l = lowered_with(model(), "fp8", Arch::sm90, &scale);
  ASSERT_TRUE(l.status.ok() && !l.layer.empty()) << l.status.message();
  ASSERT_FALSE(l.found.faults.empty());
  EXPECT_NE(l.found.faults[0].find("the activation scale of 'norm1.gained' is "), std::string::npos)
      << l.found.faults[0];
}

}  // namespace
}  // namespace tessera
