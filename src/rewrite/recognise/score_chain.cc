// SPDX-License-Identifier: Apache-2.0
#include "rewrite/recognise/score_chain.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr int kMaxDepth = 16;

// The one number of a constant, however often it is spelt out.
std::optional<double> repeated_number(const Graph& graph, const Matcher& m, ValueId v) {
  const Place p = m.place(v);
  if (!graph.at(p.base).constant || graph.at(p.base).type.quant.scaled()) return std::nullopt;
  const std::vector<double> numbers = graph.numbers(p.base);
  if (numbers.empty() || !std::all_of(numbers.begin(), numbers.end(), [&](double x) { return x == numbers[0]; }))
    return std::nullopt;
  return numbers[0];
}

class ChainReader {
 public:
  ChainReader(const Graph& graph, const Matcher& matcher) : g_(graph), m_(matcher) {}

  // `factor`: what the scores are multiplied by on their way from v to the softmax.
  std::optional<ScoreChain> read(ValueId v, double factor, int depth) const {
    v = behind_reshapes(g_, m_, v);
    const Node* n = m_.maker(v);
    if (n == nullptr || depth > kMaxDepth) return std::nullopt;
    if (is_score_product(g_, *n)) return ScoreChain{.product = n, .scale = factor, .added = {}, .factors = {}};
    if (const auto scaling = read_scaling(m_, v)) return read(scaling->x, factor * scaling->number, depth + 1);
    if (const Node* add = m_.mapped(v, "add")) return beside_addition(*add, factor, depth);
    if (const Node* where = m_.mapped(v, "where")) return beside_mask(*where, factor, depth);
    for (const char* fn : {"mul", "div"}) {
      if (const Node* times = m_.mapped(v, fn)) return beside_factor(*times, factor, depth);
    }
    return std::nullopt;
  }

 private:
  bool has_shape_of(ValueId a, ValueId b) const { return g_.at(a).type.shape == g_.at(b).type.shape; }

  std::optional<ScoreChain> beside_addition(const Node& add, double factor, int depth) const {
    const ValueId v = add.outputs[0];
    for (const size_t at : {size_t{0}, size_t{1}}) {
      if (!has_shape_of(add.inputs[at], v)) continue;
      auto chain = read(add.inputs[at], factor, depth + 1);
      if (!chain) continue;
      chain->added.push_back({.value = add.inputs[1 - at], .over = g_.at(v).type.shape, .factor = factor});
      return chain;
    }
    return std::nullopt;
  }

  std::optional<ScoreChain> beside_mask(const Node& where, double factor, int depth) const {
    const ValueId v = where.outputs[0];
    for (const size_t at : {size_t{1}, size_t{2}}) {
      if (!has_shape_of(where.inputs[at], v)) continue;
      const auto hidden = repeated_number(g_, m_, where.inputs[3 - at]);
      if (!hidden || !(*hidden * factor <= kHidden)) continue;
      auto chain = read(where.inputs[at], factor, depth + 1);
      if (!chain) continue;
      chain->added.push_back({.value = where.inputs[0],
                              .over = g_.at(v).type.shape,
                              .is_mask = true,
                              .inverted = at == 2,
                              .hidden = *hidden * factor});
      return chain;
    }
    return std::nullopt;
  }

  // Scores times one number per query. What was added to them before would be multiplied, too: then there is no chain.
  std::optional<ScoreChain> beside_factor(const Node& times, double factor, int depth) const {
    const ValueId v = times.outputs[0];
    const bool divides = times.attrs.word("fn") == "div";
    for (const size_t at : divides ? std::vector<size_t>{0} : std::vector<size_t>{0, 1}) {
      const ValueId other = times.inputs[1 - at];
      const Shape& shape = g_.at(other).type.shape;
      if (!has_shape_of(times.inputs[at], v) || shape.empty() || shape.back() != 1) continue;
      auto chain = read(times.inputs[at], factor, depth + 1);
      if (!chain || !chain->added.empty()) continue;
      chain->factors.push_back({.value = other, .over = g_.at(v).type.shape, .divides = divides});
      return chain;
    }
    return std::nullopt;
  }

  const Graph& g_;
  const Matcher& m_;
};

}  // namespace

bool is_score_product(const Graph& graph, const Node& n) {
  if (n.op != "matmul" || !n.then.empty() || n.inputs.size() != 2) return false;
  const size_t rank = graph.at(n.inputs[0]).type.shape.size();
  return rank >= 3 && graph.at(n.inputs[1]).type.shape.size() == rank;
}

std::optional<ScoreChain> read_scores(const Graph& graph, const Matcher& m, ValueId softmax_input) {
  return ChainReader(graph, m).read(softmax_input, 1, 0);
}

ValueId behind_reshapes(const Graph& graph, const Matcher& m, ValueId v) {
  for (;;) {
    const Place p = m.place(v);
    if (p.base != v) {
      if (!p.region.whole() || elements(p.region.shape) != elements(graph.at(p.base).type.shape)) return v;
      v = p.base;
      continue;
    }
    const Node* copy = m.made_by(v, "copy");
    if (copy == nullptr) return v;
    const QuantType &from = graph.at(copy->inputs[0]).type.quant, &to = graph.at(v).type.quant;
    if (from.scaled() || to.scaled() || info(from.element).kind != ElementKind::kFloat ||
        info(to.element).kind != ElementKind::kFloat)
      return v;
    v = copy->inputs[0];
  }
}

std::optional<Matcher::WithNumber> read_scaling(const Matcher& m, ValueId v) {
  if (auto mul = m.with_number(v, "mul")) return mul;
  auto div = m.with_number(v, "div");
  if (!div || div->number == 0) return std::nullopt;
  div->number = 1 / div->number;
  return div;
}

}  // namespace tessera
