// SPDX-License-Identifier: Apache-2.0
// Activations are polynomials in x and t, t = erf, tanh or sigmoid of a polynomial in x. Both are worked out from
// whatever order of multiplications and additions the exporter wrote, and compared with the known ones.
#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "ops/builder.h"
#include "rewrite/edit/match.h"
#include "rewrite/edit/replace.h"
#include "rewrite/recognise/recognise.h"

namespace tessera {
namespace {

constexpr int kMaxDegree = 4, kMaxDepth = 10, kMaxReach = 6;

// Coefficients of x^i t^j by (i, j).
using Poly = std::map<std::pair<int, int>, double>;

struct Activation {
  const char* inner;  // function of t
  Poly argument, whole;
  const char* name;
};

const std::vector<Activation>& activations() {
  const double root = std::sqrt(2 / std::numbers::pi);
  static const std::vector<Activation> kAll = {
      {"erf", {{{1, 0}, std::numbers::sqrt2 / 2}}, {{{1, 0}, 0.5}, {{1, 1}, 0.5}}, "gelu_erf"},
      {"tanh", {{{1, 0}, root}, {{3, 0}, root * 0.044715}}, {{{1, 0}, 0.5}, {{1, 1}, 0.5}}, "gelu_tanh"},
      {"sigmoid", {{{1, 0}, 1.702}}, {{{1, 1}, 1}}, "gelu_quick"},
      {"sigmoid", {{{1, 0}, 1}}, {{{1, 1}, 1}}, "silu"},
  };
  return kAll;
}

std::optional<Poly> product(const Poly& a, const Poly& b) {
  Poly out;
  for (const auto& [p, c] : a) {
    for (const auto& [q, d] : b) {
      if (p.first + q.first > kMaxDegree || p.second + q.second > kMaxDegree) return std::nullopt;
      out[{p.first + q.first, p.second + q.second}] += c * d;
    }
  }
  return out;
}

// Fraction bits that the number needs.
int bits_of(double x) {
  int exponent = 0;
  double fraction = std::fabs(std::frexp(x, &exponent)) * 2 - 1;
  int bits = 0;
  for (; fraction > 0 && bits < 23; ++bits) fraction = fraction * 2 - (fraction >= 0.5 ? 1 : 0);
  return bits;
}

// Equal to the last places of f32; where the pattern's number does not fit `type_bits` fraction bits, to its rounding
// (twice: two constants may have been multiplied) in that type. A number that fits (0.5, 1) is itself in every type.
bool close(const Poly& have, const Poly& want, int type_bits) {
  if (have.size() != want.size()) return false;
  for (const auto& [power, c] : want) {
    const auto it = have.find(power);
    const double tolerance = std::ldexp(1.0, -(bits_of(c) <= type_bits ? 23 : type_bits));
    if (it == have.end() || !(std::fabs(it->second - c) <= tolerance * std::fabs(c))) return false;
  }
  return true;
}

class Reader {
 public:
  Reader(const Matcher& matcher, ValueId x, ValueId t) : m_(matcher), x_(x), t_(t) {}

  // Fraction bits of the type that the constants were exported in (bf16, f16, f32): a model in 16 bits has a root of 2
  // of 1.4140625, and no f32 constant of a pattern would fit so few bits.
  int type_bits() const { return bits_ <= 7 ? 7 : bits_ <= 10 ? 10 : 23; }

  // v as a polynomial in x and t; nothing where it is none (or one of a high degree).
  std::optional<Poly> read(ValueId v, int depth = 0) {
    if (v == x_) return Poly{{{1, 0}, 1}};
    if (v == t_) return Poly{{{0, 1}, 1}};
    if (const auto c = m_.number(v)) {
      bits_ = std::max(bits_, bits_of(*c));
      return Poly{{{0, 0}, *c}};
    }
    const Node* n = m_.made_by(v, "map");
    if (n == nullptr || depth >= kMaxDepth) return std::nullopt;
    const std::string fn = n->attrs.word("fn");
    if (fn != "add" && fn != "sub" && fn != "mul" && fn != "div" && fn != "pow" && fn != "neg") return std::nullopt;
    auto a = read(n->inputs[0], depth + 1);
    if (!a) return std::nullopt;
    if (fn == "neg") return product(*a, {{{0, 0}, -1}});
    if (fn == "div" || fn == "pow") {
      const auto c = m_.number(n->inputs[1]);
      if (!c) return std::nullopt;
      bits_ = std::max(bits_, bits_of(*c));
      if (fn == "div") return *c == 0 ? std::nullopt : product(*a, {{{0, 0}, 1 / *c}});
      if (*c != 2 && *c != 3) return std::nullopt;
      const auto square = product(*a, *a);
      return *c == 2 || !square ? square : product(*square, *a);
    }
    const auto b = read(n->inputs[1], depth + 1);
    if (!b) return std::nullopt;
    if (fn == "mul") return product(*a, *b);
    for (const auto& [power, c] : *b) (*a)[power] += fn == "add" ? c : -c;
    return a;
  }

 private:
  const Matcher& m_;
  ValueId x_, t_;
  int bits_ = 0;  // that the constants read so far need
};

// Values that the argument of t is computed from, nearest first.
std::vector<ValueId> candidates(const Graph& graph, const Matcher& m, ValueId from) {
  std::vector<ValueId> out = {from};
  for (size_t i = 0; i < out.size() && out.size() < 12; ++i) {
    const Node* n = m.made_by(out[i], "map");
    if (n == nullptr) continue;
    for (ValueId in : n->inputs) {
      if (!graph.at(in).constant && std::find(out.begin(), out.end(), in) == out.end()) out.push_back(in);
    }
  }
  return out;
}

struct Found {
  ValueId root, x;
  const char* name;
};

// The activation that the value t = erf, tanh or sigmoid belongs to.
std::optional<Found> match(const Graph& graph, const Node& inner) {
  const Matcher m(graph);
  const ValueId t = inner.outputs[0];
  for (const Activation& a : activations()) {
    if (inner.attrs.word("fn") != a.inner) continue;
    for (const ValueId x : candidates(graph, m, inner.inputs[0])) {
      if (graph.at(x).type != graph.at(t).type) continue;
      Reader reader(m, x, t);
      const auto argument = reader.read(inner.inputs[0]);
      if (!argument || !close(*argument, a.argument, reader.type_bits())) continue;
      std::vector<ValueId> front = {t};
      for (int reach = 0; reach < kMaxReach; ++reach) {
        std::vector<ValueId> next;
        for (const ValueId v : front) {
          for (const size_t n : m.readers(v)) {
            if (graph.nodes[n].op != "map") continue;
            const ValueId out = graph.nodes[n].outputs[0];
            const auto whole = reader.read(out);
            if (whole && graph.at(out).type == graph.at(x).type && close(*whole, a.whole, reader.type_bits()))
              return Found{out, x, a.name};
            next.push_back(out);
          }
        }
        if (next.size() > 16) break;
        front = std::move(next);
      }
    }
  }
  return std::nullopt;
}

}  // namespace

Status recognise_gelu(Graph& graph) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op != "map") continue;
    const std::string fn = graph.nodes[i].attrs.word("fn");
    if (fn != "erf" && fn != "tanh" && fn != "sigmoid") continue;
    const auto found = match(graph, graph.nodes[i]);
    if (!found) continue;
    const size_t root = static_cast<size_t>(graph.producers()[static_cast<size_t>(found->root)]);
    GraphBuilder builder(graph, root);
    TS_ASSIGN(const ValueId y,
              builder.map(found->name, {found->x}, parent_layer(graph.nodes[root].name, "act") + "." + found->name));
    TS_TRY(take_over(builder, found->root, y));
  }
  return {};
}

}  // namespace tessera
