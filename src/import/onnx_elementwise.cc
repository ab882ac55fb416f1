// SPDX-License-Identifier: Apache-2.0
// Operators that work number by number, and casts.
#include <map>

#include "import/onnx_convert.h"

namespace tessera {
namespace {

// ONNX name -> function of `map`.
const std::map<std::string, const char*>& map_names() {
  static const std::map<std::string, const char*> kNames = {
      {"Add", "add"},         {"Sub", "sub"},           {"Mul", "mul"},         {"Div", "div"},
      {"Pow", "pow"},         {"Equal", "equal"},       {"Less", "less"},       {"LessOrEqual", "less_equal"},
      {"Greater", "greater"}, {"GreaterOrEqual", "greater_equal"}, {"And", "and"}, {"Or", "or"},
      {"Min", "min"},         {"Max", "max"},           {"Sum", "add"},         {"Neg", "neg"},
      {"Abs", "abs"},         {"Exp", "exp"},           {"Log", "log"},         {"Sqrt", "sqrt"},
      {"Reciprocal", "reciprocal"}, {"Erf", "erf"},     {"Tanh", "tanh"},       {"Sigmoid", "sigmoid"},
      {"Relu", "relu"},       {"Floor", "floor"},       {"Ceil", "ceil"},       {"Round", "round"},
      {"Sin", "sin"},         {"Cos", "cos"},           {"Not", "logical_not"}, {"Where", "where"},
  };
  return kNames;
}

const char* map_name(const OnnxCall& c) { return map_names().at(c.node.op); }

Result<Values> unary(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  return single(c.b.map(map_name(c), {x}, c.name()));
}

Result<Values> binary(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(ValueId y, c.operand(1));
  // The exponent may be of another type than the base, whose type the result has.
  if (c.node.op == "Pow") {
    TS_ASSIGN(y, c.b.cast(y, c.b.element(x)));
  }
  return single(c.b.map(map_name(c), {x, y}, c.name()));
}

Result<Values> variadic(OnnxCall& c) {
  TS_ASSIGN(ValueId x, c.operand(0));
  for (size_t i = 1; i < c.in.size(); ++i) {
    TS_ASSIGN(const ValueId next, c.operand(i));
    TS_ASSIGN(x, c.b.map(map_name(c), {x, next}, c.name()));
  }
  return Values{x};
}

Result<Values> where(OnnxCall& c) {
  TS_ASSIGN(const ValueId condition, c.operand(0));
  TS_ASSIGN(const ValueId x, c.operand(1));
  TS_ASSIGN(const ValueId y, c.operand(2));
  return single(c.b.map("where", {condition, x, y}, c.name()));
}

Result<Values> mod(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId y, c.operand(1));
  TS_ASSIGN(const int64_t fmod, c.integer("fmod", 0));
  // map's mod follows the divisor's sign on integers and the dividend's on floats, as ONNX does in these two cases.
  const bool integer = info(c.b.element(x)).kind == ElementKind::kInteger;
  if (integer == (fmod != 0)) return bad_input("Mod is supported on integers with fmod = 0 and on floats with fmod = 1");
  return single(c.b.map("mod", {x, y}, c.name()));
}

Result<Values> gelu(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const std::string approximate, c.word("approximate", "none"));
  if (approximate != "none" && approximate != "tanh") return bad_input(cat("Gelu with approximate='", shown(approximate), "'; known: none, tanh"));
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
  static const OnnxOp kOps[] = {
      {"Add", binary},     {"Sub", binary},      {"Mul", binary},   {"Div", binary},      {"Pow", binary},         {"Equal", binary},
      {"Less", binary},    {"LessOrEqual", binary}, {"Greater", binary}, {"GreaterOrEqual", binary}, {"And", binary}, {"Or", binary},
      {"Min", variadic},   {"Max", variadic},    {"Sum", variadic}, {"Neg", unary},       {"Abs", unary},          {"Exp", unary},
      {"Log", unary},      {"Sqrt", unary},      {"Reciprocal", unary}, {"Erf", unary},   {"Tanh", unary},         {"Sigmoid", unary},
      {"Relu", unary},     {"Floor", unary},     {"Ceil", unary},   {"Round", unary},     {"Sin", unary},          {"Cos", unary},
      {"Not", unary},      {"Where", where},     {"Mod", mod},      {"Gelu", gelu},       {"Clip", clip},          {"Cast", cast},
      {"CastLike", cast_like}, {"Identity", identity}, {"Dropout", identity},
  };
  return kOps;
}

}  // namespace tessera
