// SPDX-License-Identifier: Apache-2.0
#include "rewrite/edit/match.h"

#include <algorithm>

namespace tessera {

const Node* Matcher::maker(ValueId v) const {
  if (v == kNoValue) return nullptr;
  const int n = producers_[static_cast<size_t>(v)];
  return n < 0 ? nullptr : &g_.nodes[static_cast<size_t>(n)];
}

const Node* Matcher::made_by(ValueId v, std::string_view op) const {
  const Node* n = maker(v);
  return n != nullptr && n->op == op && n->then.empty() ? n : nullptr;
}

const Node* Matcher::mapped(ValueId v, std::string_view fn) const {
  const Node* n = made_by(v, "map");
  return n != nullptr && n->attrs.word("fn") == fn ? n : nullptr;
}

Place Matcher::place(ValueId v) const {
  const Placement p = placement_of(g_, producers_, v);
  return {p.base, {g_.at(v).type.shape, p.strides, p.offset}};
}

std::optional<double> Matcher::number(ValueId v) const {
  if (v == kNoValue || !g_.at(v).constant || elements(g_.at(v).type.shape) != 1 || g_.at(v).type.quant.scaled())
    return std::nullopt;
  return g_.numbers(v)[0];
}

std::optional<Matcher::WithNumber> Matcher::with_number(ValueId v, std::string_view fn) const {
  const Node* n = mapped(v, fn);
  if (n == nullptr || n->inputs.size() != 2) return std::nullopt;
  const bool commutes = fn == "add" || fn == "mul";
  for (const size_t at : {size_t{1}, size_t{0}}) {
    if (at == 0 && !commutes) break;
    const auto c = number(n->inputs[at]);
    const ValueId x = n->inputs[1 - at];
    if (c && g_.at(x).type.shape == g_.at(v).type.shape) return WithNumber{x, *c};
  }
  return std::nullopt;
}

bool Matcher::is_vector(ValueId v, const Shape& shape) const {
  const Value& value = g_.at(v);
  const Shape& s = value.type.shape;
  if (!value.constant || value.type.quant.scaled() || shape.empty() || s.size() > shape.size()) return false;
  const int64_t n = elements(s);
  return n == 1 || (n == shape.back() && s.back() == n);
}

std::vector<size_t> Matcher::readers(ValueId v) const {
  std::vector<size_t> out;
  for (size_t i = 0; i < g_.nodes.size(); ++i) {
    const auto& in = g_.nodes[i].inputs;
    if (std::find(in.begin(), in.end(), v) != in.end()) out.push_back(i);
  }
  return out;
}

}  // namespace tessera
