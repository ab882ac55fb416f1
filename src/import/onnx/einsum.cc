// SPDX-License-Identifier: Apache-2.0
// Einsum as matrix products: operands are joined from the left, two at a time. Of the letters of a pair, those that
// are not needed any more are summed over, those that both have are the batch, the rest is one side each:
//   a[batch, m, k], b[batch, n, k] -> y[batch, m, n]
#include <algorithm>

#include "import/onnx/convert.h"

namespace tessera {
namespace {

struct Term {
  ValueId value = kNoValue;
  std::string letters;  // one per axis
};

bool contains(const std::string& letters, char c) { return letters.find(c) != std::string::npos; }

struct Equation {
  std::vector<std::string> terms;
  std::string result;
};

// Letters of each operand; the axes that "..." stands for are named 0, 1, 2, ..., counted from the back.
Result<Equation> parse(OnnxCall& c, const std::string& text) {
  Equation out;
  std::string left, right, plain;
  for (char ch : text) {
    if (ch != ' ') plain += ch;
  }
  const size_t arrow = plain.find("->");
  left = plain.substr(0, arrow);
  if (arrow != std::string::npos) right = plain.substr(arrow + 2);
  const auto fail = [&](const std::string& why) { return bad_input(cat("equation '", shown(text), "': ", why)); };
  size_t spread_most = 0;
  for (size_t start = 0; start <= left.size();) {
    const size_t end = std::min(left.find(',', start), left.size());
    std::string term = left.substr(start, end - start);
    const size_t index = out.terms.size();
    if (!c.has(index)) return fail("it has another number of operands");
    if (const size_t dots = term.find("..."); dots != std::string::npos) {
      const size_t rank = c.b.rank(c.in[index]);
      if (rank + 3 < term.size() || rank + 3 - term.size() > 10) return fail("an operand has too few axes");
      const size_t spread = rank + 3 - term.size();
      std::string names;
      for (size_t i = spread; i-- > 0;) names += static_cast<char>('0' + i);
      term.replace(dots, 3, names);
      spread_most = std::max(spread_most, spread);
    }
    if (term.size() != c.b.rank(c.in[index])) return fail("its letters are not the axes of the operands");
    std::string sorted = term;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return fail("a diagonal is not supported");
    out.terms.push_back(term);
    start = end + 1;
  }
  if (out.terms.size() != c.in.size()) return fail("it has another number of operands");
  std::string spread;
  for (size_t i = spread_most; i-- > 0;) spread += static_cast<char>('0' + i);
  if (arrow == std::string::npos) {  // all letters that occur once, in their order
    std::string all;
    for (const std::string& t : out.terms) all += t;
    std::string once;
    for (char ch : all) {
      if (ch > '9' && std::count(all.begin(), all.end(), ch) == 1) once += ch;
    }
    std::sort(once.begin(), once.end());
    right = spread + once;
  } else if (const size_t dots = right.find("..."); dots != std::string::npos) {
    right.replace(dots, 3, spread);
  }
  for (char ch : right) {
    const bool known = std::any_of(out.terms.begin(), out.terms.end(), [&](auto& t) { return contains(t, ch); });
    if (!known || std::count(right.begin(), right.end(), ch) > 1) return fail("its result names no axis of an operand");
  }
  out.result = right;
  return out;
}

class Contraction {
 public:
  explicit Contraction(OnnxCall& c) : c_(c) {}

  Result<ValueId> run(const Equation& equation) {
    for (size_t i = 0; i < equation.terms.size(); ++i) {
      for (size_t a = 0; a < equation.terms[i].size(); ++a) {
        int64_t& size = sizes_.emplace(equation.terms[i][a], 1).first->second;
        const int64_t here = c_.b.shape(c_.in[i])[a];
        if (size != 1 && here != 1 && size != here)
          return bad_input(cat("letter ", equation.terms[i][a], " is ", size, " and ", here, " long"));
        size = std::max(size, here);
      }
    }
    Term sum{c_.in[0], equation.terms[0]};
    for (size_t i = 0; i < equation.terms.size(); ++i) {
      std::string needed = equation.result;
      for (size_t later = i + 1; later < equation.terms.size(); ++later) needed += equation.terms[later];
      if (i > 0) {
        TS_ASSIGN(sum, join(sum, {c_.in[i], equation.terms[i]}, needed, i));
      }
      TS_ASSIGN(sum, sum_out(sum, needed));
    }
    return permute(sum, equation.result);
  }

 private:
  // Sums over letters that are not needed.
  Result<Term> sum_out(const Term& t, const std::string& needed) {
    std::vector<bool> reduced;
    Term y{t.value, ""};
    for (char ch : t.letters) {
      reduced.push_back(!contains(needed, ch));
      if (contains(needed, ch)) y.letters += ch;
    }
    if (y.letters == t.letters) return t;
    TS_ASSIGN(y.value, reduce_axes(c_, t.value, reduced, false, "sum"));
    return y;
  }

  Result<ValueId> permute(const Term& t, const std::string& order) {
    std::vector<int64_t> perm;
    for (char ch : order) perm.push_back(static_cast<int64_t>(t.letters.find(ch)));
    return c_.b.permute(t.value, perm);
  }

  Shape sizes_of(const std::string& letters) const {
    Shape shape;
    for (char ch : letters) shape.push_back(sizes_.at(ch));
    return shape;
  }

  // [batch..., rows, k] of a term.
  Result<ValueId> matrix(const Term& t, const std::string& batch, const std::string& rows, const std::string& k) {
    TS_ASSIGN(ValueId x, permute(t, batch + rows + k));
    TS_ASSIGN(x, c_.b.expand(x, sizes_of(batch + rows + k)));
    Shape shape = sizes_of(batch);
    shape.push_back(elements(sizes_of(rows)));
    shape.push_back(elements(sizes_of(k)));
    return c_.b.reshape(x, shape, c_.name());
  }

  Result<Term> join(Term a, Term b, const std::string& needed, size_t operand) {
    // A letter of one side only that is not needed is summed before the product.
    TS_ASSIGN(a, sum_out(a, needed + b.letters));
    TS_ASSIGN(b, sum_out(b, needed + a.letters));
    std::string batch, m, n, k;
    for (char ch : a.letters) (!contains(b.letters, ch) ? m : contains(needed, ch) ? batch : k) += ch;
    for (char ch : b.letters) {
      if (!contains(a.letters, ch)) n += ch;
    }
    TS_ASSIGN(const ValueId x, matrix(a, batch, m, k));
    TS_ASSIGN(const ValueId w, matrix(b, batch, n, k));
    const bool layer = batch.empty() && c_.b.is_constant(c_.in[operand]);
    TS_ASSIGN(const ValueId y, product(c_, x, w, layer ? c_.name_by(operand) : c_.name()));
    Term out{kNoValue, batch + m + n};
    TS_ASSIGN(out.value, c_.b.reshape(y, sizes_of(out.letters), c_.name()));
    return out;
  }

  OnnxCall& c_;
  std::map<char, int64_t> sizes_;
};

Result<Values> einsum(OnnxCall& c) {
  TS_ASSIGN(const std::string text, c.word("equation", ""));
  for (size_t i = 0; i < c.in.size(); ++i) TS_TRY(c.operand(i).status());
  TS_ASSIGN(const Equation equation, parse(c, text));
  return single(Contraction(c).run(equation));
}

}  // namespace

std::span<const OnnxOp> onnx_einsum_ops() {
  static const OnnxOp kOps[] = {{"Einsum", einsum}};
  return kOps;
}

}  // namespace tessera
