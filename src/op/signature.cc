// SPDX-License-Identifier: Apache-2.0
// Shape rules read from signatures such as "x[...,m,k], w[n,k], b[n]? -> y[...,m,n]".
#include <map>

#include "op/op.h"

namespace tessera {
namespace {

struct Term {
  std::string name;
  std::vector<std::string> dims;
  bool optional = false;
};

std::vector<Term> parse_terms(std::string_view text) {
  std::vector<Term> terms;
  size_t at = 0;
  while (at < text.size()) {
    while (at < text.size() && (text[at] == ' ' || text[at] == ',')) ++at;
    const size_t open = text.find('[', at);
    if (open == std::string_view::npos) break;
    const size_t close = text.find(']', open);
    Term t{.name = std::string(text.substr(at, open - at)), .dims = {}};
    for (size_t i = open + 1; i < close;) {
      size_t end = std::min(text.find(',', i), close);
      t.dims.emplace_back(text.substr(i, end - i));
      i = end + 1;
    }
    at = close + 1;
    if (at < text.size() && text[at] == '?') {
      t.optional = true;
      ++at;
    }
    terms.push_back(std::move(t));
  }
  return terms;
}

}  // namespace

Result<std::vector<Type>> infer_types(const OpInfo& op, const Problem& problem) {
  return op.infer != nullptr ? op.infer(problem) : infer_by_signature(op, problem);
}

Result<std::vector<Type>> infer_by_signature(const OpInfo& op, const Problem& problem) {
  const std::string_view signature = op.signature;
  const size_t arrow = signature.find("->");
  TS_CHECK(arrow != std::string_view::npos, "signature of ", op.name);
  std::map<std::string, int64_t> sizes;
  Shape rest;
  bool rest_known = false;
  const std::vector<Term> inputs = parse_terms(signature.substr(0, arrow));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Term& t = inputs[i];
    const Operand* o = problem.operand(i);
    if (o == nullptr) {
      if (!t.optional) return bad_input(cat(op.name, ": operand ", t.name, " is missing (", op.signature, ")"));
      continue;
    }
    const bool open_ended = !t.dims.empty() && t.dims[0] == "...";
    const size_t named = t.dims.size() - (open_ended ? 1 : 0);
    if (o->shape.size() < named || (!open_ended && o->shape.size() != named)) {
      return bad_input(cat(op.name, ": ", t.name, " has shape ", to_string(o->shape), ", wanted ", op.signature));
    }
    const size_t lead = o->shape.size() - named;
    if (open_ended) {
      const Shape here(o->shape.begin(), o->shape.begin() + static_cast<std::ptrdiff_t>(lead));
      if (rest_known && here != rest) {
        return bad_input(cat(op.name, ": leading axes of ", t.name, " are ", to_string(here), ", of another operand ",
                             to_string(rest)));
      }
      rest = here;
      rest_known = true;
    }
    for (size_t d = 0; d < named; ++d) {
      const std::string& dim = t.dims[d + (open_ended ? 1 : 0)];
      const auto [it, fresh] = sizes.emplace(dim, o->shape[lead + d]);
      if (!fresh && it->second != o->shape[lead + d]) {
        return bad_input(cat(op.name, ": ", dim, " is ", it->second, " in one operand and ", o->shape[lead + d], " in ",
                             t.name, to_string(o->shape)));
      }
    }
  }
  std::vector<Type> results;
  for (const Term& t : parse_terms(signature.substr(arrow + 2))) {
    Type type{.shape = {}, .quant = result_element(problem.in[0])};
    for (const std::string& dim : t.dims) {
      if (dim == "...") {
        type.shape.insert(type.shape.end(), rest.begin(), rest.end());
      } else {
        type.shape.push_back(sizes.at(dim));
      }
    }
    results.push_back(std::move(type));
  }
  return results;
}

}  // namespace tessera
