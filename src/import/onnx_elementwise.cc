// SPDX-License-Identifier: Apache-2.0
// Operators that work number by number, and casts.
#include <algorithm>

#include "import/onnx_convert.h"

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
    {"And", "and", 2},         {"Or", "or", 2},           {"Pow", "pow", 2},         {"GreaterOrEqual", "greater_equal", 2},
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
  // The exponent may be of another type than the base, whose type the result has.
  if (c.node.op == "Pow") {
    TS_ASSIGN(operands[1], c.b.cast(operands[1], c.b.element(operands[0])));
  }
  if (op->operands > 0) return single(c.b.map(op->fn, operands, c.name()));
  TS_ASSIGN(ValueId x, c.operand(0));
  for (size_t i = 1; i < c.in.size(); ++i) {
    TS_ASSIGN(const ValueId next, c.operand(i));
    TS_ASSIGN(x, c.b.map(op->fn, {x, next}, c.name()));
  }
  return Values{x};
}

Result<Values> mod(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId y, c.operand(1));
  TS_ASSIGN(const int64_t fmod, c.integer("fmod", 0));
  // map's mod follows the divisor's sign on integers and the dividend's on floats, as ONNX does in these two cases.
  const bool integer = info(c.b.element(x)).kind == ElementKind::kInteger;
  if (integer == (fmod != 0))
    return bad_input("Mod is supported on integers with fmod = 0 and on floats with fmod = 1");
  return single(c.b.map("mod", {x, y}, c.name()));
}

Result<Values> gelu(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const std::string approximate, c.word("approximate", "none"));
  if (approximate != "none" && approximate != "tanh")
    return bad_input(cat("Gelu with approximate='", shown(approximate), "'; known: none, tanh"));
  return single(c.b.map(approximate == "none" ? "gelu_erf" : "gelu_tanh", {x}, c.name()));
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
  // Everything but zero is true.
  TS_ASSIGN(const ValueId zero, c.b.map("equal", {x, c.b.scalar(0, c.b.element(x))}, c.name()));
  return c.b.map("logical_not", {zero}, c.name());
}

Result<Values> cast(OnnxCall& c) {
  constexpr int64_t kBool = 9;
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const int64_t to, c.integer("to", 0));
  const auto element = element_of_onnx(to);
  if (!element) return bad_input(cat("Cast to ", onnx_type_name(to), " is not supported"));
  return single(cast_to(c, x, *element, to == kBool));
}

Result<Values> cast_like(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId like, c.operand(1));
  return single(cast_to(c, x, c.b.element(like), false));
}

// Inference: Dropout passes its input on.
Result<Values> identity(OnnxCall& c) { return single(c.operand(0)); }

}  // namespace

std::span<const OnnxOp> onnx_elementwise_ops() {
  static const std::vector<OnnxOp> kOps = [] {
    std::vector<OnnxOp> ops = {{"Mod", mod},         {"Gelu", gelu},          {"Clip", clip},
                               {"Cast", cast},       {"CastLike", cast_like}, {"Identity", identity},
                               {"Dropout", identity}};
    for (const MapOp& m : kMapOps) ops.push_back({m.name, map});
    return ops;
  }();
  return kOps;
}

}  // namespace tessera
