// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_summary.h"

#include <algorithm>
#include <set>

#include "archs/cpu/simd.h"
#include "cli/output.h"
#include "hwy/targets.h"
#include "inputs/pixel_bytes.h"
#include "op/op.h"
#include "ops/ops.h"
#include "runtime/fit_lengths.h"
#include "tiles/cpu/product.h"
#include "types/precisions/precision.h"

namespace tessera {

std::vector<PromiseGroup> promise_groups(const Plan& plan) {
  std::vector<PromiseGroup> groups;
  for (const PlanStep& s : plan.steps) {
    if (s.asked.empty()) continue;
    PromiseGroup* group = nullptr;
    for (PromiseGroup& g : groups) {
      if (g.asked == s.asked && g.stored == s.stored && g.computed == s.computed) group = &g;
    }
    if (group == nullptr) group = &groups.emplace_back(PromiseGroup{s.asked, s.stored, s.computed, "", 0});
    for (const std::string& layer : layers_of(s)) {
      ++group->layers;
      group->names += cat(group->names.empty() ? "" : ", ", layer,
                          s.role.empty() || s.role.starts_with("block") ? "" : " (" + s.role + ")");
    }
  }
  return groups;
}

std::string say_folded_norms(const Plan& plan) {
  std::set<int> moments;  // a norm's readers share those of its rows
  for (const PlanStep& s : plan.steps) {
    if (const Step* step = s.then.find(StepKind::normalise)) moments.insert(s.in[static_cast<size_t>(step->operand)]);
  }
  const int64_t norms = static_cast<int64_t>(moments.size());
  if (norms == 0) return "";
  return cat(plural(norms, "norm"),
             norms == 1 ? " is folded:" : " are folded, each:", " a factor per row in the next matmul");
}

std::vector<std::string> say_lengths(const Engine& engine) {
  std::vector<std::string> sentences;
  for (const auto& [size, why] : engine.lengths.why_exact) {
    const std::vector<int64_t> numbers = numbers_of_size(engine.plans, size);
    if (numbers.empty()) continue;
    const std::string plans = numbers_in_words(engine, size);
    sentences.push_back(why.empty()
                            ? cat(size, ": ", numbers[0], " to ", numbers.back(), ", by plans of ", plans,
                                  "; arrays between them are padded with zeros, results cut (as tried at build, "
                                  "padding changes none)")
                            : cat(size, ": exactly ", plans, ", since ", why));
  }
  return sentences;
}

std::vector<OpCount> count_ops(const Plan& plan) {
  std::vector<OpCount> counts;
  for (const OpInfo* op : all_ops()) {
    counts.push_back({op->name, std::count_if(plan.steps.begin(), plan.steps.end(),
                                              [&](const PlanStep& s) { return s.op == op->name; })});
  }
  return counts;
}

SpeltAttentions spelt_attentions(const Plan& plan) {
  SpeltAttentions found;
  const auto tensor = [&](int t) -> const PlanTensor& { return plan.tensors[static_cast<size_t>(t)]; };
  // Views of a result lie where it does: a step reads it until another one is written there.
  const auto same_place = [&](int a, int b) {
    return tensor(a).storage == tensor(b).storage && tensor(a).index == tensor(b).index &&
           tensor(a).offset_bytes == tensor(b).offset_bytes;
  };
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    if (plan.steps[i].op != "softmax") continue;
    int result = plan.steps[i].out[0];
    for (size_t j = i + 1; j < plan.steps.size(); ++j) {
      const PlanStep& s = plan.steps[j];
      if (!s.in.empty() && s.in[0] >= 0 && same_place(s.in[0], result)) {
        if (s.op == "matmul" && s.in[1] >= 0 && tensor(s.in[1]).storage != Storage::kConstant) {
          if (found.softmaxes++ == 0) found.type = plain_precision(tensor(s.in[0]).desc.type.element).name;
          break;
        }
        if (s.op == "copy") {  // a cast, or another order
          result = s.out[0];
          continue;
        }
      }
      if (std::any_of(s.out.begin(), s.out.end(), [&](int t) { return same_place(t, result); })) break;
    }
  }
  return found;
}

std::string cpu_instruction_sets(const Plan& plan) {
  std::string best, compiled;
  for (int bit = 62; bit >= 0; --bit) {  // better sets have lower bits
    const int64_t target = int64_t{1} << bit;
    if ((HWY_TARGETS & target) == 0) continue;
    if ((hwy::SupportedTargets() & target) != 0) best = hwy::TargetName(target);
    compiled += cat(compiled.empty() ? "" : ", ", hwy::TargetName(target));
  }
  const bool in_bf16 =
      std::any_of(plan.steps.begin(), plan.steps.end(), [](const PlanStep& s) { return s.computed == "bf16"; });
  return cat(best, " (compiled: ", compiled, ")",
             in_bf16 ? cat(", products of bf16 by ", bf16_product().instruction) : "");
}

std::string say_pixels(const Plan& plan, const Port& input) {
  const auto pixels = pixels_of(plan, input);
  if (!pixels) return "";
  return cat("image bytes: (byte / 255 - mean) / std with mean ", channels_text(pixels->mean), " and std ",
             channels_text(pixels->std));
}

}  // namespace tessera
