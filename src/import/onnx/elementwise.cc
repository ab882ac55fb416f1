// SPDX-License-Identifier: Apache-2.0
// Operators that work number by number, and casts.
#include <algorithm>
#include <cmath>

#include "import/onnx/convert.h"

namespace tessera {
namespace {

// Operators that are a function of `map`, with the number of their operands (0: any number, folded from the left).
struct MapOp {
  const char *name, *fn;
  int operands;
};
// clang-format off
constexpr MapOp kMapOps[] = {
    {"Neg", "neg", 1},         {"Abs", "abs", 1},         {"Exp", "exp", 1},         {"Log", "log", 1},
    {"Sqrt", "sqrt", 1},       {"Erf", "erf", 1},         {"Tanh", "tanh", 1},       {"Sigmoid", "sigmoid", 1},
    {"Relu", "relu", 1},       {"Floor", "floor", 1},     {"Ceil", "ceil", 1},       {"Round", "round", 1},
    {"Sin", "sin", 1},         {"Cos", "cos", 1},         {"Not", "logical_not", 1}, {"Reciprocal", "reciprocal", 1},
    {"Add", "add", 2},         {"Sub", "sub", 2},         {"Mul", "mul", 2},         {"Div", "div", 2},
    {"Equal", "equal", 2},     {"Less", "less", 2},       {"Greater", "greater", 2}, {"LessOrEqual", "less_equal", 2},
    {"And", "and", 2},         {"Or", "or", 2},           {"GreaterOrEqual", "greater_equal", 2},
    {"Where", "where", 3},     {"Min", "min", 0},         {"Max", "max", 0},         {"Sum", "add", 0},
};
// clang-format on

Result<Values> map(OnnxCall& c) {
  const MapOp* op =
      std::find_if(std::begin(kMapOps), std::end(kMapOps), [&](const MapOp& m) { return c.node.op == m.name; });
  Values operands;
  for (size_t i = 0; i < static_cast<size_t>(op->operands); ++i) {
    TS_ASSIGN(const ValueId v, c.operand(i));
    operands.push_back(v);
  }
  if (op->operands > 0) return single(c.b.map(op->fn, operands, c.name()));
  TS_ASSIGN(ValueId x, c.operand(0));
  for (size_t i = 1; i < c.in.size(); ++i) {
    TS_ASSIGN(const ValueId next, c.operand(i));
    TS_ASSIGN(x, c.b.map(op->fn, {x, next}, c.name()));
  }
  return Values{x};
}

// The result has the base's type, whatever the exponent's: an integer to a fraction is worked out in f64, then cut.
Result<Values> pow(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId y, c.operand(1));
  const Element element = c.b.element(x);
  const Element inside = c.is_integer(x) && !c.is_integer(y) ? Element::f64 : element;
  TS_ASSIGN(const ValueId base, c.b.cast(x, inside));
  TS_ASSIGN(const ValueId exponent, c.b.cast(y, inside));
  TS_ASSIGN(const ValueId power, c.b.map("pow", {base, exponent}, c.name()));
  return single(c.b.cast(power, element, c.name()));
}

Result<Values> mod(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId y, c.operand(1));
  TS_ASSIGN(const int64_t fmod, c.integer("fmod", 0));
  // map's mod follows the divisor's sign on integers and the dividend's on floats, as ONNX does in these two cases.
  if (!c.is_integer(x) && fmod == 0) return bad_input("Mod of floats is defined with fmod = 1 only");
  if (!c.is_integer(x) || fmod == 0) return single(c.b.map("mod", {x, y}, c.name()));
  TS_ASSIGN(const ValueId quotient, c.b.map("div", {x, y}, c.name()));  // towards zero
  TS_ASSIGN(const ValueId whole, c.b.map("mul", {quotient, y}, c.name()));
  return single(c.b.map("sub", {x, whole}, c.name()));
}

Result<Values> exclusive_or(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId y, c.operand(1));
  TS_ASSIGN(const ValueId same, c.b.map("equal", {x, y}, c.name()));
  return single(c.b.map("logical_not", {same}, c.name()));
}

Result<Values> mean(OnnxCall& c) {
  TS_ASSIGN(ValueId sum, c.operand(0));
  for (size_t i = 1; i < c.in.size(); ++i) {
    TS_ASSIGN(const ValueId next, c.operand(i));
    TS_ASSIGN(sum, c.b.map("add", {sum, next}, c.name()));
  }
  return single(c.b.map("div", {sum, c.b.scalar(static_cast<double>(c.in.size()), c.b.element(sum))}, c.name()));
}

Result<Values> tangent(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId sine, c.b.map("sin", {x}, c.name()));
  TS_ASSIGN(const ValueId cosine, c.b.map("cos", {x}, c.name()));
  return single(c.b.map("div", {sine, cosine}, c.name()));
}

// NaN alone differs from itself.
Result<Values> is_nan(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId same, c.b.map("equal", {x, x}, c.name()));
  return single(c.b.map("logical_not", {same}, c.name()));
}

Result<Values> is_inf(OnnxCall& c) {
  TS_ASSIGN(ValueId x, c.operand(0));
  TS_ASSIGN(const int64_t negative, c.integer("detect_negative", 1));
  TS_ASSIGN(const int64_t positive, c.integer("detect_positive", 1));
  if (negative != 0 && positive != 0) {
    TS_ASSIGN(x, c.b.map("abs", {x}, c.name()));
  } else if (negative != 0) {
    TS_ASSIGN(x, c.b.map("neg", {x}, c.name()));
  }
  const double wanted = negative != 0 || positive != 0 ? INFINITY : NAN;  // neither: nothing equals NaN
  return single(c.b.map("equal", {x, c.b.scalar(wanted, c.b.element(x))}, c.name()));
}

Result<Values> sign(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  const Element element = c.b.element(x);
  Values sides;
  for (const char* fn : {"greater", "less"}) {
    TS_ASSIGN(const ValueId side, c.b.map(fn, {x, c.b.scalar(0, element)}, c.name()));
    TS_ASSIGN(const ValueId number, c.b.cast(side, element, c.name()));
    sides.push_back(number);
  }
  return single(c.b.map("sub", sides, c.name()));
}

Result<Values> clip(OnnxCall& c) {
  TS_ASSIGN(ValueId x, c.operand(0));
  if (c.has(1)) {
    TS_ASSIGN(x, c.b.map("max", {x, c.in[1]}, c.name()));
  }
  if (c.has(2)) {
    TS_ASSIGN(x, c.b.map("min", {x, c.in[2]}, c.name()));
  }
  return Values{x};
}

Result<ValueId> cast_to(OnnxCall& c, ValueId x, Element element, bool truth) {
  if (!truth) return c.b.cast(x, element, c.name());
  if (c.is_truth(x)) return x;
  // Everything but zero is true.
  TS_ASSIGN(const ValueId zero, c.b.map("equal", {x, c.b.scalar(0, c.b.element(x))}, c.name()));
  return c.b.map("logical_not", {zero}, c.name());
}

Result<Values> cast(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const int64_t to, c.integer("to", 0));
  const auto element = element_of_onnx(to);
  if (!element) return bad_input(cat("Cast to ", onnx_type_name(to), " is not supported"));
  return single(cast_to(c, x, *element, to == kOnnxBool));
}

Result<Values> cast_like(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId like, c.operand(1));
  return single(cast_to(c, x, c.b.element(like), c.is_truth(like)));
}

// Inference: Dropout passes its input on.
Result<Values> identity(OnnxCall& c) { return single(c.operand(0)); }
Result<Values> dropout(OnnxCall& c) {
  if (c.has(2)) {
    TS_ASSIGN(const ValueId training, c.operand(2));
    const auto on = c.b.integers(training, "training_mode");
    if (!on.ok() || on->size() != 1 || on->front() != 0)
      return bad_input("training_mode is set; only inference is supported: export in eval mode");
  }
  return identity(c);
}

}  // namespace

std::span<const OnnxOp> onnx_elementwise_ops() {
  static const std::vector<OnnxOp> kOps = [] {
    std::vector<OnnxOp> ops = {
        {"Pow", pow},         {"Mod", mod},   {"Xor", exclusive_or}, {"IsNaN", is_nan},       {"IsInf", is_inf},
        {"Sign", sign},       {"Clip", clip}, {"Cast", cast},        {"CastLike", cast_like}, {"Identity", identity},
        {"Dropout", dropout}, {"Mean", mean}, {"Tan", tangent}};
    for (const MapOp& m : kMapOps) ops.push_back({m.name, map});
    return ops;
  }();
  return kOps;
}

}  // namespace tessera
