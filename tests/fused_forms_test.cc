// SPDX-License-Identifier: Apache-2.0
// Plans of one engine that fuse differently: each as if it were built alone, weights stored once, each held against the
// golden plan of its own form.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "assemble/build_engine.h"
#include "assemble/golden_forms.h"
#include "calibrate/calibrate.h"
#include "lower/fold_norms.h"
#include "plan/engine_file.h"
#include "plan/golden_plans.h"
#include "rewrite/canonicalise.h"
#include "testing/faulty_build.h"
#include "verify/validate/validate_plan.h"
#include "verify/verify.h"

namespace tessera {
namespace {

using testing::tiny_vit;

Built built(const std::string& precision, std::vector<int64_t> batches, std::optional<double> min_cosine = {}) {
  BuildOptions options;
  options.model_path = tiny_vit();
  options.precision = precision;
  options.batches = std::move(batches);
  options.target = Arch::sm90;
  options.min_cosine = min_cosine;
  options.quiet = true;
  auto made = build_engine(options);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(made).value() : Built{};
}

const Plan& plan(const Engine& engine, const std::string& name) {
  const auto it = std::find_if(engine.plans.begin(), engine.plans.end(), [&](const Plan& p) { return p.name == name; });
  EXPECT_NE(it, engine.plans.end()) << name;
  return *it;
}

bool folds(const Plan& p) {
  return std::any_of(p.steps.begin(), p.steps.end(),
                     [](const PlanStep& s) { return s.then.find(StepKind::normalise) != nullptr; });
}

int64_t weight_bytes(const Engine& engine) {
  constexpr size_t kVector = 4096;  // biases and scales of this model are smaller, its weights are not
  int64_t bytes = 0;
  for (const EngineConstant& c : engine.constants)
    bytes += c.data.size() >= kVector ? static_cast<int64_t>(c.data.size()) : 0;
  return bytes;
}

// The constant that each layer's weight is, with its layout.
std::map<std::string, std::pair<int64_t, Layout>> weights_of(const Plan& p) {
  std::map<std::string, std::pair<int64_t, Layout>> all;
  for (const PlanStep& s : p.steps) {
    if (s.op != "matmul") continue;
    const PlanTensor& w = p.tensors[static_cast<size_t>(s.in[1])];
    all[s.layer] = {w.index, w.desc.layout.codes};
  }
  return all;
}

TEST(FusedForms, EachPlanIsAsIfBuiltAlone) {
  for (const std::string precision : {"fp8", "fp16"}) {
    const Built both = built(precision, {1, 8, 64}), one = built(precision, {1}), many = built(precision, {64});
    const Engine& e = both.engine;
    ASSERT_EQ(e.plans.size(), 5u) << precision;
    EXPECT_EQ(plan(e, "batch1").steps.size(), plan(one.engine, "batch1").steps.size()) << precision;
    EXPECT_EQ(plan(e, "batch64").steps.size(), plan(many.engine, "batch64").steps.size()) << precision;
    EXPECT_TRUE(same_form(plan(e, "batch1"), plan(one.engine, "batch1"))) << precision;
    EXPECT_TRUE(folds(plan(e, "batch1")) && folds(plan(e, "batch8"))) << "136 rows are few";
    EXPECT_FALSE(folds(plan(e, "batch64"))) << "1088 rows are not";
    EXPECT_LT(plan(e, "batch1").steps.size(), plan(e, "batch64").steps.size());
    EXPECT_EQ(golden_plan(e, plan(e, "batch1")), &plan(e, "golden"));
    EXPECT_EQ(golden_plan(e, plan(e, "batch8")), &plan(e, "golden"));
    EXPECT_EQ(golden_plan(e, plan(e, "batch64")), &plan(e, "golden.batch64"));
    ASSERT_EQ(e.golden.forms.size(), 2u);
    ASSERT_EQ(both.reports.size(), 2u);
    EXPECT_EQ(both.reports[0].plans, "batch1, batch8");
    for (const ModelReport& r : both.reports) EXPECT_GT(r.outputs[0].closeness.cosine_mean, 0.99) << r.plans;
    // One form writes what it always did.
    EXPECT_EQ(one.engine.plans.back().name, "golden");
    EXPECT_EQ(manifest_json(one.engine).find("\"forms\""), std::string::npos);
    EXPECT_TRUE(one.engine.plans[0].golden.empty());
  }
}

TEST(FusedForms, WeightsAreStoredOnce) {
  const Engine both = built("fp8", {1, 64}).engine, one = built("fp8", {1}).engine, many = built("fp8", {64}).engine;
  const auto few = weights_of(plan(both, "batch1")), all = weights_of(plan(both, "batch64"));
  ASSERT_EQ(few.size(), all.size());
  size_t shared = 0;
  for (const auto& [layer, weight] : few) {
    if (weight.second != all.at(layer).second) continue;
    EXPECT_EQ(weight.first, all.at(layer).first) << layer;
    ++shared;
  }
  EXPECT_GT(shared, 0u);
  if (shared == few.size()) {
    EXPECT_EQ(weight_bytes(both), weight_bytes(one));
  }
  EXPECT_LE(weight_bytes(both), weight_bytes(one) + weight_bytes(many));
  // Where none is folded the weights are the model's own.
  for (const PlanStep& s : many.plans[0].steps) {
    if (s.op == "norm") {
      EXPECT_GE(s.in.size(), 3u) << s.layer;
    }
  }
}

// What folding costs decides before a plan is made: the form that misses the gate keeps its norms, and with them all
// weights are the model's own.
TEST(FusedForms, AFormThatMissesTheGateKeepsItsNorms) {
  const Built free = built("fp8", {1, 64});
  const Built kept = [] {
    BuildOptions options;
    options.model_path = tiny_vit(), options.precision = "fp8", options.batches = {1, 64};
    options.target = Arch::sm90, options.keep_norms = options.quiet = true;
    return std::move(build_engine(options)).value();
  }();
  const auto cosine = [](const Built& b) { return b.reports[0].outputs[0].closeness.cosine_mean; };
  ASSERT_LT(cosine(free), cosine(kept));
  const Built gated = built("fp8", {1, 64}, (cosine(free) + cosine(kept)) / 2);
  EXPECT_FALSE(folds(gated.engine.plans[0]));
  EXPECT_EQ(manifest_json(gated.engine).size(), manifest_json(kept.engine).size());
  EXPECT_EQ(gated.engine.constants.size(), kept.engine.constants.size()) << "nothing of the other form is left";
}

// Two forms that run here: norms as the model has them, and plain ones over weights with their gain.
class TwoForms : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto load = [this](int64_t batch) -> Result<GoldenModel> {
      GoldenModel m;
      TS_ASSIGN(m.written, import_model(tiny_vit(), batch));
      m.canonical = m.written;
      TS_TRY(canonicalise(m.canonical));
      m.prepared = m.canonical;
      return m;
    };
    const auto model = load(2);
    ASSERT_TRUE(model.ok()) << model.status().message();
    auto measured = calibrate(model->canonical, {});
    ASSERT_TRUE(measured.ok());
    ranges_ = std::move(measured).value();
    std::vector<PlanToMirror> plans;
    ConstantPool pool(engine_.constants);
    engine_.precision = "fp8", engine_.target = Arch::cpu;
    for (const int64_t batch : {1, 2}) {
      PlanToMirror p{.batch = batch};
      p.lowering.types.precision = "fp8", p.lowering.types.ranges = &ranges_;
      p.lowering.plan.target = Arch::cpu;
      if (batch == 1) {
        for (const Node& n : model->canonical.nodes) {
          const std::vector<std::string> between = norms_between_layers(model->canonical);
          if (n.op == "norm" && std::count(between.begin(), between.end(), model->canonical.at(n.outputs[0]).name) > 0)
            p.lowering.types.plain_norms.insert(n.name);
        }
        ASSERT_FALSE(p.lowering.types.plain_norms.empty());
      }
      plans.push_back(p);
      LowerOptions lowering = p.lowering;
      lowering.plan.batch = batch, lowering.plan.name = cat("batch", batch);
      const auto graph = load(batch);
      auto made = lower(graph->prepared, lowering, pool);
      ASSERT_TRUE(made.ok()) << made.status().message();
      engine_.plans.push_back(std::move(made).value());
      const Status same = check_plan(engine_.constants, engine_.plans.back(), graph->prepared, {.ranges = &ranges_});
      ASSERT_TRUE(same.ok()) << same.message();
    }
    GoldenForms forms(
        load, [](int64_t largest) { return std::min<int64_t>(largest, 2); },
        [] { return GoldenOptions{.random_scales = true}; });
    const Status added = forms.add_plans(engine_, pool, plans);
    ASSERT_TRUE(added.ok()) << added.message();
    std::vector<ModelReport> reports;
    auto golden = forms.make_values(engine_, plans, &ranges_, reports);
    ASSERT_TRUE(golden.ok()) << golden.status().message();
    engine_.golden = std::move(golden).value();
    ASSERT_EQ(reports.size(), 2u);
  }
  bool reproduces(const Engine& engine, size_t at) {
    const auto report = check_golden(engine, engine.plans[at]);
    EXPECT_TRUE(report.ok()) << report.status().message();
    return report.ok() && report->ok;
  }

  Ranges ranges_;
  Engine engine_;
};

TEST_F(TwoForms, EachReproducesItsOwnGoldenValues) {
  ASSERT_TRUE(check_engine(engine_).ok()) << check_engine(engine_).message();
  ASSERT_EQ(golden_plans(engine_).size(), 2u);
  EXPECT_EQ(engine_.plans[1].golden, "golden.batch2");
  EXPECT_EQ(engine_.golden.inputs[0].shape[0], 2) << "stored once, for the larger of the two";
  EXPECT_EQ(engine_.golden.forms[0].samples(), 1);
  EXPECT_EQ(engine_.golden.forms[1].samples(), 2);
  for (const size_t at : {0, 1}) EXPECT_TRUE(reproduces(engine_, at)) << at;
  const auto reports = verify_plans(engine_, {});
  ASSERT_TRUE(reports.ok()) << reports.status().message();
  for (const VerifyReport& r : *reports) EXPECT_TRUE(r.ok) << r.plan << ": " << r.sentence;
  for (const Plan* golden : golden_plans(engine_)) {
    const auto stored = measure_quantization(engine_, nullptr, {}, golden);
    ASSERT_TRUE(stored.ok()) << stored.status().message();
    ASSERT_EQ(stored->outputs.size(), 1u);
    EXPECT_GT(stored->outputs[0].closeness.cosine_mean, 0.99) << stored->what;
    EXPECT_TRUE(stored->faults.empty()) << stored->faults[0];
  }
}

TEST_F(TwoForms, TravelInOneFile) {
  const std::string path = ::testing::TempDir() + "/two_forms.tess";
  ASSERT_TRUE(write_engine(engine_, path).ok());
  const auto read = read_engine(path);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(manifest_json(*read), manifest_json(engine_));
  for (const size_t at : {0, 1}) EXPECT_TRUE(reproduces(*read, at)) << at;
}

TEST_F(TwoForms, TheGoldenPlanOfTheOtherIsRefused) {
  const auto refusal = [&](const std::function<void(Engine&)>& change) {
    Engine e = engine_;
    change(e);
    const Status s = check_engine(e);
    EXPECT_FALSE(s.ok());
    return s.message();
  };
  EXPECT_NE(refusal([](Engine& e) { e.plans[0].golden = "golden.batch2"; }).find("which has other steps"),
            std::string::npos);
  EXPECT_NE(refusal([](Engine& e) { e.plans[0].golden = "golden.none"; }).find("has no golden values"),
            std::string::npos);
  EXPECT_NE(refusal([](Engine& e) { e.golden.forms.pop_back(); }).find("plan 'batch2' has no golden values"),
            std::string::npos);
  EXPECT_NE(refusal([](Engine& e) { e.plans[3].golden = "golden"; }).find("it is a golden plan, and names another"),
            std::string::npos);
  EXPECT_NE(refusal([](Engine& e) { std::swap(e.plans[1], e.plans[2]); }).find("is not the last one"),
            std::string::npos);
  EXPECT_NE(refusal([](Engine& e) { e.golden.inputs[0].shape[0] = 1; }), "");
}

TEST_F(TwoForms, TheGoldenValuesOfTheOtherAreNotReproduced) {
  Engine e = engine_;
  // Outputs and values of the first sample, of the other form.
  GoldenForm& form = e.golden.forms[0];
  const GoldenForm& other = e.golden.forms[1];
  for (size_t i = 0; i < form.outputs.size(); ++i)
    form.outputs[i].data = other.outputs[i].data.slice(0, form.outputs[i].data.size());
  for (GoldenValue& v : form.values) {
    for (const GoldenValue& o : other.values) {
      if (o.tensor.name == v.tensor.name && o.tensor.type == v.tensor.type)
        v.tensor.data = o.tensor.data.slice(0, v.tensor.data.size());
    }
  }
  ASSERT_TRUE(check_engine(e).ok()) << check_engine(e).message();
  EXPECT_FALSE(reproduces(e, 0));
}

}  // namespace
}  // namespace tessera
