// SPDX-License-Identifier: Apache-2.0
#include "plan/join_engines.h"

#include <algorithm>

#include "plan/golden_plans.h"

namespace tessera {
namespace {

// What the record says of all graphs: every sentence once.
void add_sentences(std::vector<std::string>& to, const std::vector<std::string>& from) {
  for (const std::string& s : from) {
    if (std::find(to.begin(), to.end(), s) == to.end()) to.push_back(s);
  }
}

// "golden" of graph decode is "golden.decode", "golden.decode.batch1" is "golden.decode.batch1" already.
std::string golden_name(const std::string& name, const std::string& graph) {
  const std::string own = cat(kGoldenPlan, ".", graph);
  return name.starts_with(own) ? name : cat(own, name.substr(std::string(kGoldenPlan).size()));
}

void rename_golden(Engine& e, const std::string& graph) {
  const bool any = golden_plan(e) != nullptr;
  for (Plan& p : e.plans) {
    if (is_golden(p)) {
      p.name = golden_name(p.name, graph);
    } else if (any) {
      p.golden = golden_name(p.golden.empty() ? kGoldenPlan : p.golden, graph);
    }
  }
  for (GoldenForm& form : e.golden.forms) {
    form.plan = golden_name(form.plan, graph);
    if (form.inputs.empty()) form.inputs = e.golden.inputs, form.original = e.golden.original;
  }
}

}  // namespace

Plan adopted(Plan plan, const std::vector<EngineConstant>& constants, ConstantPool& pool) {
  std::vector<int64_t> places;
  for (const EngineConstant& c : constants) places.push_back(pool.add(c.name, c.data));
  for (PlanTensor& t : plan.tensors) {
    if (t.storage == Storage::kConstant) t.index = places[static_cast<size_t>(t.index)];
  }
  return plan;
}

Result<Engine> join_engines(std::vector<Engine> engines) {
  Engine out = engines[0];
  out.constants.clear(), out.states.clear(), out.plans.clear(), out.golden.forms.clear();
  ConstantPool pool(out.constants, &out.states);
  std::vector<Plan> golden;
  for (size_t i = 0; i < engines.size(); ++i) {
    Engine& e = engines[i];
    if (i > 0) rename_golden(e, e.plans[0].graph);
    std::vector<int64_t> constants, states;
    for (EngineConstant& c : e.constants) constants.push_back(pool.add(c.name, std::move(c.data)));
    for (const EngineState& s : e.states) {
      const auto known = std::find_if(out.states.begin(), out.states.end(),
                                      [&](const EngineState& other) { return other.name == s.name; });
      if (known != out.states.end() && known->bytes != s.bytes)
        return bad_input(cat("state '", s.name, "' has ", s.bytes, " bytes in graph '", e.plans[0].graph, "' and ",
                             known->bytes, " in another: graphs share a state of one size"));
      states.push_back(pool.state(s.name, s.bytes));
    }
    for (Plan& p : e.plans) {
      for (PlanTensor& t : p.tensors) {
        if (t.storage == Storage::kConstant) t.index = constants[static_cast<size_t>(t.index)];
        if (t.storage == Storage::kState) t.index = states[static_cast<size_t>(t.index)];
      }
      (is_golden(p) ? golden : out.plans).push_back(std::move(p));
    }
    for (GoldenForm& form : e.golden.forms) out.golden.forms.push_back(std::move(form));
    add_sentences(out.allowed, e.allowed);
    add_sentences(out.refinements, e.refinements);
    add_sentences(out.refined_weights, e.refined_weights);
    add_sentences(out.divided_layers, e.divided_layers);
  }
  for (Plan& p : golden) out.plans.push_back(std::move(p));
  return out;
}

}  // namespace tessera
