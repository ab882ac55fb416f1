// SPDX-License-Identifier: Apache-2.0
#include "portability/portability_written.h"

#include <algorithm>
#include <array>
#include <optional>

#include "rewrite/edit/match.h"

namespace tessera {
namespace {

constexpr int kDeepest = 24;  // steps that a pattern is followed back: masks and guards take a handful

// "blocks.0.norm1" of "blocks.0.norm1.reducemean": the layer that an operator belongs to.
std::string layer_of(const std::string& node) {
  const size_t dot = node.rfind('.');
  return dot == std::string::npos || dot == 0 ? node : node.substr(0, dot);
}

class Reader {
 public:
  explicit Reader(const Graph& graph) : g_(graph), m_(graph) {}

  WrittenModel read() {
    for (const Node& node : g_.nodes) {
      if (node.op == "attention") add_operator(node);
      if (node.op == "softmax") add_scores(node);
      if (node.op == "concat") add_tokens(node);
      if (node.op == "norm") model_.norms.push_back(node.name);
      if (node.op == "reduce") add_spelt_norm(node);
      if (node.op == "matmul") add_linear(node);
    }
    return std::move(model_);
  }

 private:
  const Shape& shape(ValueId v) const { return g_.at(v).type.shape; }

  // What v's numbers come from without a computation: behind views and copies, which also make and read codes. True in
  // `scaled` where there were any.
  ValueId behind_moves(ValueId v, bool* scaled = nullptr) const {
    const auto look = [&] {
      if (scaled != nullptr) *scaled = *scaled || g_.at(v).type.quant.scaled();
    };
    look();
    for (const Node* n = m_.maker(v); n != nullptr && (n->op == "view" || n->op == "copy"); n = m_.maker(v)) {
      if (!n->then.within({StepKind::quantize})) break;
      v = n->inputs[0];
      look();
    }
    return v;
  }
  bool is_learnt(ValueId v) const { return g_.at(behind_moves(v)).constant; }

  void add_operator(const Node& node) {
    model_.attentions.push_back({.layer = node.name,
                                 .keys = shape(node.inputs[1])[1],
                                 .head_size = shape(node.inputs[0])[3],
                                 .one_operator = true,
                                 .axes = 4,
                                 .foreign = {}});
  }

  // The product of two activations that v's scores come from; `foreign` collects what no attention operator does.
  const Node* find_product(ValueId v, int depth, std::string* foreign) const {
    const Node* n = m_.maker(v);
    if (n == nullptr || depth == 0) return nullptr;
    if (n->op == "matmul") return is_learnt(n->inputs[1]) || is_learnt(n->inputs[0]) ? nullptr : n;
    if (n->op == "view" || n->op == "copy") return find_product(n->inputs[0], depth - 1, foreign);
    if (n->op != "map") return nullptr;
    for (const ValueId input : n->inputs) {
      if (elements(shape(input)) != elements(shape(v))) continue;  // a number or a mask that is spread
      std::string inner;
      const Node* found = find_product(input, depth - 1, &inner);
      if (found == nullptr) continue;
      const std::string fn = n->attrs.word("fn");
      constexpr std::array kKnown = {"mul", "div", "add", "sub", "where"};
      const bool known = std::find(kKnown.begin(), kKnown.end(), fn) != kKnown.end();
      *foreign = known ? inner : fn;
      return found;
    }
    return nullptr;
  }

  void add_scores(const Node& softmax) {
    WrittenAttention a{.layer = softmax.name, .foreign = {}};
    const Node* product = find_product(softmax.inputs[0], kDeepest, &a.foreign);
    if (product == nullptr) return;  // probabilities of classes, not of keys
    a.keys = shape(softmax.inputs[0]).back();
    a.head_size = shape(product->inputs[0]).back();
    a.axes = shape(product->outputs[0]).size();
    model_.attentions.push_back(std::move(a));
  }

  // [batch, tokens, size]: learnt tokens beside those of the input, along the second axis.
  void add_tokens(const Node& node) {
    const Shape& y = shape(node.outputs[0]);
    const int64_t axis = node.attrs.integer("axis");
    if (y.size() != 3 || (axis != 1 && axis != -2)) return;
    WrittenTokens t{.layer = node.name, .all = y[1]};
    for (const ValueId v : node.inputs) t.learnt += is_learnt(v) ? shape(v)[1] : 0;
    if (t.learnt > 0 && t.learnt < t.all) model_.tokens.push_back(std::move(t));
  }

  // A mean of squares, as layer and root-mean-square norms have it.
  void add_spelt_norm(const Node& node) {
    if (node.attrs.word("fn") != "mean") return;
    const ValueId squares = behind_moves(node.inputs[0]);
    const Node* mul = m_.mapped(squares, "mul");
    const auto power = m_.with_number(squares, "pow");
    if ((mul != nullptr && mul->inputs[0] == mul->inputs[1]) || (power && power->number == 2))
      model_.spelt_norms.push_back(layer_of(node.name));
  }

  void add_linear(const Node& node) {
    if (!is_learnt(node.inputs[1])) return;
    WrittenLinear l{.layer = node.name};
    for (const ValueId v : node.inputs) {
      if (v != kNoValue) behind_moves(v, &l.scaled);
    }
    for (const auto& [key, attr] : node.attrs.all()) l.scaled = l.scaled || key.starts_with("type.");
    l.sparse = is_sparse(g_.at(behind_moves(node.inputs[1])));
    model_.linears.push_back(std::move(l));
    add_patches(node);
  }

  // The layer that reads an image [batch, channels, height, width], each of its numbers once.
  void add_patches(const Node& node) {
    const ValueId image = behind_moves(node.inputs[0]);
    if (std::find(g_.inputs.begin(), g_.inputs.end(), image) == g_.inputs.end()) return;
    const Shape& s = shape(image);
    const int64_t k = shape(node.inputs[0]).back();
    if (s.size() != 4 || k <= s[1] || elements(s) == 0 || elements(shape(node.inputs[0])) != elements(s)) return;
    const bool last = s[3] <= 4 && s[1] > 4;  // [batch, height, width, channels]
    model_.patches.push_back({.layer = node.name,
                              .height = last ? s[1] : s[2],
                              .width = last ? s[2] : s[3],
                              .count = elements(s) / s[0] / k});
  }

  static bool is_sparse(const Value& w) {
    if (!w.constant || w.type.shape.empty() || w.data.empty()) return false;
    const int64_t k = w.type.shape.back(), n = elements(w.type.shape);
    if (k == 0 || k % 4 != 0 || n == 0) return false;
    bool any = false;
    for (int64_t first = 0; first < n; first += 4) {
      std::array<double, 4> four;
      info(w.type.quant.element).decode_f64(w.data.data(), first, 4, four.data());
      const auto zeros = std::count(four.begin(), four.end(), 0.0);
      if (zeros < 2) return false;
      any = any || zeros < 4;
    }
    return any;
  }

  const Graph& g_;
  const Matcher m_;
  WrittenModel model_;
};

}  // namespace

WrittenModel read_written(const Graph& graph) { return Reader(graph).read(); }

}  // namespace tessera
