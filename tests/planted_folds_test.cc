// SPDX-License-Identifier: Apache-2.0
// Faults in what passes make of several layers for Hopper: norms folded into the layers around them, gates. Their
// weights are nowhere in the model as they are stored, and are checked all the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "op/extra_results.h"
#include "precision/quantize.h"
#include "testing/planted.h"

namespace tessera {
namespace {

using namespace testing;

const std::string kExported = TS_SOURCE_DIR "/tests/data/models";
const std::vector<std::string> kFolded = {"fp16", "bf16", "fp8"};

// Two norms between linear layers.
std::string block(const char* kind) {
  return cat(R"(graph block {
  in %image: f32[2,40,32]
  const %we: f32[96,32] = seed(7)
  const %gain: f32[96] = seed(1)
  const %shift: f32[96] = seed(8)
  const %w1: f32[192,96] = seed(2)
  const %b1: f32[192] = seed(9)
  const %w2: f32[96,192] = seed(3)
  const %wh: f32[16,96] = seed(5)
  %x: f32[2,40,96] = matmul(%image, %we) @"embed"
  %n: f32[2,40,96] = norm(%x, %gain, %shift) {eps=0.00001, kind=")",
             kind, R"("} @"norm1"
  %h0: f32[2,40,192] = matmul(%n, %w1) @"fc1"
  %h1: f32[2,40,192] = map(%h0, %b1) {fn="add"}
  %h: f32[2,40,192] = map(%h1) {fn="gelu_erf"} @"act"
  %d: f32[2,40,96] = matmul(%h, %w2) @"fc2"
  %r: f32[2,40,96] = map(%d, %x) {fn="add"} @"add1"
  %o: f32[2,40,96] = norm(%r, %gain, %shift) {eps=0.00001, kind=")",
             kind, R"("} @"norm2"
  %y: f32[2,40,16] = matmul(%o, %wh) @"head"
  out %y
})");
}

std::vector<PlantedModel> folded_models() {
  std::vector<PlantedModel> all;
  for (const char* kind : {"layer", "rms"}) {
    all.push_back(text_model(kind, block(kind)));
    all.back().folded = {"norm1", "norm2"};
  }
  return all;
}

Node* folded_layer(Graph& g) {
  for (Node& n : g.nodes) {
    if (n.then.find(StepKind::normalise) != nullptr && n.name == "fc1") return &n;
  }
  return nullptr;
}

std::vector<double> seeded(const char* name) {
  const Graph g = text_model("numbers", block("layer")).canonical;
  for (size_t v = 0; v < g.values.size(); ++v) {
    if (g.values[v].constant && g.values[v].name == name) return g.numbers(static_cast<ValueId>(v));
  }
  ADD_FAILURE() << name;
  return {};
}

// Numbers in the type of the layer's operand, in its place.
std::string put(Graph& g, Node& n, size_t operand, const std::vector<double>& numbers) {
  const Type type = g.at(n.inputs[operand]).type;
  const std::string layer = n.name;
  const ValueId plain = g.add_constant("planted", type.shape, std::vector<float>(numbers.begin(), numbers.end()));
  const auto typed = quantize_constant(g, plain, type.quant, layer);
  EXPECT_TRUE(typed.ok()) << typed.status().message();
  for (Node& node : g.nodes) {
    if (node.name == layer) node.inputs[operand] = *typed;
  }
  return layer;
}

Fault folded(const std::string& name, const std::function<std::string(Graph&, Node&)>& body) {
  return {name, [=](Graph& g) { return folded_layer(g) == nullptr ? std::string() : body(g, *folded_layer(g)); }};
}

size_t bias_of(const Node& n) { return static_cast<size_t>(n.then.find(StepKind::bias)->operand); }

std::vector<double> times_gain(bool centred) {
  std::vector<double> w = seeded("w1");
  const std::vector<double> gain = seeded("gain");
  for (size_t r = 0; r < w.size() / 96; ++r) {
    double mean = 0;
    for (size_t c = 0; c < 96; ++c) mean += (w[r * 96 + c] *= gain[c]) / 96;
    for (size_t c = 0; centred && c < 96; ++c) w[r * 96 + c] -= mean;
  }
  return w;
}

std::vector<Fault> folded_faults() {
  return {
      folded("folded: weight all zero",
             [](Graph& g, Node& n) { return put(g, n, 1, std::vector<double>(192 * 96, 0.0)); }),
      folded("folded: gain not folded", [](Graph& g, Node& n) { return put(g, n, 1, seeded("w1")); }),
      folded("folded: centring left out or too much",
             [](Graph& g, Node& n) { return put(g, n, 1, times_gain(n.attrs.word(kFoldedKind, "layer") == "rms")); }),
      folded("folded: bias without shift", [](Graph& g, Node& n) { return put(g, n, bias_of(n), seeded("b1")); }),
      folded("folded: rows in another order",
             [](Graph& g, Node& n) {
               std::vector<double> w = times_gain(n.attrs.word(kFoldedKind, "layer") != "rms");
               std::rotate(w.begin(), w.begin() + 96, w.end());
               return put(g, n, 1, w);
             }),
      folded("folded: eps x1000",
             [](Graph&, Node& n) {
               n.attrs.set(kFoldedEps, 1000 * n.attrs.number(kFoldedEps));
               return n.name;
             }),
      folded("folded: the other kind of norm",
             [](Graph&, Node& n) {
               n.attrs.set(kFoldedKind, std::string(n.attrs.word(kFoldedKind, "layer") == "rms" ? "layer" : "rms"));
               return n.name;
             }),
      folded("folded: moments of another layer", [](Graph& g, Node& n) -> std::string {
        const std::string layer = n.name;
        const Node* head = nullptr;
        for (const Node& node : g.nodes) head = node.name == "fc2" ? &node : head;
        // fc2 comes after fc1: its moments are not there yet. The other way round then.
        const size_t at = static_cast<size_t>(n.then.find(StepKind::normalise)->operand);
        for (Node& node : g.nodes) {
          if (node.name != "head" || head == nullptr) continue;
          const Step* s = node.then.find(StepKind::normalise);
          if (s == nullptr) return "";
          node.inputs[static_cast<size_t>(s->operand)] = n.inputs[at];
          return node.name;
        }
        return "";
      })};
}

TEST(PlantedFolds, Norms) { expect_caught(folded_faults(), folded_models(), kFolded); }

TEST(PlantedFolds, NothingIsFoundInNormsThatAreFoldedRight) {
  for (const PlantedModel& m : folded_models()) {
    EXPECT_GE(expect_none_found(m, kFolded), 6);
    const Lowered l = lowered_with(m, "fp8", Arch::sm90);
    EXPECT_GE(l.found.computed, 2) << "both folded layers are shown by computing";
  }
}

// The same norms as kernels, over weights that have their gain and centring: another plan of the engine folds them.
std::vector<PlantedModel> plain_models() {
  std::vector<PlantedModel> all = folded_models();
  for (PlantedModel& m : all) m.plain = std::exchange(m.folded, {});
  return all;
}

Fault plain(const std::string& name, const std::function<std::string(Graph&, Node&)>& body) {
  return {name, [=](Graph& g) -> std::string {
            for (Node& n : g.nodes) {
              if (n.name != "norm1" || n.inputs.size() != 1) continue;
              for (Node& layer : g.nodes) {
                if (layer.name == "fc1") return body(g, layer);
              }
            }
            return "";
          }};
}

Node& norm1(Graph& g) {
  return *std::find_if(g.nodes.begin(), g.nodes.end(), [](const Node& n) { return n.name == "norm1"; });
}

bool centred(Graph& g) { return norm1(g).attrs.word("kind", "layer") != "rms"; }

std::vector<Fault> plain_faults() {
  return {plain("plain: gain not in the weight", [](Graph& g, Node& n) { return put(g, n, 1, seeded("w1")); }),
          plain("plain: centring left out or too much",
                [](Graph& g, Node& n) { return put(g, n, 1, times_gain(!centred(g))); }),
          plain("plain: bias without shift", [](Graph& g, Node& n) { return put(g, n, bias_of(n), seeded("b1")); }),
          plain("plain: gain in norm and weight",
                [](Graph& g, Node&) {
                  const std::vector<double> gain = seeded("gain");
                  const ValueId vector = g.add_constant("gain", {96}, std::vector<float>(gain.begin(), gain.end()));
                  norm1(g).inputs.push_back(vector);
                  return std::string("norm1");
                }),
          plain("plain: the other kind of norm",
                [](Graph& g, Node& n) {
                  norm1(g).attrs.set("kind", std::string(centred(g) ? "rms" : "layer"));
                  return n.name;
                }),
          plain("plain: eps x1000", [](Graph& g, Node&) {
            norm1(g).attrs.set("eps", 1000 * norm1(g).attrs.number("eps"));
            return std::string("norm1");
          })};
}

TEST(PlantedFolds, NormsWhoseGainIsInTheWeights) { expect_caught(plain_faults(), plain_models(), kFolded); }

TEST(PlantedFolds, TheScaleOfThePlainValueIsItsOwn) {
  for (PlantedModel m : plain_models()) {
    EXPECT_GE(expect_none_found(m, kFolded), 6);
    // Scales are made of the ranges and compared with them: other ranges at the second look.
    const Fault scale{"scale", [&](Graph& g) -> std::string {
                        Value& codes = g.at(norm1(g).outputs[0]);
                        if (codes.scale == kNoValue) return "";
                        const float other = 1.5f * static_cast<float>(g.numbers(codes.scale)[0]);
                        const ValueId made = g.add_constant("planted", {1}, {other});
                        g.at(norm1(g).outputs[0]).scale = made;
                        return "norm1";
                      }};
    const Lowered l = lowered_with(m, "fp8", Arch::sm90, &scale);
    ASSERT_TRUE(l.status.ok() && !l.layer.empty()) << l.status.message();
    ASSERT_FALSE(l.found.faults.empty());
    EXPECT_NE(l.found.faults[0].find("the activation scale of 'norm1.plain' is "), std::string::npos)
        << l.found.faults[0];
  }
}

// A layer with a gate, after the last pass.
Fault gated(const std::string& name, const std::function<void(Graph&, Node&)>& body) {
  return {name, {}, [=](Graph& g) -> std::string {
            for (Node& n : g.nodes) {
              if (!n.then.gated()) continue;
              const std::string layer = n.name;
              body(g, n);
              return layer;
            }
            return "";
          }};
}

void exchange_halves(Value& v) {
  const int64_t n = elements(v.type.shape);
  reorder_codes(v, [=](int64_t i) { return (i + n / 2) % n; });
}

std::vector<Fault> gate_faults() {
  return {gated("gate: halves exchanged",
                [](Graph& g, Node& n) {
                  Value& w = own_constant(g, n, 1);
                  exchange_halves(w);
                  if (w.scale != kNoValue && elements(g.at(w.scale).type.shape) > 1) exchange_halves(g.at(w.scale));
                  if (const Step* bias = n.then.find(StepKind::bias))
                    exchange_halves(own_constant(g, n, static_cast<size_t>(bias->operand)));
                }),
          gated("gate: weight all zero",
                [](Graph& g, Node& n) {
                  Value& w = own_constant(g, n, 1);
                  for (int64_t i = 0; i < elements(w.type.shape); ++i) set_code(w, i, 0);
                }),
          gated("gate: one code two steps off",
                [](Graph& g, Node& n) {
                  Value& w = own_constant(g, n, 1);
                  set_code(w, 77, two_steps_off(info(w.type.quant.element), code_at(w, 77)));
                }),
          gated("gate: another function", [](Graph&, Node& n) {
            for (Step& s : n.then.steps) {
              if (s.kind == StepKind::gate) s.fn = s.fn == Unary::silu ? Unary::gelu_tanh : Unary::silu;
            }
          })};
}

std::vector<PlantedModel> gated_models() {
  std::vector<PlantedModel> all;
  for (const char* stem : {"dinov2_swiglu_dyn20", "gemma_dyn20", "eva02_dyn18", "llama_dyn18"})
    all.push_back(exported_model(kExported, stem));
  return all;
}

TEST(PlantedFolds, Gates) { expect_caught(gate_faults(), gated_models(), {"fp16", "bf16", "fp8", "int8"}); }

}  // namespace
}  // namespace tessera
