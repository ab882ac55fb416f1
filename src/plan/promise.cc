// SPDX-License-Identifier: Apache-2.0
#include "plan/promise.h"

#include <algorithm>

#include "ir/layer_ops.h"
#include "ops/matmul/matmul.h"
#include "ops/ops.h"
#include "ops/runnable.h"
#include "plan/choose.h"
#include "types/precisions/allowance.h"

namespace tessera {
namespace {

constexpr std::string_view kReferenceOf = "reference of ";

// A type in the words that users know it by: a format of two levels or blocks by its name, else the element.
std::string stored_name(const QuantType& type) {
  static const std::pair<QuantType, const char*> kFormats[] = {
      {kNvfp4, "nvfp4"}, {kMxfp8, "mxfp8"}, {{Element::e2m1, {Granularity::kBlock, Element::e8m0, 32}}, "mxfp4"}};
  QuantType stored = type;  // how scales were made and what products are rounded to is not stored
  stored.scale.rule = {}, stored.scale2.rule = {};
  stored.dynamic = false, stored.product = {};
  for (const auto& [format, name] : kFormats) {
    if (stored == format) return name;
  }
  return info(type.element).name;
}

bool is_linear(const Problem& p) { return multiplies_weights(p.op) && p.operand(1) != nullptr && p.in[1].constant; }
bool is_sparse(const Problem& p) { return is_linear(p) && is_sparse24(p.in[1].layout.codes); }

// What the precision that was asked for says of the operands; nothing where types are the model's own. Whoever
// multiplies codes was asked to.
Status check_asked(Arch arch, const OpInfo& op, const Problem& p, const std::string& words) {
  const bool scaled =
      std::any_of(p.in.begin(), p.in.end(), [](const Operand& o) { return o.present && o.type.scaled(); });
  if (words.empty())
    return is_linear(p) || (op.promises >= 0 && scaled) ? bad_input("does not say what was asked for") : Status();
  const Asked read = read_asked(words);
  const std::string& asked = read.precision;
  const bool sparse = read.sparse;
  // The reference reads sparse weights in any order, plain rows among them; what it stores says so.
  if (sparse != is_sparse(p) && !(sparse && arch == Arch::ref && is_linear(p) && is_sparse24(p))) {
    return bad_input(
        cat("says that '", words, "' was asked for, and its weight is ", sparse ? "not " : "", "2:4 sparse"));
  }
  if (read.imported())
    return is_linear(p) || scaled ? Status()
                                  : bad_input("says that its types were imported, and it reads plain numbers");
  const Precision* precision = find_precision(asked);
  if (precision == nullptr)
    return bad_input(
        cat("says that '", asked, "' was asked for; precisions are ", precision_list(), " and ", kImported));
  const auto wants = [&](size_t input, const QuantType& type) -> Status {
    if (p.operand(input) != nullptr && p.in[input].type == type) return {};
    return bad_input(cat("says that ", asked, " was asked for, and its operand ", input, " is ",
                         p.operand(input) == nullptr ? "not there" : to_string(p.in[input].type), ", not ",
                         to_string(type)));
  };
  if (is_linear(p)) {
    TS_TRY(wants(1, precision->weight));
    return precision->activation.scaled() ? wants(0, precision->activation) : Status();
  }
  if (p.op == "attention" && precision->attention) {
    for (size_t i = 0; i < 3; ++i) TS_TRY(wants(i, *precision->attention));
    return {};
  }
  return bad_input(cat("says that ", asked, " was asked for, and no precision is asked of this op"));
}

// As it was before anything was chosen.
Problem unchosen(Problem p) {
  for (Operand& o : p.in) o.layout = Layout::kRows;
  p.config.clear();
  return p;
}

Status check_word(const char* what, const std::string& said, const std::string& made) {
  if (said == made) return {};
  return bad_input(cat("says that ", what, " is '", said, "', and it is '", made, "'"));
}

// The variant that a step of the golden plan stands for; null where its words name none that the target runs.
const Variant* stands_for(const Engine& engine, const PlanStep& step) {
  const std::string name = step.arithmetic.substr(kReferenceOf.size());
  const Variant* v = name.starts_with(step.op + "/") ? find_variant(name) : nullptr;
  return v != nullptr && runs(engine.target, v->arch) ? v : nullptr;
}

}  // namespace

std::string stored_words(const OpInfo& op, const Problem& problem) {
  const bool by_operand = is_linear(problem) || problem.op == "attention";
  const QuantType& type = by_operand ? problem.in[static_cast<size_t>(op.promises)].type : problem.out[0].type;
  return cat(stored_name(type), is_sparse(problem) ? kSparseWords : "");
}

std::string arithmetic_words(const Arithmetic& a) {
  return cat(a.instruction, ", ", a.accumulator_bits, "-bit sums",
             a.promote_every > 0 ? cat(", promoted every ", a.promote_every) : "");
}

std::string reference_words(const std::string& variant) { return cat(kReferenceOf, variant); }

Status check_promise(const Engine& engine, const Plan& plan, const PlanStep& step) {
  const OpInfo& op = *find_op(step.op);
  const Variant& variant = *find_variant(step.variant);
  if (!runs(plan.arch, variant.arch))
    return bad_input(
        cat("'", step.variant, "' is for ", info(variant.arch).name, ", and the plan is for ", info(plan.arch).name));
  Problem problem = problem_of(plan, step);
  if (const Verdict v = variant.accepts(problem); !v)
    return bad_input(cat("'", step.variant, "' refuses the problem in the engine file: ", v.refusal));
  TS_ASSIGN(problem.config, checked_config(variant, problem));
  TS_TRY(check_storage(variant, problem, step.workspace_bytes));
  const Arithmetic arithmetic = variant.arithmetic(problem);
  if (!keeps_promise(plan.arch, op, problem, arithmetic.computed)) {
    return bad_input(cat("'", step.variant, "' multiplies in ", arithmetic_name(arithmetic.computed),
                         ", and its operand is ", to_string(problem.in[static_cast<size_t>(op.promises)].type)));
  }
  const bool silent = step.asked.empty() && step.stored.empty() && step.computed.empty() && step.arithmetic.empty();
  if (silent && !engine.precision.empty() && (is_linear(problem) || op.promises >= 0))
    return bad_input("says nothing of what it stores and computes");
  if (silent) return {};
  TS_TRY(check_asked(plan.arch, op, problem, step.asked));
  TS_TRY(check_word("what it stores", step.stored, stored_words(op, problem)));
  TS_TRY(check_word("what it computes in", step.computed, arithmetic_name(arithmetic.computed)));
  const Variant* chosen = &variant;
  if (plan.arch == Arch::ref && step.arithmetic.starts_with(kReferenceOf)) {
    chosen = stands_for(engine, step);
    if (chosen == nullptr) {
      return bad_input(cat("says that its arithmetic is '", step.arithmetic, "', which names no variant of ", step.op,
                           " that runs on ", info(engine.target).name));
    }
    if (const Verdict v = chosen->accepts(problem); !v)
      return bad_input(cat("says that it is the ", step.arithmetic, ", which refuses the problem: ", v.refusal));
  } else {
    TS_TRY(check_word("its arithmetic", step.arithmetic, arithmetic_words(arithmetic)));
  }
  if (step.slow.empty()) return {};
  return check_word("why it is slow", step.slow,
                    chosen->worthwhile == nullptr ? "" : chosen->worthwhile(unchosen(problem)).refusal);
}

Status check_precision(const Engine& engine) {
  const std::string& precision = engine.precision;
  if (!engine.recipe.empty() || precision.empty() || precision == kImported || precision == kAuto) return {};
  if (find_precision(precision) == nullptr)
    return bad_input(cat("says that '", precision, "' was asked for; precisions are ", precision_list(), ", ",
                         kImported, " and ", kAuto));
  for (const Plan& plan : engine.plans) {
    bool asked = false, found = false;
    for (const PlanStep& s : plan.steps) {
      const Asked here = read_asked(s.asked);
      const bool same = here.precision == precision;
      asked = asked || !s.asked.empty();
      found = found || same;
      // A model may ask for fp32 itself, where it calls weights exact.
      const bool more = here.precision == "fp32";
      if (!multiplies_weights(s.op) || s.asked.empty() || same || more || here.imported() ||
          !s.role.starts_with("block"))
        continue;
      const std::vector<std::string> names = layers_of(s);
      const bool allowed = std::any_of(engine.allowed.begin(), engine.allowed.end(), [&](const std::string& a) {
        const Result<Allowance> allowance = parse_allowance(a);
        return allowance.ok() && allowance->precision == here.precision &&
               std::all_of(names.begin(), names.end(),
                           [&](const std::string& name) { return matches(allowance->pattern.c_str(), name.c_str()); });
      });
      if (!allowed) {
        return bad_input(cat("says that ", precision, " was asked for, and layer ", s.layer, " of plan '", plan.name,
                             "' was asked for ", s.asked, ", which no --allow accepts"));
      }
    }
    if (asked && !found)
      return bad_input(cat("says that ", precision, " was asked for, and no layer of plan '", plan.name, "' was"));
  }
  return {};
}

std::string refusal_words(const Engine& engine, const Plan& plan, const PlanStep& step, const Refusal& refusal) {
  if (refusal.reason == kSlowerAsMeasured || refusal.reason == kNotMeasured) return refusal.reason;
  const OpInfo* op = find_op(step.op);
  const Variant* variant = refusal.variant.starts_with(step.op + "/") ? find_variant(refusal.variant) : nullptr;
  if (op == nullptr || variant == nullptr)
    return cat(refusal.reason, " (as the file says: this program has no such variant)");
  const std::string why = why_not(*op, *variant, unchosen(problem_of(plan, step)), engine.target);
  return why.empty() ? cat(refusal.reason, " (as the file says: this program's would run it)") : why;
}

}  // namespace tessera
