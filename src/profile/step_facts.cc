// SPDX-License-Identifier: Apache-2.0
#include "profile/step_facts.h"

#include <utility>

#include "op/extra_results.h"
#include "ops/ops.h"
#include "plan/choose.h"
#include "types/precisions/precision.h"

namespace tessera {
namespace {

constexpr std::pair<std::string_view, KernelClass> kClasses[] = {
    {"matmul", KernelClass::kGemm},         {"conv2d", KernelClass::kConvolution},
    {"attention", KernelClass::kAttention}, {"norm", KernelClass::kNorm},
    {"softmax", KernelClass::kSoftmax},     {"map", KernelClass::kElementwise},
    {"rotary", KernelClass::kElementwise},  {"reduce", KernelClass::kReduction},
    {"concat", KernelClass::kCopy},         {"gather", KernelClass::kCopy},
    {"write", KernelClass::kCopy},          {"topk", KernelClass::kReduction},
};

double stored_bytes_of(const Operand& o) {
  if (!o.present) return 0;
  int64_t count = 1;
  for (size_t i = 0; i < o.shape.size(); ++i) {
    const bool repeats = o.layout.codes == Layout::kRows && i < o.strides.size() && o.strides[i] == 0;
    if (!repeats || o.shape[i] == 0) count *= o.shape[i];
  }
  const int64_t rows = rows_of(o.shape), cols = cols_of(o.shape);
  double bytes =
      static_cast<double>(is_order(o.layout.codes) ? packed_bytes(o.type.element, count)
                                                   : stored_bytes(o.layout.codes, o.type.element, rows, cols));
  for (const ScaleLevel* level : {&o.type.scale, &o.type.scale2}) {
    if (level->granularity != Granularity::kNone)
      bytes += static_cast<double>(packed_bytes(level->element, scale_count(*level, rows, cols)));
  }
  return bytes;
}

// What was asked of the products: the input's type, or the carrier where the input is plain.
std::string asked_word(const Problem& p, const std::string& words) {
  if (p.operand(0) == nullptr) return "";
  const Asked asked = read_asked(words);
  const std::string own = precision_word(info(p.in[0].type.element).name);
  if (asked.precision.empty()) return p.op == "attention" ? own : "";  // attention keeps the carrier's unless told
  const Precision* precision = asked.imported() ? nullptr : find_precision(asked.precision);
  if (precision == nullptr) return own;
  if (p.op == "attention") return precision->attention ? precision_word(info(precision->attention->element).name) : own;
  return precision->activation.scaled() ? precision_word(info(precision->activation.element).name) : own;
}

}  // namespace

std::string precision_word(std::string_view computed) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"e4m3", "fp8"}, {"e5m2", "fp8"}, {"e2m1", "fp4"}, {"f64", "fp64"},
      {"f32", "fp32"}, {"f16", "fp16"}, {"i8", "int8"},
  };
  for (const auto& [name, word] : kWords) {
    if (name == computed) return std::string(word);
  }
  return std::string(computed);
}

KernelClass class_of(const Problem& problem) {
  if (problem.op == "copy") {
    const Operand &x = problem.in[0], &y = problem.out[0];
    return x.type == y.type && x.dense() ? KernelClass::kCopy : KernelClass::kConversion;
  }
  for (const auto& [op, kernel_class] : kClasses) {
    if (op == problem.op) return kernel_class;
  }
  return KernelClass::kOther;
}

double moved_bytes(const Problem& p) {
  double bytes = 0;
  const bool some_rows = p.op == "gather" || p.op == "write";
  for (size_t i = some_rows ? 1 : 0; i < p.in.size(); ++i) bytes += stored_bytes_of(p.in[i]);
  if (p.op == "write") return bytes + stored_bytes_of(p.in[1]);
  for (const Operand& o : p.out) bytes += stored_bytes_of(o);
  if (p.op == "gather") bytes += stored_bytes_of(p.out[0]);
  for (const KeptColumns& kept : kept_columns(p.attrs)) {  // some rows of it, which are written
    const Operand& all = p.in[static_cast<size_t>(kept.before)];
    const KeptRows rows = kept_rows(p, kept);
    bytes -= 2 * stored_bytes_of(all) * (1 - 0.5 * rows.tokens / rows.rows);
  }
  return bytes;
}

KernelTime facts_of(const Plan& plan, const PlanStep& step) {
  const OpInfo& op = *find_op(step.op);
  const Problem problem = problem_of(plan, step);
  KernelTime k;
  k.name = kernel_name(step.variant, step.config);
  k.layer = step.layer;
  k.kernel_class = class_of(problem);
  k.arithmetic = step.arithmetic;
  if (op.promises >= 0) {
    const Variant* variant = find_variant(step.variant);
    const std::string computed = step.computed.empty() && variant != nullptr
                                     ? arithmetic_name(variant->arithmetic(problem).computed)
                                     : step.computed;
    k.precision = precision_word(computed);
    k.asked = asked_word(problem, step.asked);
    // The order that sparse instructions read; other kernels put the zeros back and multiply all.
    if (problem.in.size() > 1 && problem.in[1].layout.codes == Layout::kSparse24Tiles) k.sparsity = "2:4";
  } else if (problem.operand(0) != nullptr) {
    k.precision = precision_word(info(problem.in[0].type.element).name);
  }
  k.flops = op.flops(problem);
  k.bytes = moved_bytes(problem);
  return k;
}

}  // namespace tessera
