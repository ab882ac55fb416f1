// SPDX-License-Identifier: Apache-2.0
#include "ops/map/map.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/parallel.h"
#include "op/reference.h"
#include "op/whole_numbers.h"
#include "steps/unary.h"
#include "tiles/strided.h"

#define TS_OP_FOLDER map
#include "ops/list_variants.inc"

namespace tessera {

MapProblem MapProblem::of(const Problem& p) {
  MapProblem m;
  m.fn = p.attrs.word("fn");
  m.shape = p.out[0].shape;
  for (const Operand& o : p.in) {
    m.strides.push_back(broadcast_strides(o.shape, o.strides, m.shape));
    m.in.push_back(o.type);
  }
  m.y = p.out[0].type;
  return m;
}

MapProblem MapProblem::merged() const {
  MapProblem m = *this;
  m.strides.push_back(dense_strides(shape));  // y takes part: what it merges stays dense
  merge_axes(m.shape, m.strides);
  m.strides.pop_back();
  return m;
}

namespace {

using Binary = double (*)(double, double);
struct BinaryInfo {
  const char* name;
  bool truth;  // gives u8 0 or 1
  Binary f, f_integer;
};

double floor_mod(double a, double b) {
  const double r = b == 0 ? 0 : std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

constexpr BinaryInfo kBinary[] = {
    {"add", false, [](double a, double b) { return a + b; }, nullptr},
    {"sub", false, [](double a, double b) { return a - b; }, nullptr},
    {"mul", false, [](double a, double b) { return a * b; }, nullptr},
    {"div", false, [](double a, double b) { return a / b; },
     [](double a, double b) { return b == 0 ? 0 : std::trunc(a / b); }},
    {"pow", false, [](double a, double b) { return std::pow(a, b); },
     [](double a, double b) { return std::trunc(std::pow(a, b)); }},
    {"min", false, [](double a, double b) { return std::isnan(a) || a < b ? a : b; }, nullptr},
    {"max", false, [](double a, double b) { return std::isnan(a) || a > b ? a : b; }, nullptr},
    {"mod", false, [](double a, double b) { return std::fmod(a, b); }, floor_mod},
    {"equal", true, [](double a, double b) { return a == b ? 1.0 : 0.0; }, nullptr},
    {"less", true, [](double a, double b) { return a < b ? 1.0 : 0.0; }, nullptr},
    {"less_equal", true, [](double a, double b) { return a <= b ? 1.0 : 0.0; }, nullptr},
    {"greater", true, [](double a, double b) { return a > b ? 1.0 : 0.0; }, nullptr},
    {"greater_equal", true, [](double a, double b) { return a >= b ? 1.0 : 0.0; }, nullptr},
    {"and", true, [](double a, double b) { return a != 0 && b != 0 ? 1.0 : 0.0; }, nullptr},
    {"or", true, [](double a, double b) { return a != 0 || b != 0 ? 1.0 : 0.0; }, nullptr},
};

const BinaryInfo* find_binary(const std::string& name) {
  for (const BinaryInfo& b : kBinary) {
    if (name == b.name) return &b;
  }
  return nullptr;
}

std::optional<Shape> broadcast(const Shape& a, const Shape& b) {
  Shape y(std::max(a.size(), b.size()));
  for (size_t i = 0; i < y.size(); ++i) {
    const int64_t da = i < a.size() ? a[a.size() - 1 - i] : 1, db = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (da != db && da != 1 && db != 1) return std::nullopt;
    y[y.size() - 1 - i] = da == 1 ? db : da;
  }
  return y;
}

Result<std::vector<Type>> infer(const Problem& p) {
  const std::string fn = p.attrs.word("fn");
  const BinaryInfo* binary = find_binary(fn);
  const size_t arity = fn == "where" ? 3 : binary != nullptr ? 2 : find_unary(fn) ? 1 : 0;
  if (arity == 0) return bad_input(cat("map: function \"", fn, "\" is unknown"));
  if (p.in.size() != arity) return bad_input(cat("map: ", fn, " takes ", arity, " operands, not ", p.in.size()));
  Shape shape;
  for (size_t i = 0; i < arity; ++i) {
    const Operand* o = p.operand(i);
    if (o == nullptr) return bad_input(cat("map: operand ", i, " of ", fn, " is missing"));
    const auto wider = broadcast(shape, o->shape);
    if (!wider)
      return bad_input(
          cat("map: ", fn, ": operand ", i, to_string(o->shape), " does not broadcast with ", to_string(shape)));
    shape = *wider;
  }
  if (arity > 1) {
    const Element a = p.in[arity - 2].type.element, b = p.in[arity - 1].type.element;
    if (info(a).kind != info(b).kind)
      return bad_input(cat("map: ", fn, " of ", info(a).name, " and ", info(b).name, ": cast one of them"));
  }
  const bool truth = binary != nullptr && binary->truth;
  return std::vector<Type>{{.shape = shape, .quant = truth ? Element::u8 : result_element(p.in[arity == 3 ? 1 : 0])}};
}

void reference(const Problem& p, std::span<const Dense> in, std::span<Dense> out) {
  const std::string fn = p.attrs.word("fn");
  const BinaryInfo* binary = find_binary(fn);
  const Unary unary = find_unary(fn).value_or(Unary::identity);
  const bool integer = is_whole(p.in.back().type);
  Shape shape = p.out[0].shape;
  std::vector<Shape> strides;
  for (const Dense& d : in) strides.push_back(broadcast_strides(d.shape, dense_strides(d.shape), shape));
  strides.push_back(dense_strides(shape));
  merge_axes(shape, strides);
  const int64_t length = shape.back();
  const int64_t runs = elements(shape) / std::max<int64_t>(1, length);
  const auto step = [&](size_t o) { return strides[o].back(); };
  parallel_for(runs, std::max<int64_t>(1, 4096 / std::max<int64_t>(1, length)), [&](int64_t begin, int64_t end) {
    StridedRuns walk(shape, strides);
    walk.seek(begin);
    for (int64_t run = begin; run < end; ++run, walk.next()) {
      double* y = out[0].v.data() + run * length;
      const double* a = in[0].v.data() + walk.offset(0);
      if (in.size() == 1) {
        for (int64_t i = 0; i < length; ++i) y[i] = apply(unary, a[i * step(0)]);
        continue;
      }
      const double* b = in[1].v.data() + walk.offset(1);
      if (in.size() == 2) {
        const Binary f = integer && binary->f_integer != nullptr ? binary->f_integer : binary->f;
        for (int64_t i = 0; i < length; ++i) y[i] = f(a[i * step(0)], b[i * step(1)]);
        continue;
      }
      const double* c = in[2].v.data() + walk.offset(2);
      for (int64_t i = 0; i < length; ++i) y[i] = a[i * step(0)] != 0 ? b[i * step(1)] : c[i * step(2)];
    }
  });
}

double flops(const Problem& p) { return static_cast<double>(elements(p.out[0].shape)); }

}  // namespace

const OpInfo& map_op() {
  static const OpInfo kInfo{.name = "map",
                            .signature = "a[...], b[...]?, c[...]? -> y[...]",
                            .strided = StridedInputs::kAny,
                            .infer = infer,
                            .reference = reference,
                            .errors = map_errors,
                            .terms = map_terms,
                            .flops = flops,
                            .variants = listed_variants()};
  return kInfo;
}

}  // namespace tessera
