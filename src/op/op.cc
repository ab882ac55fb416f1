// SPDX-License-Identifier: Apache-2.0
#include "op/op.h"

#include <algorithm>
#include <cmath>

namespace tessera {

std::vector<OperandLayout> layouts_of(const Variant& variant, const Problem& problem) {
  std::vector<OperandLayout> layouts;
  if (variant.layouts != nullptr) layouts = variant.layouts(problem);
  layouts.resize(problem.in.size());
  return layouts;
}

Status check_storage(const Variant& variant, const Problem& problem, int64_t workspace_bytes) {
  Problem plain = problem;
  for (Operand& o : plain.in) o.layout = Layout::kRows;
  const std::vector<OperandLayout> wanted = layouts_of(variant, plain);
  for (size_t i = 0; i < problem.in.size(); ++i) {
    const Operand& o = problem.in[i];
    if (!o.present || o.layout == wanted[i] || (variant.arch == Arch::ref && o.constant)) continue;
    return bad_input(cat("operand ", i, " lies in '", name_of(o.layout), "' in the engine file, ", variant.name,
                         " reads '", name_of(wanted[i]), "'"));
  }
  for (const Operand& o : problem.out) {
    if (o.present && o.layout != Layout::kRows)
      return bad_input(cat("the result lies in '", name_of(o.layout), "' in the engine file; results lie in 'rows'"));
  }
  const int64_t bytes = variant.workspace_bytes != nullptr ? variant.workspace_bytes(plain) : 0;
  if (bytes > workspace_bytes)
    return bad_input(
        cat("'", variant.name, "' works in ", bytes, " bytes, the engine file gives it ", workspace_bytes));
  return {};
}

std::vector<std::string> configs_of(const Variant& variant, const Problem& problem) {
  std::vector<std::string> configs;
  if (variant.configs != nullptr) configs = variant.configs(problem);
  if (configs.empty()) configs.emplace_back();
  return configs;
}

Result<std::string> checked_config(const Variant& variant, const Problem& problem) {
  const std::vector<std::string> known = configs_of(variant, problem);
  if (problem.config.empty()) return known[0];
  if (std::find(known.begin(), known.end(), problem.config) != known.end()) return problem.config;
  std::string names;
  for (const std::string& k : known) names += cat(names.empty() ? "" : ", ", k);
  return bad_input(cat("'", variant.name, "' has no config '", problem.config, "' for this problem; it has ",
                       names.empty() ? "one, without a name" : names));
}

std::string arithmetic_name(Element computed) {
  const ElementInfo& e = info(computed);
  if (computed == Element::f32 || computed == Element::f16) return cat("fp", e.bits);
  return computed == Element::i8 ? "int8" : e.name;
}

double Arithmetic::accumulator_error(int64_t terms) const {
  if (accumulator_bits == 32) return 0x1p-24;
  const double unit = std::ldexp(1.0, 1 - accumulator_bits);  // truncation loses up to one unit per addition
  const double n = static_cast<double>(terms);
  if (promote_every <= 0 || accumulator_bits >= 24) return (n + 1) * unit / 2;
  return promote_every * unit + (n / promote_every + 1) * std::ldexp(1.0, -24);
}

double Roundings::sum(int64_t terms) const {
  if (!walk() || a_.accumulator_bits == 32) return a_.accumulator_error(terms);
  const double unit = std::ldexp(1.0, a_.accumulator_bits >= 24 ? -a_.accumulator_bits : 1 - a_.accumulator_bits);
  return unit * std::sqrt(static_cast<double>(std::max<int64_t>(terms, 1)));
}

}  // namespace tessera
