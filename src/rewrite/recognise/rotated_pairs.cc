// SPDX-License-Identifier: Apache-2.0
#include "rewrite/recognise/rotated_pairs.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr int kMaxDepth = 12;
constexpr int64_t kMaxHead = 4096;

struct Term {
  int64_t from = 0;  // in x
  double sign = 1;
  ValueId table = kNoValue;
  size_t tail = 0;
  int64_t at = 0;
};
// Terms of each number of a head, in row order of the axes that stand where x has its last one.
using Form = std::vector<std::vector<Term>>;

int64_t tail_elements(const Shape& shape, size_t lead) {
  int64_t n = 1;
  for (size_t i = lead; i < shape.size(); ++i) n *= shape[i];
  return n;
}

// Calls body(index in row order, offset) for all elements of the axes from `lead` on.
template <class Body>
void for_each_in_tail(const Region& r, size_t lead, const Body& body) {
  const int64_t n = tail_elements(r.shape, lead);
  for (int64_t i = 0; i < n; ++i) {
    int64_t rest = i, offset = 0;
    for (size_t a = r.shape.size(); a-- > lead;) {
      offset += rest % r.shape[a] * r.strides[a];
      rest /= r.shape[a];
    }
    body(i, offset);
  }
}

class FormReader {
 public:
  FormReader(const Graph& graph, const Matcher& matcher, Place x)
      : g_(graph), m_(matcher), x_(std::move(x)), lead_(x_.region.shape.size() - 1) {}

  std::optional<Form> read(ValueId v, int depth = 0) const {
    const Shape& shape = g_.at(v).type.shape;
    if (depth > kMaxDepth || g_.at(v).constant || shape.size() < lead_ || tail_elements(shape, lead_) > kMaxHead ||
        !std::equal(x_.region.shape.begin(), x_.region.shape.end() - 1, shape.begin()))
      return std::nullopt;
    const Place p = m_.place(v);
    if (p.base == x_.base) return part_of_x(p.region);
    if (p.base != v) return part_of(p, depth);
    const Node* n = m_.maker(v);
    if (n == nullptr || !n->then.empty()) return std::nullopt;
    if (n->op == "concat") return joined(*n, depth);
    if (n->op == "copy") return read(n->inputs[0], depth + 1);
    if (n->op != "map") return std::nullopt;
    const std::string fn = n->attrs.word("fn");
    if (fn == "neg") return negated(read(n->inputs[0], depth + 1));
    if (fn == "mul") return multiplied(*n, depth);
    if (fn != "add" && fn != "sub") return std::nullopt;
    if (g_.at(n->inputs[0]).type.shape != shape || g_.at(n->inputs[1]).type.shape != shape) return std::nullopt;
    auto a = read(n->inputs[0], depth + 1);
    const auto b = a ? read(n->inputs[1], depth + 1) : std::nullopt;
    if (!b) return std::nullopt;
    const auto c = fn == "add" ? b : negated(b);
    for (size_t i = 0; i < a->size(); ++i) {
      (*a)[i].insert((*a)[i].end(), (*c)[i].begin(), (*c)[i].end());
      if ((*a)[i].size() > 2) return std::nullopt;
    }
    return a;
  }

 private:
  static std::optional<Form> negated(std::optional<Form> form) {
    if (!form) return form;
    for (auto& terms : *form) {
      for (Term& t : terms) t.sign = -t.sign;
    }
    return form;
  }

  bool same_lead(const Region& r, const Shape& strides) const {
    for (size_t a = 0; a < lead_; ++a) {
      if (r.shape[a] > 1 && r.strides[a] != strides[a]) return false;
    }
    return true;
  }

  std::optional<Form> part_of_x(const Region& r) const {
    const int64_t d = x_.region.shape.back(), step = x_.region.strides.back();
    if (!same_lead(r, x_.region.strides) || step == 0) return std::nullopt;
    Form form(static_cast<size_t>(tail_elements(r.shape, lead_)));
    bool inside = true;
    for_each_in_tail(r, lead_, [&](int64_t i, int64_t offset) {
      const int64_t at = r.offset + offset - x_.region.offset;
      inside = inside && at % step == 0 && at / step >= 0 && at / step < d;
      form[static_cast<size_t>(i)] = {{.from = at / step}};
    });
    return inside ? std::optional(form) : std::nullopt;
  }

  // A view of a value that lies densely.
  std::optional<Form> part_of(const Place& p, int depth) const {
    const auto whole = read(p.base, depth + 1);
    if (!whole || !same_lead(p.region, dense_strides(g_.at(p.base).type.shape))) return std::nullopt;
    Form form(static_cast<size_t>(tail_elements(p.region.shape, lead_)));
    bool inside = true;
    for_each_in_tail(p.region, lead_, [&](int64_t i, int64_t offset) {
      const int64_t at = p.region.offset + offset;
      inside = inside && at >= 0 && at < static_cast<int64_t>(whole->size());
      if (inside) form[static_cast<size_t>(i)] = (*whole)[static_cast<size_t>(at)];
    });
    return inside ? std::optional(form) : std::nullopt;
  }

  std::optional<Form> joined(const Node& concat, int depth) const {
    const Shape& shape = g_.at(concat.outputs[0]).type.shape;
    const int64_t axis = concat.attrs.integer("axis");
    const size_t at = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(shape.size()) : axis);
    if (at < lead_) return std::nullopt;
    const int64_t inner = tail_elements(shape, at + 1), whole = tail_elements(shape, at);
    Form form(static_cast<size_t>(tail_elements(shape, lead_)));
    int64_t begin = 0;
    for (const ValueId in : concat.inputs) {
      const auto piece = read(in, depth + 1);
      if (!piece) return std::nullopt;
      const int64_t length = g_.at(in).type.shape[at] * inner;
      for (int64_t i = 0; i < static_cast<int64_t>(piece->size()); ++i)
        form[static_cast<size_t>(i / length * whole + begin + i % length)] = (*piece)[static_cast<size_t>(i)];
      begin += length;
    }
    return form;
  }

  std::optional<Form> multiplied(const Node& mul, int depth) const {
    for (const size_t at : {size_t{0}, size_t{1}}) {
      const ValueId table = mul.inputs[1 - at];
      const Shape &shape = g_.at(mul.outputs[0]).type.shape, &t = g_.at(table).type.shape;
      if (g_.at(mul.inputs[at]).type.shape != shape) continue;
      auto form = read(mul.inputs[at], depth + 1);
      if (!form) continue;
      const auto number = m_.number(table);
      if (number && *number != 1 && *number != -1) return std::nullopt;
      const size_t tail = std::min(t.size(), shape.size() - lead_);
      Region region{shape, Shape(shape.size(), 0), 0};
      const Shape dense = dense_strides(Shape(t.end() - static_cast<std::ptrdiff_t>(tail), t.end()));
      for (size_t i = 0; i < tail; ++i) {
        if (t[t.size() - tail + i] > 1) region.strides[shape.size() - tail + i] = dense[i];
      }
      bool once = true;
      for_each_in_tail(region, lead_, [&](int64_t i, int64_t offset) {
        for (Term& term : (*form)[static_cast<size_t>(i)]) {
          if (number) {
            term.sign *= *number;
          } else {
            once = once && term.table == kNoValue;
            term.table = table, term.tail = tail, term.at = offset;
          }
        }
      });
      return once ? form : std::nullopt;
    }
    return std::nullopt;
  }

  const Graph& g_;
  const Matcher& m_;
  const Place x_;
  const size_t lead_;
};

// Places that could be x: what y is computed from, where it has y's shape; for slices of x, the head that would begin
// with them. Whether one is x shows when y is read with it.
std::vector<Place> candidates(const Graph& graph, const Matcher& m, ValueId y, const Shape& shape) {
  std::vector<Place> out;
  const auto add = [&](const Place& p) {
    for (const Place& known : out) {
      if (known.base == p.base && known.region == p.region) return;
    }
    if (p.region.shape == shape && in_range(p.region, elements(graph.at(p.base).type.shape))) out.push_back(p);
  };
  std::vector<Place> slices;
  std::vector<ValueId> front = {y};
  for (int depth = 0; depth < 6 && !front.empty() && front.size() <= 16; ++depth) {
    std::vector<ValueId> next;
    for (const ValueId v : front) {
      const Node* n = m.maker(m.place(v).base);
      if (n == nullptr || (n->op != "map" && n->op != "concat")) continue;
      for (const ValueId in : n->inputs) {
        if (graph.at(in).constant) continue;
        add(m.place(in));
        slices.push_back(m.place(in));
        next.push_back(in);
      }
    }
    front = std::move(next);
  }
  for (Place& slice : slices) {
    Region& r = slice.region;
    if (r.shape.size() < shape.size() || r.shape[shape.size() - 1] >= shape.back()) continue;
    r.shape.resize(shape.size());  // a stacked slice has an axis of size 1 behind it
    r.strides.resize(shape.size());
    r.shape.back() = shape.back();
    add(slice);
    r.strides.back() /= 2;
    if (r.strides.back() > 0) add(slice);
  }
  return out;
}

class EqualNumbers {
 public:
  EqualNumbers(const Graph& graph, const Matcher& matcher) : g_(graph), m_(matcher) {}

  // Numbers a and b of the value's last `tail` axes are the same for every index of the axes before.
  bool operator()(ValueId value, size_t tail, int64_t a, int64_t b) const {
    if (a == b) return true;
    const Shape& shape = g_.at(value).type.shape;
    const int64_t block = tail_elements(shape, shape.size() - tail);
    if (g_.at(value).constant) return equal_constants(value, block, a, b);
    return equal_while_running(value, block, a, b);
  }

 private:
  bool equal_constants(ValueId value, int64_t block, int64_t a, int64_t b) const {
    const std::vector<double> numbers = g_.numbers(value);
    for (size_t row = 0; row < numbers.size(); row += static_cast<size_t>(block)) {
      if (numbers[row + static_cast<size_t>(a)] != numbers[row + static_cast<size_t>(b)]) return false;
    }
    return !numbers.empty();
  }

  // Back to where the two positions read one number: a value that is joined with itself, or repeated by a view.
  bool equal_while_running(ValueId value, int64_t block, int64_t a, int64_t b) const {
    for (int step = 0; step < kMaxDepth; ++step) {
      const Place p = m_.place(value);
      if (p.base != value) {
        const Shape& shape = p.region.shape;
        size_t lead = shape.size();
        for (int64_t n = 1; n < block && lead > 0;) n *= shape[--lead];
        int64_t from_a = -1, from_b = -1;
        for_each_in_tail(p.region, lead, [&](int64_t i, int64_t offset) {
          if (i == a) from_a = offset;
          if (i == b) from_b = offset;
        });
        if (from_a == from_b && from_a >= 0) return true;
        if (!p.region.whole() || elements(shape) != elements(g_.at(p.base).type.shape)) return false;
        value = p.base;
        continue;
      }
      const Node* n = m_.maker(value);
      if (n == nullptr || !n->then.empty()) return false;
      if (n->op == "copy") {
        value = n->inputs[0];
      } else if (n->op == "map") {
        ValueId only = kNoValue;
        for (const ValueId in : n->inputs) {
          if (m_.number(in)) continue;
          if (only != kNoValue || g_.at(in).type.shape != g_.at(value).type.shape) return false;
          only = in;
        }
        if (only == kNoValue) return false;
        value = only;
      } else if (n->op == "concat") {
        const int64_t axis = n->attrs.integer("axis"), rank = static_cast<int64_t>(g_.at(value).type.shape.size());
        if ((axis != -1 && axis != rank - 1) || g_.at(value).type.shape.back() != block) return false;
        const auto [in_a, at_a] = piece(*n, a);
        const auto [in_b, at_b] = piece(*n, b);
        const Place pa = m_.place(in_a), pb = m_.place(in_b);
        if (pa.base != pb.base || pa.region != pb.region) return false;
        if (at_a == at_b) return true;
        value = in_a, a = at_a, b = at_b, block = g_.at(in_a).type.shape.back();
      } else {
        return false;
      }
    }
    return false;
  }

  std::pair<ValueId, int64_t> piece(const Node& concat, int64_t at) const {
    for (const ValueId in : concat.inputs) {
      const int64_t length = g_.at(in).type.shape.back();
      if (at < length) return {in, at};
      at -= length;
    }
    return {kNoValue, 0};
  }

  const Graph& g_;
  const Matcher& m_;
};

// The form as pairs (i, i + r) or (2i, 2i + 1); nothing where it is neither, a sign is wrong or a pair has two angles.
std::optional<TurnedPairs> as_pairs(const Graph& graph, const Matcher& m, const Form& form, const Place& x,
                                    bool interleaved) {
  const int64_t d = static_cast<int64_t>(form.size());
  int64_t turned = 0;
  while (turned < d && form[static_cast<size_t>(turned)].size() == 2) ++turned;
  for (int64_t c = turned; c < d; ++c) {
    const auto& terms = form[static_cast<size_t>(c)];
    if (terms.size() != 1 || terms[0].from != c || terms[0].sign != 1 || terms[0].table != kNoValue)
      return std::nullopt;
  }
  if (turned == 0 || turned % 2 != 0) return std::nullopt;
  const int64_t pairs = turned / 2;
  TurnedPairs out{.x = x, .interleaved = interleaved, .cos = {}, .sin = {}};
  const EqualNumbers equal(graph, m);
  // The term of number c that reads number `from`, taken into the table; false where it does not fit.
  const auto take = [&](int64_t c, int64_t from, double sign, int64_t pair, AngleTable& table) {
    const auto& terms = form[static_cast<size_t>(c)];
    const Term* t = terms[0].from == from ? &terms[0] : terms[1].from == from ? &terms[1] : nullptr;
    if (t == nullptr || t->sign != sign || t->table == kNoValue) return false;
    if (table.value == kNoValue) table.value = t->table, table.tail = t->tail;
    if (table.value != t->table || table.tail != t->tail) return false;
    if (static_cast<int64_t>(table.at.size()) == pair) {
      table.at.push_back(t->at);
      return true;
    }
    return equal(table.value, table.tail, table.at.back(), t->at);
  };
  for (int64_t i = 0; i < pairs; ++i) {
    const int64_t first = interleaved ? 2 * i : i, second = interleaved ? 2 * i + 1 : i + pairs;
    if (!take(first, first, 1, i, out.cos) || !take(first, second, -1, i, out.sin) ||
        !take(second, second, 1, i, out.cos) || !take(second, first, 1, i, out.sin))
      return std::nullopt;
  }
  return out;
}

}  // namespace

std::optional<TurnedPairs> find_turned_pairs(const Graph& graph, const Matcher& m, ValueId y, const Shape& shape) {
  if (shape.size() < 2 || shape.back() < 2 || shape.back() > kMaxHead) return std::nullopt;
  for (const Place& x : candidates(graph, m, y, shape)) {
    const auto form = FormReader(graph, m, x).read(y);
    if (!form || static_cast<int64_t>(form->size()) != shape.back()) continue;
    for (const bool interleaved : {false, true}) {
      if (auto found = as_pairs(graph, m, *form, x, interleaved)) return found;
    }
  }
  return std::nullopt;
}

}  // namespace tessera
