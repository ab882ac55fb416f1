// SPDX-License-Identifier: Apache-2.0
#include "plan/choose.h"

namespace tessera {

bool keeps_promise(Arch arch, const QuantType& stored, const std::string& computed) {
  if (info(arch).device == DeviceKind::kHost) return true;
  if (info(stored.element).kind == ElementKind::kInteger && !stored.scaled()) return true;
  const std::string name = info(stored.element).name;
  if (name == "i8") return computed == "int8";
  if (name == "f32") return computed == "fp32";
  if (name == "f16") return computed == "fp16";
  return computed == name;
}

Choice choose(const OpInfo& op, const Problem& problem, Arch target) {
  Choice choice;
  const auto take = [&](const Variant& v) {
    choice.variant = &v;
    choice.config = configs_of(v, problem)[0];
    choice.arithmetic = v.arithmetic(problem);
    Problem configured = problem;
    configured.config = choice.config;
    if (v.layouts != nullptr) choice.layouts = v.layouts(configured);
    choice.layouts.resize(problem.in.size(), Layout::kRows);
  };
  if (target == Arch::ref) {
    take(*reference_variant(op));
    return choice;
  }
  const Variant* slow = nullptr;  // accepted, but not worthwhile: taken where nobody else accepts
  for (const Variant* v : op.variants) {
    if (!runs(target, v->arch)) continue;
    if (Verdict verdict = v->accepts(problem); !verdict) {
      choice.refusals.push_back({v->name, verdict.refusal});
      continue;
    }
    if (op.promises >= 0) {
      const QuantType& stored = problem.in[static_cast<size_t>(op.promises)].type;
      const Arithmetic a = v->arithmetic(problem);
      if (!keeps_promise(target, stored, a.computed)) {
        choice.refusals.push_back({v->name, cat("multiplies in ", a.computed, ", asked for ", info(stored.element).name)});
        continue;
      }
    }
    if (v->worthwhile != nullptr) {
      if (const Verdict verdict = v->worthwhile(problem); !verdict) {
        choice.refusals.push_back({v->name, verdict.refusal});
        if (slow == nullptr) slow = v;
        continue;
      }
    }
    take(*v);
    return choice;
  }
  if (slow != nullptr) take(*slow);
  return choice;
}

}  // namespace tessera
