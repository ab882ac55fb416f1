// SPDX-License-Identifier: Apache-2.0
#include "plan/form_chains.h"

#include <algorithm>
#include <optional>
#include <set>

#include "ops/ops.h"
#include "ops/runnable.h"
#include "plan/choose.h"
#include "plan/promise.h"

namespace tessera {
namespace {

struct Phase {
  const Variant* variant;
  ChainForm form;
};

// A caller's buffer is known to a launch only.
bool has_ports(const Plan& plan, const PlanStep& step) {
  const auto port = [&](int t) {
    if (t < 0) return false;
    const Storage s = plan.tensors[static_cast<size_t>(t)].storage;
    return s == Storage::kInput || s == Storage::kOutput;
  };
  return std::any_of(step.in.begin(), step.in.end(), port) || std::any_of(step.out.begin(), step.out.end(), port);
}

// The bytes that a tensor lies in, of the arena, a constant or a state.
struct Place {
  Storage storage;
  int64_t index, begin, end;
  bool meets(const Place& other) const {
    return storage == other.storage && index == other.index && begin < other.end && other.begin < end;
  }
};
Place place_of(const PlanTensor& t) {
  int64_t reach = elements(t.desc.shape) > 0 ? 1 : 0;
  for (size_t a = 0; a < t.desc.strides.size() && reach > 0; ++a) reach += (t.desc.shape[a] - 1) * t.desc.strides[a];
  return {t.storage, t.storage == Storage::kArena ? 0 : t.index, t.offset_bytes,
          t.offset_bytes + packed_bytes(t.desc.type.element, reach)};
}

// A result that an op changes in an operand's memory: one with memory of its own needs a copy, which is no phase.
bool results_lie_in_place(const Plan& plan, const PlanStep& step, const OpInfo& op, const Problem& problem) {
  for (size_t r = 0; op.in_place != nullptr && r < step.out.size(); ++r) {
    const int input = op.in_place(problem, r);
    if (input < 0 || step.out[r] < 0) continue;
    const Place x = place_of(plan.tensors[static_cast<size_t>(step.in[static_cast<size_t>(input)])]),
                y = place_of(plan.tensors[static_cast<size_t>(step.out[r])]);
    if (x.storage != y.storage || x.index != y.index || x.begin != y.begin) return false;
  }
  return true;
}

std::optional<Phase> phase_of(const Plan& plan, const PlanStep& step) {
  const OpInfo* op = find_op(step.op);
  const Variant* own = find_variant(step.variant);
  if (op == nullptr || own == nullptr || has_ports(plan, step)) return {};
  const Problem problem = problem_of(plan, step);
  if (!results_lie_in_place(plan, step, *op, problem)) return {};
  for (const Variant* v : op->variants) {
    if (v->chain == nullptr || !runs(plan.arch, v->arch)) continue;
    Problem free = problem;
    free.config.clear();
    if (!runnable(*op, *v, free, plan.arch)) continue;
    ChainForm form = v->chain(free);
    if (!form.refusal.empty()) continue;
    free.config = form.config;
    if (layouts_of(*v, free) != layouts_of(*own, problem)) continue;  // weights are stored already
    return Phase{v, std::move(form)};
  }
  return {};
}

class Chains {
 public:
  explicit Chains(Plan& plan) : plan_(plan) {}

  void form() {
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      std::optional<Phase> phase = phase_of(plan_, plan_.steps[i]);
      if (!phase) {
        end();
        continue;
      }
      if (!joins(plan_.steps[i], *phase)) end();
      add(i, std::move(*phase));
    }
    end();
  }

 private:
  bool joins(const PlanStep& step, const Phase& phase) const {
    if (run_.empty()) return true;
    if (std::none_of(phase.form.kinds.begin(), phase.form.kinds.end(),
                     [&](const auto& k) { return kinds_.contains(k); }))
      return false;
    return std::none_of(phase.form.early.begin(), phase.form.early.end(), [&](int i) {
      if (static_cast<size_t>(i) >= step.in.size() || step.in[static_cast<size_t>(i)] < 0) return false;
      const Place read = place_of(plan_.tensors[static_cast<size_t>(step.in[static_cast<size_t>(i)])]);
      return std::any_of(written_.begin(), written_.end(), [&](const Place& w) { return w.meets(read); });
    });
  }

  void add(size_t step, Phase phase) {
    std::set<std::string> common;
    for (const std::string& k : phase.form.kinds) {
      if (run_.empty() || kinds_.contains(k)) common.insert(k);
    }
    kinds_ = std::move(common);
    for (const int t : plan_.steps[step].out)
      if (t >= 0) written_.push_back(place_of(plan_.tensors[static_cast<size_t>(t)]));
    run_.emplace_back(step, std::move(phase));
  }

  void end() {
    if (run_.size() >= kFewestPhases) {
      for (auto& [step, phase] : run_) take(plan_.steps[step], phase);
      ++count_;
    }
    run_.clear(), kinds_.clear(), written_.clear();
  }

  void take(PlanStep& step, const Phase& phase) const {
    step.chain = count_;
    step.config = phase.form.config;
    if (step.variant == phase.variant->name) return;
    step.variant = phase.variant->name;
    const Problem problem = problem_of(plan_, step);
    const Arithmetic arithmetic = phase.variant->arithmetic(problem);
    step.computed = arithmetic_name(arithmetic.computed);
    step.arithmetic = arithmetic_words(arithmetic);
    std::erase_if(step.refusals, [&](const Refusal& r) { return r.variant == step.variant; });
    step.slow.clear();
  }

  Plan& plan_;
  int count_ = 0;
  std::vector<std::pair<size_t, Phase>> run_;
  std::set<std::string> kinds_;
  std::vector<Place> written_;
};

}  // namespace

void form_chains(Plan& plan) { Chains(plan).form(); }

}  // namespace tessera
