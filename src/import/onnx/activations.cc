// SPDX-License-Identifier: Apache-2.0
// Activations. Gelu and Swish are functions of `map`; the rest is written out in its simple functions.
#include "import/onnx/convert.h"

namespace tessera {
namespace {

// A few functions of x with constants of x's own type: expressions read like their formulas.
class Written {
 public:
  explicit Written(OnnxCall& c, ValueId x) : c_(c), element_(c.b.element(x)) {}
  ValueId number(double n) const { return c_.b.scalar(n, element_); }
  Result<ValueId> operator()(const char* fn, Result<ValueId> a) const {
    if (!a.ok()) return a;
    return c_.b.map(fn, {*a}, c_.name());
  }
  Result<ValueId> operator()(const char* fn, Result<ValueId> a, Result<ValueId> b) const {
    if (!a.ok()) return a;
    if (!b.ok()) return b;
    return c_.b.map(fn, {*a, *b}, c_.name());
  }
  Result<ValueId> where(Result<ValueId> condition, Result<ValueId> a, Result<ValueId> b) const {
    if (!condition.ok()) return condition;
    if (!a.ok()) return a;
    if (!b.ok()) return b;
    return c_.b.map("where", {*condition, *a, *b}, c_.name());
  }
  // log(1 + e^x) without overflow: max(x, 0) + log(1 + e^-|x|).
  Result<ValueId> softplus(ValueId x) const {
    const Written& f = *this;
    return f("add", f("max", x, number(0)), f("log", f("add", f("exp", f("neg", f("abs", x))), number(1))));
  }
  // low (e^(x / slope) - 1) below zero, x above; x is cut at zero before the power, which would overflow unused.
  Result<ValueId> exponential(ValueId x, double low, double slope) const {
    const Written& f = *this;
    const auto power = f("exp", f("div", f("min", x, number(0)), number(slope)));
    return f.where(f("less", x, number(0)), f("mul", f("sub", power, number(1)), number(low)), x);
  }

 private:
  OnnxCall& c_;
  Element element_;
};

Result<Values> gelu(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const std::string approximate, c.word("approximate", "none"));
  if (approximate != "none" && approximate != "tanh")
    return bad_input(cat("Gelu with approximate='", shown(approximate), "'; known: none, tanh"));
  return single(c.b.map(approximate == "none" ? "gelu_erf" : "gelu_tanh", {x}, c.name()));
}

Result<Values> swish(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const double alpha, c.number("alpha", 1));
  if (alpha == 1) return single(c.b.map("silu", {x}, c.name()));
  const Written f(c, x);
  return single(f("mul", x, f("sigmoid", f("mul", x, f.number(alpha)))));
}

Result<Values> hard_sigmoid(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const double alpha, c.number("alpha", 0.2));
  TS_ASSIGN(const double beta, c.number("beta", 0.5));
  const Written f(c, x);
  const auto line = f("add", f("mul", x, f.number(alpha)), f.number(beta));
  return single(f("max", f("min", line, f.number(1)), f.number(0)));
}

Result<Values> hard_swish(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  const Written f(c, x);
  const auto line = f("add", f("mul", x, f.number(1.0 / 6)), f.number(0.5));
  return single(f("mul", x, f("max", f("min", line, f.number(1)), f.number(0))));
}

Result<Values> leaky_relu(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const double alpha, c.number("alpha", 0.01));
  const Written f(c, x);
  if (alpha > 0 && alpha <= 1) return single(f("max", x, f("mul", x, f.number(alpha))));
  return single(f.where(f("less", x, f.number(0)), f("mul", x, f.number(alpha)), x));
}

Result<Values> prelu(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const ValueId slope, c.operand(1));
  const Written f(c, x);
  return single(f.where(f("less", x, f.number(0)), f("mul", x, slope), x));
}

Result<Values> elu(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const double alpha, c.number("alpha", 1));
  return single(Written(c, x).exponential(x, alpha, 1));
}

Result<Values> celu(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const double alpha, c.number("alpha", 1));
  return single(Written(c, x).exponential(x, alpha, alpha));
}

Result<Values> selu(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const double alpha, c.number("alpha", 1.67326319217681884765625));
  TS_ASSIGN(const double gamma, c.number("gamma", 1.05070102214813232421875));
  const Written f(c, x);
  return single(f("mul", f.exponential(x, alpha, 1), f.number(gamma)));
}

Result<Values> softplus(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  return single(Written(c, x).softplus(x));
}

Result<Values> mish(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  const Written f(c, x);
  return single(f("mul", x, f("tanh", f.softplus(x))));
}

Result<Values> softsign(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  const Written f(c, x);
  return single(f("div", x, f("add", f("abs", x), f.number(1))));
}

Result<Values> thresholded_relu(OnnxCall& c) {
  TS_ASSIGN(const ValueId x, c.operand(0));
  TS_ASSIGN(const double alpha, c.number("alpha", 1));
  const Written f(c, x);
  return single(f.where(f("greater", x, f.number(alpha)), x, f.number(0)));
}

}  // namespace

std::span<const OnnxOp> onnx_activation_ops() {
  static const OnnxOp kOps[] = {
      {"Gelu", gelu},
      {"Swish", swish},
      {"HardSigmoid", hard_sigmoid},
      {"HardSwish", hard_swish},
      {"LeakyRelu", leaky_relu},
      {"PRelu", prelu},
      {"Elu", elu},
      {"Celu", celu},
      {"Selu", selu},
      {"Softplus", softplus},
      {"Mish", mish},
      {"Softsign", softsign},
      {"ThresholdedRelu", thresholded_relu},
  };
  return kOps;
}

}  // namespace tessera
