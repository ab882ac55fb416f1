// SPDX-License-Identifier: Apache-2.0
#include "precision/reach.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "precision/masks.h"
#include "steps/step.h"

namespace tessera {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr Reach kOrdinary{-1, 1}, kShare{0, 1}, kEverything{-kInfinite, kInfinite};

Reach joined(const Reach& a, const Reach& b) { return {std::min(a.low, b.low), std::max(a.high, b.high)}; }
Reach sum(const Reach& a, const Reach& b) { return {a.low + b.low, a.high + b.high}; }
Reach negated(const Reach& a) { return {-a.high, -a.low}; }

Reach product(const Reach& a, const Reach& b) {
  Reach r{kInfinite, -kInfinite};
  for (const double x : {a.low, a.high}) {
    for (const double y : {b.low, b.high}) {
      const double xy = x == 0 || y == 0 ? 0 : x * y;  // 0 * Inf: what is multiplied away
      r = joined(r, {xy, xy});
    }
  }
  return r;
}

Reach of_unary(const std::string& fn, const Reach& x) {
  static const std::set<std::string> kBounded = {"tanh", "erf", "sin", "cos"};
  static const std::set<std::string> kOneSided = {"silu", "gelu_erf", "gelu_tanh", "gelu_quick"};
  static const std::set<std::string> kSame = {"identity", "floor", "ceil", "round"};
  if (kBounded.contains(fn)) return kOrdinary;
  if (fn == "sigmoid" || fn == "logical_not") return kShare;
  if (kSame.contains(fn)) return x;
  if (kOneSided.contains(fn)) return {std::max(x.low, -1.0), std::max(x.high, 0.0)};
  if (fn == "relu") return {std::max(x.low, 0.0), std::max(x.high, 0.0)};
  if (fn == "neg") return negated(x);
  if (fn == "abs") return {0, std::max(std::fabs(x.low), std::fabs(x.high))};
  if (fn == "exp") return {0, std::max(1.0, x.high <= 1 ? 1.0 : std::exp(x.high))};
  return kOrdinary;  // roots, logarithms and reciprocals bring large numbers back
}

Reach of_binary(const std::string& fn, const Reach& a, const Reach& b) {
  if (fn == "add") return sum(a, b);
  if (fn == "sub") return sum(a, negated(b));
  if (fn == "mul") return product(a, b);
  if (fn == "div")
    return b.low == b.high && b.low != 0 ? product(a, {1 / b.low, 1 / b.low}) : a;  // by a constant, or unknown
  if (fn == "min") return {std::min(a.low, b.low), std::min(a.high, b.high)};
  if (fn == "max") return {std::max(a.low, b.low), std::max(a.high, b.high)};
  if (fn == "pow" || fn == "mod") return a;
  return kShare;  // comparisons
}

class Walk {
 public:
  Walk(const Graph& g, const Ranges* ranges) : g_(g), ranges_(ranges), reach_(g.values.size()) {}

  std::vector<Reach> run() {
    const std::set<ValueId> masks = mask_inputs(g_);
    for (ValueId in : masks) {
      if (info(g_.at(in).type.quant.element).kind == ElementKind::kFloat) at(in) = kEverything;
    }
    take_stated_scales();
    for (const Node& n : g_.nodes) {
      const Reach r = of_node(n);
      for (ValueId out : n.outputs) {
        Reach& to = at(out);
        const bool stated = to.low != kOrdinary.low || to.high != kOrdinary.high;
        to = stated ? joined(to, r) : r;
        if (n.op != "view") take_range(out);
      }
    }
    return std::move(reach_);
  }

 private:
  Reach& at(ValueId v) { return reach_[static_cast<size_t>(v)]; }

  // What a model rounds to codes reaches as far as the codes do, or its own calibration was of something else.
  void take_stated_scales() {
    for (const Node& n : g_.nodes) {
      for (size_t i = 0; i < n.inputs.size(); ++i) {
        const auto type = parse_quant_type(n.attrs.word(cat("type.", i)));
        if (!type || !n.attrs.has(cat("scale.", i)) || type->dynamic) continue;
        const double most = n.attrs.number(cat("scale.", i)) * info(type->element).max;
        if (most > 1 && n.inputs[i] != kNoValue) at(n.inputs[i]) = joined(at(n.inputs[i]), {-most, most});
      }
      if (n.op != "copy") continue;
      if (const auto most = largest_code(n.outputs[0]); most && *most > 1)
        at(n.inputs[0]) = joined(at(n.inputs[0]), {-*most, *most});
    }
  }

  // Of a value in codes with one static scale.
  std::optional<double> largest_code(ValueId v) const {
    const Value& value = g_.at(v);
    if (!value.type.quant.scaled() || value.type.quant.dynamic || value.scale == kNoValue ||
        value.type.quant.scale.granularity != Granularity::kTensor)
      return std::nullopt;
    return g_.numbers(value.scale)[0] * info(value.type.quant.element).max;
  }

  void take_range(ValueId v) {
    if (ranges_ == nullptr) return;
    const auto it = ranges_->values.find(g_.at(v).name);
    if (it == ranges_->values.end() || !(it->second.amax > 1)) return;
    at(v) = joined(at(v), {-it->second.amax, it->second.amax});
  }

  Reach of_operand(ValueId v) {
    const Value& value = g_.at(v);
    if (!value.constant) return at(v);
    if (value.type.quant.scaled() || elements(value.type.shape) == 0) return kOrdinary;
    if (known_.insert(v).second) {
      Reach r{kInfinite, -kInfinite};
      std::vector<double> part(static_cast<size_t>(std::min<int64_t>(elements(value.type.shape), 65536)));
      for (int64_t from = 0; from < elements(value.type.shape); from += static_cast<int64_t>(part.size())) {
        const int64_t n = std::min<int64_t>(static_cast<int64_t>(part.size()), elements(value.type.shape) - from);
        info(value.type.quant.element).decode_f64(value.data.data(), from, n, part.data());
        for (int64_t i = 0; i < n; ++i) r = joined(r, {part[static_cast<size_t>(i)], part[static_cast<size_t>(i)]});
      }
      at(v) = r;
    }
    return at(v);
  }

  // One map of a step, whose operand is `operand`.
  Reach of_map(const StepMap& map, const Reach& r, ValueId operand) {
    if (map.with == StepMap::With::kNothing) return of_unary(map.fn, r);
    if (map.with == StepMap::With::kNumber) return of_binary(map.fn, r, {map.number, map.number});
    return operand == kNoValue ? r : of_binary(map.fn, r, of_operand(operand));
  }

  Reach of_node(const Node& n) {
    Reach r = before_program(n);
    for (const Step& s : n.then.steps) {
      const auto maps = info(s.kind).unfused;
      if (maps == nullptr) continue;
      for (const StepMap& map : maps(s))
        r = of_map(map, r, s.operand >= 0 ? n.inputs[static_cast<size_t>(s.operand)] : kNoValue);
    }
    return r;
  }

  Reach before_program(const Node& n) {
    const std::string fn = n.attrs.word("fn");
    if (n.op == "map") {
      if (n.inputs.size() == 1) return of_unary(fn, of_operand(n.inputs[0]));
      if (n.inputs.size() == 2) return of_binary(fn, of_operand(n.inputs[0]), of_operand(n.inputs[1]));
      return joined(of_operand(n.inputs[1]), of_operand(n.inputs[2]));
    }
    if (n.op == "view" || n.op == "rotary") return of_operand(n.inputs[0]);
    if (n.op == "gather") return of_operand(n.inputs[0]);
    if (n.op == "copy") {
      const Reach x = of_operand(n.inputs[0]);
      const auto most = largest_code(n.outputs[0]);
      return most ? Reach{std::max(x.low, -*most), std::min(x.high, *most)} : x;
    }
    if (n.op == "write") return joined(of_operand(n.inputs[0]), of_operand(n.inputs[1]));
    if (n.op == "concat") {
      Reach r = of_operand(n.inputs[0]);
      for (ValueId in : n.inputs) r = joined(r, of_operand(in));
      return r;
    }
    if (n.op == "reduce") {
      const Reach x = of_operand(n.inputs[0]);
      // A maximum over tokens of which none is seen has no meaning: one of them is ordinary.
      if (fn == "max") return {std::min(x.high, std::max(x.low, kOrdinary.low)), x.high};
      if (fn == "min") return {x.low, std::max(x.low, std::min(x.high, kOrdinary.high))};
      return fn == "sum_squares" ? product(x, x) : x;
    }
    if (n.op == "softmax") return kShare;
    return kOrdinary;
  }

  const Graph& g_;
  const Ranges* ranges_;
  std::vector<Reach> reach_;
  std::set<ValueId> known_;  // constants whose numbers were looked at
};

}  // namespace

bool Reach::leaves(Element element) const {
  const ElementInfo& e = info(element);
  const double smallest = std::ldexp(1.0, e.min_exponent - e.mantissa_bits) / 2;
  return low < -e.max || high > e.max || (low > 0 && low < smallest) || (high < 0 && -high < smallest);
}

std::vector<Reach> reach_of_values(const Graph& graph, const Ranges* ranges) { return Walk(graph, ranges).run(); }

}  // namespace tessera
