// SPDX-License-Identifier: Apache-2.0
// Plans of one engine that fuse differently: each as if it were built alone, weights stored once, each held against the
// golden plan of its own form.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "assemble/build_engine.h"
#include "assemble/golden_forms.h"
#include "calibrate/calibrate.h"
#include "lower/fold_norms.h"
#include "models/zoo.h"
#include "plan/engine_file.h"
#include "plan/golden_plans.h"
#include "rewrite/canonicalise.h"
#include "sensitivity/sensitivity.h"
#include "testing/faulty_build.h"
#include "verify/validate/validate_plan.h"
#include "verify/verify.h"

namespace tessera {
namespace {

using testing::tiny_vit;

BuildOptions asked(const std::string& precision, std::vector<int64_t> batches) {
  BuildOptions options;
  options.model_path = tiny_vit();
  options.precision = precision;
  options.batches = std::move(batches);
  options.target = Arch::sm90;
  options.quiet = true;
  return options;
}

Built built(const BuildOptions& options) {
  auto made = build_engine(options);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(made).value() : Built{};
}

const Plan& plan(const Engine& engine, const std::string& name) {
  const auto it = std::find_if(engine.plans.begin(), engine.plans.end(), [&](const Plan& p) { return p.name == name; });
  EXPECT_NE(it, engine.plans.end()) << name;
  return *it;
}

int64_t norm_kernels(const Plan& p) {
  return std::count_if(p.steps.begin(), p.steps.end(), [](const PlanStep& s) { return s.op == "norm"; });
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

std::set<std::string> norms_between(const Graph& graph) {
  const std::vector<std::string> values = norms_between_layers(graph);
  std::set<std::string> names;
  for (const Node& n : graph.nodes) {
    if (n.op == "norm" && std::count(values.begin(), values.end(), graph.at(n.outputs[0]).name) > 0)
      names.insert(n.name);
  }
  return names;
}

TEST(FusedForms, EachPlanIsAsIfBuiltAlone) {
  for (const std::string precision : {"fp8", "fp16"}) {
    const std::vector<int64_t> batches = {1, 8, 64};
    const Built all = built(asked(precision, batches));
    const Engine& e = all.engine;
    for (const int64_t batch : batches) {
      const Built alone = built(asked(precision, {batch}));
      const std::string name = cat("batch", batch);
      EXPECT_EQ(plan(e, name).steps.size(), plan(alone.engine, name).steps.size()) << precision << " " << batch;
      // One form writes what it always did.
      ASSERT_EQ(alone.engine.plans.size(), 2u);
      EXPECT_EQ(alone.engine.plans[1].name, "golden");
      EXPECT_TRUE(alone.engine.plans[0].golden.empty());
      EXPECT_EQ(manifest_json(alone.engine).find("\"forms\""), std::string::npos);
    }
    EXPECT_LT(norm_kernels(plan(e, "batch1")), norm_kernels(plan(e, "batch64"))) << "1088 rows are not few";
    ASSERT_GE(e.golden.forms.size(), 2u);
    ASSERT_EQ(all.reports.size(), e.golden.forms.size());
    EXPECT_EQ(golden_plan(e, plan(e, "batch1")), &plan(e, "golden"));
    for (const Plan& p : e.plans) EXPECT_TRUE(same_form(p, *golden_plan(e, p))) << p.name;
    for (const ModelReport& r : all.reports) EXPECT_GT(r.outputs[0].closeness.cosine_mean, 0.99) << r.plans;
  }
}

std::set<int64_t> constants_of(const Engine& engine) {
  std::set<int64_t> read;
  for (const Plan& p : engine.plans) {
    for (const PlanTensor& t : p.tensors) {
      if (t.storage == Storage::kConstant) read.insert(t.index);
    }
  }
  return read;
}

TEST(FusedForms, WeightsAreStoredOnce) {
  const Engine both = built(asked("fp8", {1, 64})).engine, one = built(asked("fp8", {1})).engine,
               many = built(asked("fp8", {64})).engine;
  const auto few = weights_of(plan(both, "batch1")), all = weights_of(plan(both, "batch64"));
  ASSERT_EQ(few.size(), all.size());
  size_t shared = 0;
  for (const auto& [layer, weight] : few) {
    if (weight.second != all.at(layer).second) continue;
    EXPECT_EQ(weight.first, all.at(layer).first) << layer;
    ++shared;
  }
  EXPECT_GE(shared + 1, few.size()) << "layouts agree but for the patch embedding's";
  // No layer is stored in other numbers for the sake of the other plan: as many weights as alone.
  const auto weights = [](const Engine& engine, std::initializer_list<const char*> names) {
    std::set<int64_t> indices;
    for (const char* name : names) {
      for (const auto& [layer, weight] : weights_of(plan(engine, name))) indices.insert(weight.first);
    }
    int64_t bytes = 0;
    for (const int64_t i : indices) bytes += static_cast<int64_t>(engine.constants[static_cast<size_t>(i)].data.size());
    return bytes;
  };
  EXPECT_EQ(weights(both, {"batch1"}), weights(one, {"batch1"}));
  EXPECT_EQ(weights(both, {"batch64"}), weights(many, {"batch64"}));
  int64_t elsewhere = 0;
  for (const auto& [layer, weight] : all) {
    if (weight.first != few.at(layer).first)
      elsewhere += static_cast<int64_t>(both.constants[static_cast<size_t>(weight.first)].data.size());
  }
  EXPECT_EQ(weights(both, {"batch1", "batch64"}), weights(one, {"batch1"}) + elsewhere);
  EXPECT_EQ(constants_of(both).size(), both.constants.size()) << "every constant is read";
}

// What folding costs decides before a plan is made: the form that misses the gate keeps its norms.
TEST(FusedForms, AFormThatMissesTheGateKeepsItsNorms) {
  BuildOptions options = asked("fp8", {1, 64});
  const std::string model = ::testing::TempDir() + "/fused_forms_gate.onnx";
  std::ofstream(model, std::ios::binary) << zoo_onnx("vit-tiny-test", 6).value();
  options.model_path = model;
  options.golden_samples = 1;
  const auto least = [](const Built& b) {
    double cosine = 1;
    for (const ModelReport& r : b.reports) cosine = std::min(cosine, r.outputs[0].closeness.cosine_mean);
    return cosine;
  };
  const Built free = built(options);
  options.keep_norms = true;
  const Built kept = built(options);
  ASSERT_LT(least(free), least(kept));
  options.keep_norms = false;
  options.min_cosine = (least(free) + least(kept)) / 2;
  const Built gated = built(options);
  std::filesystem::remove(model);
  EXPECT_GT(norm_kernels(gated.engine.plans[0]), norm_kernels(free.engine.plans[0]));
  EXPECT_GE(least(gated), *options.min_cosine);
  EXPECT_EQ(constants_of(gated.engine).size(), gated.engine.constants.size()) << "nothing of the other form is left";
}

// What a plain norm costs, on a trained model and its own samples: the normalised stream is rounded before its gain,
// and weights with their gain, which changes where roundings fall and not how many there are.
TEST(FusedForms, APlainNormCostsLittle) {
  const std::string digits = std::string(TS_SOURCE_DIR) + "/assets/digits";
  const auto graph = load_model(digits + "/vit.onnx", 16, {.exact = false});
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  const CalibrateOptions calib{.path = digits + "/calib.npz"};
  const auto ranges = calibrate(*graph, calib);
  auto data = samples_of(*graph, calib);
  ASSERT_TRUE(ranges.ok() && data.ok());
  const auto trials = Trials::make(*graph, std::move(data->samples));
  ASSERT_TRUE(trials.ok()) << trials.status().message();
  QuantizeOptions types;
  types.precision = "fp8", types.ranges = &*ranges;
  const auto as_written = trials->measure(types);
  types.plain_norms = norms_between(*graph);
  ASSERT_GE(types.plain_norms.size(), 5u);
  const auto plain = trials->measure(types);
  ASSERT_TRUE(as_written.ok() && plain.ok());
  std::printf("mean cosine with fp32 over %lld samples: %.5f with the norms' gains, %.5f plain\n",
              static_cast<long long>(trials->samples()), as_written->cosine_mean, plain->cosine_mean);
  EXPECT_NE(plain->cosine_mean, as_written->cosine_mean);
  EXPECT_GT(as_written->cosine_mean, 0.9997);
  EXPECT_GT(plain->cosine_mean, 0.9997);
  EXPECT_LT(plain->relative_l2, 1.5 * as_written->relative_l2);
}

// Two forms that run here: norms as the model has them, and plain ones over weights with their gain.
class TwoForms : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto load = [](int64_t batch) -> Result<GoldenModel> {
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
      PlanToMirror p{.of = {.batch = batch}};
      p.lowering.types.precision = "fp8", p.lowering.types.ranges = &ranges_;
      p.lowering.plan.target = Arch::cpu;
      if (batch == 1) {
        p.lowering.types.plain_norms = norms_between(model->canonical);
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
    GoldenForms forms([&](const PlanCase& of) { return load(of.batch); },
                      [](int64_t largest) { return std::min<int64_t>(largest, 2); },
                      [] { return GoldenOptions{.random_scales = true}; });
    const Status added = forms.add_plans(engine_, pool, plans);
    ASSERT_TRUE(added.ok()) << added.message();
    std::vector<ModelReport> reports;
    auto golden = forms.make_values(engine_, golden_plans(engine_), plans, &ranges_, reports);
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
    const auto model = load_model(tiny_vit(), golden->batch);
    ASSERT_TRUE(model.ok());
    const auto f32_model = make_f32_model(*model);
    ASSERT_TRUE(f32_model.ok());
    const auto measured = measure_quantization(engine_, &*f32_model, {.samples = 3}, golden);
    ASSERT_TRUE(measured.ok()) << measured.status().message();
    EXPECT_EQ(measured->not_the_model, 0u) << measured->faults[0];
    EXPECT_GT(measured->outputs[0].closeness.cosine_mean, 0.99) << measured->what;
    EXPECT_NE(measured->what.find("(batch"), std::string::npos) << measured->what;
    for (const LayerQuality& q : measured->layers) EXPECT_LT(q.weight_error, 0.1) << q.layer;
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
