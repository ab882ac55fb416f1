// SPDX-License-Identifier: Apache-2.0
// Stored numbers that are not the model's, planted after quantize in every precision: weights, biases, gains, tables
// and scales. Each is found, with the layer's name; nothing is found where nothing was planted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "models/zoo.h"
#include "precision/roles.h"
#include "testing/planted.h"

namespace tessera {
namespace {

using namespace testing;

const std::string kExported = TS_SOURCE_DIR "/tests/data/models";

PlantedModel tiny_vit(uint64_t seed) {
  const std::string path = cat(::testing::TempDir(), "/planted_vit_", seed, ".onnx");
  std::ofstream(path, std::ios::binary) << zoo_onnx("vit-tiny-test", seed).value();
  return planted_model(cat("vit, seed ", seed), path);
}

const std::vector<PlantedModel>& models() {
  static const std::vector<PlantedModel> all = [] {
    std::vector<PlantedModel> m;
    m.push_back(tiny_vit(3));
    m.push_back(planted_model("digits", TS_SOURCE_DIR "/assets/digits/vit.onnx"));
    for (const char* stem : {"dinov2_swiglu_dyn20", "clip_vision_dyn18"}) m.push_back(exported_model(kExported, stem));
    return m;
  }();
  return all;
}

// The layer in the middle of those that `fits` takes.
template <class Fits>
Node* middle(Graph& g, const Fits& fits) {
  std::vector<Node*> found;
  for (Node& n : g.nodes) {
    if (!n.name.empty() && fits(n)) found.push_back(&n);
  }
  return found.empty() ? nullptr : found[found.size() / 2];
}

// Changes the weight of a linear layer; `fits` may ask more of its shape.
using Change = std::function<void(Graph&, Value& w, int64_t rows, int64_t cols)>;
Fault weight(const std::string& name, const Change& change, const std::function<bool(const Shape&)>& fits = {}) {
  return {name, [=](Graph& g) -> std::string {
            Node* n = middle(g, [&](const Node& node) {
              return is_linear(g, node) && g.at(node.inputs[1]).type.shape.size() == 2 &&
                     g.at(node.inputs[1]).type.shape[1] % 2 == 0 && (!fits || fits(g.at(node.inputs[1]).type.shape));
            });
            if (n == nullptr) return "";
            const std::string layer = n->name;
            Value& w = own_constant(g, *n, 1);
            change(g, w, w.type.shape[0], w.type.shape[1]);
            return layer;
          }};
}

// Scales of rows go with them where each row has its own.
void swap_rows(Graph& g, Value& w, int64_t rows, int64_t cols, int64_t a, int64_t b) {
  const auto turn = [=](int64_t row) { return row == a ? b : row == b ? a : row; };
  reorder_codes(w, [=](int64_t i) { return turn(i / cols) * cols + i % cols; });
  if (w.scale == kNoValue) return;
  Value& s = g.at(w.scale);
  const int64_t per_row = elements(s.type.shape) / rows;
  if (per_row > 0) reorder_codes(s, [=](int64_t i) { return turn(i / per_row) * per_row + i % per_row; });
}

uint64_t negated(const ElementInfo& element, uint64_t code) {
  if (element.kind == ElementKind::kInteger) return static_cast<uint8_t>(-static_cast<int8_t>(code));
  return code ^ uint64_t { 1 } << (element.bits - 1);
}

Fault other_weight() {
  return {"another layer's weight", [](Graph& g) -> std::string {
            for (size_t n = 0; n < g.nodes.size(); ++n) {
              for (size_t o = 0; o < n; ++o) {
                const Node &node = g.nodes[n], &other = g.nodes[o];
                if (!is_linear(g, node) || !is_linear(g, other) || node.name.empty()) continue;
                if (g.at(node.inputs[1]).type != g.at(other.inputs[1]).type || node.inputs[1] == other.inputs[1])
                  continue;
                g.nodes[n].inputs[1] = other.inputs[1];
                return node.name;
              }
            }
            return "";
          }};
}

// Changes the vector of a step of the program, or (step none) input `input` of an op.
Fault vector(const std::string& name, const std::string& op, StepKind kind, size_t input,
             const std::function<void(std::vector<double>&)>& body) {
  return {name, [=](Graph& g) -> std::string {
            const auto at = [&](const Node& n) -> size_t {
              const Step* s = kind == StepKind::quantize ? nullptr : n.then.find(kind);
              return s != nullptr ? static_cast<size_t>(s->operand) : kind == StepKind::quantize ? input : 0;
            };
            Node* n = middle(g, [&](const Node& node) {
              const size_t i = at(node);
              const bool there = node.op == op && i > 0 && i < node.inputs.size() && node.inputs[i] != kNoValue &&
                                 g.at(node.inputs[i]).constant;
              if (!there) return false;
              std::vector<double> before = g.numbers(node.inputs[i]), after = before;
              body(after);
              return before != after;
            });
            if (n == nullptr) return "";
            const std::string layer = n->name;
            change_numbers(own_constant(g, *n, at(*n)), body);
            return layer;
          }};
}

// The same operand of an earlier layer, where it has the same type and other numbers.
Fault other_vector(const std::string& name, const std::string& op, StepKind kind, size_t input) {
  return {name, [=](Graph& g) -> std::string {
            const auto slot = [&](Node& n) -> ValueId* {
              const Step* s = n.then.find(kind);
              const size_t i = kind == StepKind::quantize ? input
                               : s != nullptr             ? static_cast<size_t>(s->operand)
                                                          : n.inputs.size();
              return n.op == op && i < n.inputs.size() && n.inputs[i] != kNoValue && g.at(n.inputs[i]).constant
                         ? &n.inputs[i]
                         : nullptr;
            };
            for (Node& n : g.nodes) {
              for (Node& o : g.nodes) {
                ValueId *a = slot(n), *b = slot(o);
                if (&o == &n || n.name.empty() || a == nullptr || b == nullptr || *a == *b) continue;
                if (g.at(*a).type != g.at(*b).type || g.numbers(*a) == g.numbers(*b)) continue;
                *a = *b;
                return n.name;
              }
            }
            return "";
          }};
}

void zero(std::vector<double>& v) { std::fill(v.begin(), v.end(), 0.0); }
void ones(std::vector<double>& v) { std::fill(v.begin(), v.end(), 1.0); }
void shift_one(std::vector<double>& v) { std::rotate(v.begin(), v.begin() + 1, v.end()); }
// The largest: a hundredth of it is more than half a unit of any 16 bits.
void change_one(std::vector<double>& v) {
  *std::max_element(v.begin(), v.end(), [](double a, double b) { return std::fabs(a) < std::fabs(b); }) *= 1.01;
}

std::vector<Fault> weight_faults() {
  std::vector<Fault> all;
  all.push_back(weight("two rows swapped", [](Graph& g, Value& w, int64_t rows, int64_t cols) {
    swap_rows(g, w, rows, cols, 1, rows - 2);
  }));
  all.push_back(weight("one row zeroed", [](Graph&, Value& w, int64_t, int64_t cols) {
    for (int64_t c = 0; c < cols; ++c) set_code(w, 3 * cols + c, 0);
  }));
  all.push_back(weight("one column zeroed", [](Graph&, Value& w, int64_t rows, int64_t cols) {
    for (int64_t r = 0; r < rows; ++r) set_code(w, r * cols + 5, 0);
  }));
  all.push_back(weight("whole weight zero", [](Graph&, Value& w, int64_t rows, int64_t cols) {
    for (int64_t i = 0; i < rows * cols; ++i) set_code(w, i, 0);
  }));
  all.push_back(weight("weight negated", [](Graph&, Value& w, int64_t rows, int64_t cols) {
    for (int64_t i = 0; i < rows * cols; ++i) set_code(w, i, negated(info(w.type.quant.element), code_at(w, i)));
  }));
  const Change transpose = [](Graph&, Value& w, int64_t, int64_t cols) {
    reorder_codes(w, [=](int64_t i) { return i % cols * cols + i / cols; });
  };
  all.push_back(weight("weight transposed", transpose, [](const Shape& s) { return s[0] == s[1]; }));
  all.push_back(weight("one code two steps off", [](Graph&, Value& w, int64_t rows, int64_t cols) {
    const int64_t at = (rows / 2) * cols + cols / 3;
    set_code(w, at, two_steps_off(info(w.type.quant.element), code_at(w, at)));
  }));
  Fault halved = weight("scales of one channel halved", [](Graph& g, Value& w, int64_t rows, int64_t) {
    Value& s = g.at(w.scale);
    const int64_t per_row = elements(s.type.shape) / rows;
    change_numbers(s, [=](std::vector<double>& v) {
      for (int64_t i = 0; i < std::max<int64_t>(1, per_row); ++i)
        v[static_cast<size_t>(per_row > 0 ? 2 * per_row + i : 0)] /= 2;
    });
  });
  const Plant halve = halved.typed;
  halved.typed = [halve](Graph& g) {
    const auto has_scales = [&](const Node& n) { return is_linear(g, n) && g.at(n.inputs[1]).scale != kNoValue; };
    return std::any_of(g.nodes.begin(), g.nodes.end(), has_scales) ? halve(g) : "";
  };
  all.push_back(halved);
  all.push_back(other_weight());
  return all;
}

std::vector<Fault> vector_faults() {
  constexpr StepKind kInput = StepKind::quantize;  // no step: an operand of the op itself
  return {vector("bias zeroed", "matmul", StepKind::bias, 0, zero),
          vector("bias shifted by one place", "matmul", StepKind::bias, 0, shift_one),
          vector("one bias number off by 1 %", "matmul", StepKind::bias, 0, change_one),
          other_vector("another layer's bias", "matmul", StepKind::bias, 0),
          vector("gain dropped", "norm", kInput, 1, ones),
          other_vector("another norm's gain", "norm", kInput, 1),
          vector("shift dropped", "norm", kInput, 2, zero),
          vector("layer scale dropped", "matmul", StepKind::scale, 0, ones)};
}

// Changes a table of rows that a layer adds, turns by or looks up.
Fault table(const std::string& name, const std::string& op,
            const std::function<void(std::vector<double>&, int64_t cols)>& body) {
  return {name, [=](Graph& g) -> std::string {
            for (Node& n : g.nodes) {
              if (n.op != op || n.name.empty()) continue;
              const Step* added = n.then.find(StepKind::residual);
              for (size_t i = 0; i < n.inputs.size(); ++i) {
                if (n.inputs[i] == kNoValue || !g.at(n.inputs[i]).constant) continue;
                if (op == "matmul" && (added == nullptr || added->operand != static_cast<int>(i))) continue;
                const Shape shape = g.at(n.inputs[i]).type.shape;
                if (shape.size() < 2 || elements(shape) == shape.back()) continue;
                const std::string layer = n.name;
                change_numbers(own_constant(g, n, i), [&](std::vector<double>& v) { body(v, shape.back()); });
                return layer;
              }
            }
            return "";
          }};
}
void one_row_on(std::vector<double>& v, int64_t cols) { std::rotate(v.begin(), v.begin() + cols, v.end()); }

// The scale of a layer's codes that calibration gave.
Fault halved_activation_scale() {
  return {"activation scale halved", [](Graph& g) -> std::string {
            for (const Node& n : g.nodes) {
              for (ValueId out : n.outputs) {
                const ValueId scale = g.at(out).scale != kNoValue ? g.at(out).scale : g.at(out).scale2;
                if (n.op == "view" || n.name.empty() || scale == kNoValue) continue;
                Buffer bytes(4);
                const float half = static_cast<float>(g.numbers(scale)[0] / 2);
                std::memcpy(bytes.data(), &half, 4);
                g.at(scale).data = Bytes::own(std::move(bytes));
                return n.name;
              }
            }
            return "";
          }};
}

TEST(PlantedConstants, Weights) { expect_caught(weight_faults(), models(), all_precisions()); }

TEST(PlantedConstants, Vectors) { expect_caught(vector_faults(), models(), all_precisions()); }

// A class token is the first row of what the embedding adds (rewrite/concat_before_matmul.h).
TEST(PlantedConstants, Tables) {
  std::vector<PlantedModel> with_tables = models();
  for (const char* stem : {"eva02_dyn18", "siglip_hf_dyn20", "bert_dyn18"})
    with_tables.push_back(exported_model(kExported, stem));
  expect_caught({table("position embedding one row on", "matmul", one_row_on),
                 table("class token zeroed", "matmul",
                       [](std::vector<double>& v, int64_t cols) { std::fill_n(v.begin(), cols, 0.0); }),
                 table("rotary table of other positions", "rotary", one_row_on),
                 table("word embedding one row on", "gather", one_row_on)},
                with_tables, all_precisions());
}

TEST(PlantedConstants, ActivationScales) {
  expect_caught({halved_activation_scale()}, models(), {"fp8", "fp8_tensor", "nvfp4", "w4a8", "int8"});
}

// Longer with TESSERA_LONG_TESTS=1: more seeds.
TEST(PlantedConstants, NothingIsFoundWhereNothingIs) {
  const uint64_t seeds = std::getenv("TESSERA_LONG_TESTS") != nullptr ? 40 : 5;
  int lowered = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) lowered += expect_none_found(tiny_vit(seed), all_precisions());
  lowered += expect_none_found(models()[1], all_precisions());
  for (const auto& entry : std::filesystem::directory_iterator(kExported)) {
    if (entry.path().extension() == ".onnx")
      lowered += expect_none_found(exported_model(kExported, entry.path().stem()), all_precisions());
  }
  std::printf("%d lowerings, nothing found\n", lowered);
  EXPECT_GT(lowered, 500);
}

}  // namespace
}  // namespace tessera
