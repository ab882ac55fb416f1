// SPDX-License-Identifier: Apache-2.0
#include "plan/choose.h"

namespace tessera {

bool keeps_promise(Arch arch, Element stored, const std::string& computed) {
  if (info(arch).device == DeviceKind::kHost) return true;
  if (info(stored).kind == ElementKind::kInteger) return true;
  const std::string name = info(stored).name;
  if (name == "f32") return computed == "fp32";
  if (name == "f16") return computed == "fp16";
  return computed == name;
}

Choice choose(const OpInfo& op, const Problem& problem, Arch target) {
  Choice choice;
  const auto take = [&](const Variant& v) {
    choice.variant = &v;
    choice.arithmetic = v.arithmetic(problem);
    if (v.layouts != nullptr) choice.layouts = v.layouts(problem);
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
      const Element stored = problem.in[static_cast<size_t>(op.promises)].type.element;
      const Arithmetic a = v->arithmetic(problem);
      if (!keeps_promise(target, stored, a.computed)) {
        choice.refusals.push_back({v->name, cat("multiplies in ", a.computed, ", asked for ", info(stored).name)});
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
