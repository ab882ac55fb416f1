// SPDX-License-Identifier: Apache-2.0
// Golden plans and golden values of a build. Plans that have the same steps share a golden plan, at a batch of its own;
// each fused form is judged once (verify/golden.h), if need be before any plan of it is made. Inputs, and what the
// model as written makes of them, are the same for all forms.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "assemble/plan_case.h"
#include "base/status.h"
#include "compile/compile.h"
#include "verify/golden.h"

namespace tessera {

// The model with a golden plan's batch: as written, canonical, and as plans are made of it.
struct GoldenModel {
  Graph written, canonical, prepared;
  bool refined = false;  // prepared is another than canonical
  ModelGraphs graphs(const Ranges* ranges) const {
    return {
        .written = &written, .canonical = &canonical, .prepared = refined ? &prepared : &canonical, .ranges = ranges};
  }
};

// The plan of one case: how it is lowered, and what was measured of such plans already.
struct PlanToMirror {
  PlanCase of = {};
  LowerOptions lowering;
  ModelReport report = {};
};

class GoldenForms {
 public:
  // `samples`: how many a golden plan takes where the largest batch of its plans is `largest`.
  GoldenForms(std::function<Result<GoldenModel>(const PlanCase& of)> load,
              std::function<int64_t(int64_t largest)> samples, std::function<GoldenOptions()> options)
      : load_(std::move(load)), samples_(std::move(samples)), options_(std::move(options)) {}

  // Asks the build's questions of plans of one bucket that are all lowered alike, in the order of their batches.
  // kVerifyFailed where an answer is no.
  Status judge(const std::vector<PlanToMirror>& plans, const Ranges* ranges);
  // Forgets what was judged: weights are others now.
  void forget() { judged_.clear(); }

  // Adds a golden plan for each form of the engine's plans, which are of `plans`, in that order.
  Status add_plans(Engine& engine, ConstantPool& pool, const std::vector<PlanToMirror>& plans);
  // The golden values of these golden plans, those judged that are not yet; a report for each.
  Result<Golden> make_values(const Engine& engine, const std::vector<const Plan*>& goldens,
                             const std::vector<PlanToMirror>& plans, const Ranges* ranges,
                             std::vector<ModelReport>& reports);
  // The model that a golden plan of the engine was made of.
  Result<const GoldenModel*> model_of(const Plan& golden) { return model(case_of_.at(golden.name)); }

 private:
  struct Judged {
    Plan plan;
    ModelReport report;
    Outputs64 written;
  };
  // A golden plan over constants of its own.
  struct Alone {
    Engine engine;
    const Plan& plan() const { return engine.plans[0]; }
  };

  Result<const GoldenModel*> model(const PlanCase& of);
  std::vector<PlanCase> cases_to_try(const std::vector<PlanToMirror>& plans) const;
  Result<Alone> lower_alone(const LowerOptions& lowering, const PlanCase& of);
  Result<Judged> judged(const Engine& engine, const Plan& golden, const PlanCase& of, const ModelReport& begun,
                        const Ranges* ranges);
  // Of the golden plan's bucket.
  Status ask_inputs(const Plan& golden, int64_t count);
  // The engine's plans of one form, as places in its list.
  static std::vector<std::vector<size_t>> groups_of(const Engine& engine, size_t plans);

  const std::function<Result<GoldenModel>(const PlanCase&)> load_;
  const std::function<int64_t(int64_t)> samples_;
  const std::function<GoldenOptions()> options_;  // known when the first plan is judged
  std::map<PlanCase, GoldenModel> models_;        // by what was asked for
  std::map<std::string, PlanCase> case_of_;       // asked for, by golden plan
  std::map<std::string, size_t> first_plan_;      // of its form, by golden plan
  std::vector<Judged> judged_;
  std::map<std::map<std::string, int64_t>, GoldenInputs> inputs_;  // by bucket
};

}  // namespace tessera
