// SPDX-License-Identifier: Apache-2.0
// Layers that compute something else than the model's, planted after quantize or after the last pass, in every
// precision: attributes, programs, operands, views. Each is found, with the layer's name and, where it can be known,
// the cause.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "models/zoo.h"
#include "testing/planted.h"

namespace tessera {
namespace {

using namespace testing;

const std::string kExported = TS_SOURCE_DIR "/tests/data/models";

const std::vector<PlantedModel>& models() {
  static const std::vector<PlantedModel> all = [] {
    std::vector<PlantedModel> m;
    const std::string path = ::testing::TempDir() + "/planted_layers_vit.onnx";
    std::ofstream(path, std::ios::binary) << zoo_onnx("vit-tiny-test", 3).value();
    m.push_back(planted_model("vit", path));
    m.push_back(planted_model("digits", TS_SOURCE_DIR "/assets/digits/vit.onnx"));
    for (const char* stem :
         {"dinov2_swiglu_dyn20", "eva02_dyn18", "gemma_dyn20", "siglip_hf_dyn20", "clip_text_dyn18"}) {
      m.push_back(exported_model(kExported, stem));
    }
    return m;
  }();
  return all;
}

// The node in the middle of those that `body` changes; it returns false where there is nothing to change.
Fault node(const std::string& name, const std::function<bool(Graph&, Node&)>& body) {
  return {name, [=](Graph& g) -> std::string {
            std::vector<size_t> places;
            for (size_t n = 0; n < g.nodes.size(); ++n) {
              Graph trial = g;
              if (!g.nodes[n].name.empty() && body(trial, trial.nodes[n])) places.push_back(n);
            }
            if (places.empty()) return "";
            const size_t at = places[places.size() / 2];
            const std::string layer = g.nodes[at].name;
            body(g, g.nodes[at]);
            return layer;
          }};
}

Fault number(const std::string& name, const std::string& op, const char* attr,
             const std::function<double(double)>& change) {
  return node(name, [=](Graph&, Node& n) {
    if (n.op != op || !n.attrs.has(attr) || n.attrs.number(attr) == 0) return false;
    n.attrs.set(attr, change(n.attrs.number(attr)));
    return true;
  });
}

Step* step_of(Node& n, StepKind kind) {
  for (Step& s : n.then.steps) {
    if (s.kind == kind) return &s;
  }
  return nullptr;
}

bool drop_step(Node& n, StepKind kind) {
  return std::erase_if(n.then.steps, [&](const Step& s) { return s.kind == kind; }) > 0;
}

// Another value of the same type that was made before.
bool other_value(Graph& g, const Node& n, ValueId& operand) {
  for (const Node& before : g.nodes) {
    if (&before == &n) return false;
    if (before.op == "view") continue;
    for (ValueId v : before.outputs) {
      if (v == operand || g.at(v).type != g.at(operand).type) continue;
      operand = v;
      return true;
    }
  }
  return false;
}

std::vector<Fault> program_faults() {
  return {
      node("residual of another value",
           [](Graph& g, Node& n) {
             Step* s = step_of(n, StepKind::residual);
             if (s == nullptr) return false;
             ValueId& residual = n.inputs[static_cast<size_t>(s->operand)];
             return !g.at(residual).constant && other_value(g, n, residual);
           }),
      node("residual dropped", [](Graph&, Node& n) { return drop_step(n, StepKind::residual); }),
      node("bias step dropped", [](Graph&, Node& n) { return drop_step(n, StepKind::bias); }),
      node("layer scale step dropped", [](Graph&, Node& n) { return drop_step(n, StepKind::scale); }),
      node("one GELU for the other",
           [](Graph&, Node& n) {
             Step* s = step_of(n, StepKind::act);
             if (s == nullptr || (s->fn != Unary::gelu_erf && s->fn != Unary::gelu_tanh && s->fn != Unary::gelu_quick))
               return false;
             s->fn = s->fn == Unary::gelu_tanh ? Unary::gelu_erf : Unary::gelu_tanh;
             return true;
           }),
      node("activation dropped", [](Graph&, Node& n) { return drop_step(n, StepKind::act); }),
      node("input of another layer",
           [](Graph& g, Node& n) { return n.op == "matmul" && other_value(g, n, n.inputs[0]); })};
}

std::vector<Fault> attribute_faults() {
  return {number("eps x1000", "norm", "eps", [](double x) { return 1000 * x; }),
          number("eps 0", "norm", "eps", [](double) { return 0.0; }),
          number("attention scale x4", "attention", "scale", [](double x) { return 4 * x; }),
          number("attention scale x1.01", "attention", "scale", [](double x) { return 1.01 * x; }),
          node("rms for layer norm",
               [](Graph&, Node& n) {
                 if (n.op != "norm") return false;
                 n.attrs.set("kind", std::string(n.attrs.word("kind", "layer") == "rms" ? "layer" : "rms"));
                 return true;
               }),
          node("causal turned round", [](Graph& g, Node& n) {
            if (n.op != "attention" || g.at(n.inputs[0]).type.shape[1] == 1)
              return false;  // the last query sees every key either way
            n.attrs.set("causal", int64_t{n.attrs.integer("causal") == 0});
            return true;
          })};
}

// The offset of the view that an attention reads through, and what was read there before.
std::vector<Fault> view_faults() {
  const auto exchange = [](size_t a, size_t b) {
    return [a, b](Graph& g, Node& n) {
      if (n.op != "attention" || g.at(n.inputs[a]).type != g.at(n.inputs[b]).type) return false;
      std::swap(n.inputs[a], n.inputs[b]);
      return true;
    };
  };
  return {node("k for v", exchange(1, 2)), node("q for k", exchange(0, 1)),
          node("a view of other columns", [](Graph& g, Node& n) {
            if (n.op != "attention") return false;
            for (Node& view : g.nodes) {
              if (view.op != "view" || view.outputs[0] != n.inputs[1] || view.attrs.integer("offset") == 0) continue;
              view.attrs.set("offset", view.attrs.integer("offset") - 1);
              return true;
            }
            return false;
          })};
}

TEST(PlantedLayers, Programs) { expect_caught(program_faults(), models(), all_precisions()); }
TEST(PlantedLayers, Attributes) { expect_caught(attribute_faults(), models(), all_precisions()); }
TEST(PlantedLayers, Views) { expect_caught(view_faults(), models(), all_precisions()); }

std::string first_of(const Fault& fault) {
  const Lowered l = lowered_with(models()[0], "fp8", Arch::cpu, &fault);
  EXPECT_TRUE(l.status.ok()) << l.status.message();
  return l.found.faults.empty() ? "" : l.found.faults[0];
}

// Sentences say what it is, not only how far it is.
TEST(PlantedLayers, TheCauseIsNamed) {
  const std::pair<Fault, const char*> known[] = {
      {attribute_faults()[0], ": eps is 0.001, the model has 1e-06"},
      {program_faults()[0], "its residual is '"},
      {program_faults()[1], "it computes matmul then bias where the model has matmul then bias residual"},
      {view_faults()[0], "its k is another part of '"}};
  for (const auto& [fault, words] : known) EXPECT_NE(first_of(fault).find(words), std::string::npos) << first_of(fault);
}

}  // namespace
}  // namespace tessera
