// SPDX-License-Identifier: Apache-2.0
#include "plan/choose.h"

#include <algorithm>
#include <optional>

#include "ops/ops.h"
#include "ops/runnable.h"

namespace tessera {

namespace {

class Chooser {
 public:
  Chooser(const OpInfo& op, const Problem& problem, Arch target) : op_(op), problem_(problem), target_(target) {}

  Choice by_order() {
    const Variant* slow = nullptr;  // accepted, but not worthwhile: taken where all others refuse
    std::string why;
    for (const Variant* v : op_.variants) {
      if (!runs(target_, v->arch) || v->only_in_chains) continue;
      if (Verdict verdict = runnable(op_, *v, problem_, target_); !verdict) {
        refuse(v->name, verdict.refusal);
        continue;
      }
      if (v->worthwhile != nullptr) {
        if (const Verdict verdict = v->worthwhile(problem_); !verdict) {
          refuse(v->name, verdict.refusal);
          if (slow == nullptr) slow = v, why = verdict.refusal;
          continue;
        }
      }
      return take({v, configs_of(*v, problem_)[0]});
    }
    if (slow == nullptr) return std::move(choice_);
    std::erase_if(choice_.refusals,
                  [&](const Refusal& r) { return r.variant == slow->name; });  // its own word, no refusal any more
    choice_.slow = why;
    return take({slow, configs_of(*slow, problem_)[0]});
  }

  // The fastest of `times`, which is sorted, that may run; candidates that were not measured lose to it.
  // Nothing where none of them may run any more.
  std::optional<Choice> by_times(const std::vector<TunedTime>& times) {
    const std::vector<Candidate> all = candidates(op_, problem_, target_);
    const auto best =
        std::find_if(times.begin(), times.end(), [&](const TunedTime& t) { return find_candidate(all, t) != nullptr; });
    if (best == times.end()) return std::nullopt;
    const Candidate taken = *find_candidate(all, *best);
    for (const Variant* v : op_.variants) {
      if (!runs(target_, v->arch) || v->only_in_chains) continue;
      if (Verdict verdict = runnable(op_, *v, problem_, target_); !verdict) {
        refuse(v->name, verdict.refusal);
        continue;
      }
      for (const Candidate& c : all) {
        if (c.variant != v || (c.variant == taken.variant && c.config == taken.config)) continue;
        const bool known = std::any_of(times.begin(), times.end(), [&](const TunedTime& t) { return is_of(t, c); });
        refuse(kernel_name(v->name, c.config), known ? kSlowerAsMeasured : kNotMeasured);
      }
    }
    choice_.measured = true;
    return take(taken);
  }

  Choice take(const Candidate& c) {
    choice_.variant = c.variant;
    choice_.config = c.config;
    choice_.arithmetic = c.variant->arithmetic(problem_);
    Problem configured = problem_;
    configured.config = c.config;
    choice_.layouts = layouts_of(*c.variant, configured);
    return std::move(choice_);
  }

 private:
  void refuse(const std::string& name, const std::string& reason) { choice_.refusals.push_back({name, reason}); }

  const OpInfo& op_;
  const Problem& problem_;
  const Arch target_;
  Choice choice_;
};

}  // namespace

std::string why_not(const OpInfo& op, const Variant& variant, const Problem& problem, Arch target) {
  Verdict v = runnable(op, variant, problem, target);
  if (v && variant.worthwhile != nullptr) v = variant.worthwhile(problem);
  return v.refusal;
}

std::string kernel_name(std::string_view variant, std::string_view config) {
  return config.empty() ? std::string(variant) : cat(variant, " ", config);
}

bool is_of(const TunedTime& time, const Candidate& c) {
  return time.variant == c.variant->name && time.config == c.config;
}

const Candidate* find_candidate(const std::vector<Candidate>& all, const TunedTime& time) {
  const auto c = std::find_if(all.begin(), all.end(), [&](const Candidate& a) { return is_of(time, a); });
  return c == all.end() ? nullptr : &*c;
}

std::vector<Candidate> candidates(const OpInfo& op, const Problem& problem, Arch target) {
  std::vector<Candidate> all;
  for (const Variant* v : op.variants) {
    if (v->only_in_chains || !runnable(op, *v, problem, target)) continue;
    for (std::string& config : configs_of(*v, problem)) all.push_back({v, std::move(config)});
  }
  return all;
}

Choice choose(const OpInfo& op, const Problem& problem, Arch target, const TuningTable* table) {
  if (target == Arch::ref) return Chooser(op, problem, target).take({reference_variant(op), ""});
  if (table != nullptr && table->arch == target) {
    if (const std::vector<TunedTime>* times = table->find(problem_key(problem, target))) {
      if (auto choice = Chooser(op, problem, target).by_times(*times)) return *std::move(choice);
    }
  }
  return Chooser(op, problem, target).by_order();
}

}  // namespace tessera
