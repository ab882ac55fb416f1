// SPDX-License-Identifier: Apache-2.0
#include "testing/session_engine.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "plan/engine_file.h"
#include "runtime/test_engine.h"

namespace tessera {
namespace {

std::vector<float> weights(size_t count) {
  std::vector<float> w(count);
  for (size_t i = 0; i < count; ++i) w[i] = test_weight(static_cast<int64_t>(i));
  return w;
}
std::vector<float> sum(std::vector<float> a, const std::vector<float>& b, float times = 1) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += times * b[i];
  return a;
}
GoldenTensor golden(const std::string& name, int64_t rows, const std::vector<float>& numbers) {
  Buffer bytes(numbers.size() * sizeof(float));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return {name, {1, rows, kCountedCols}, QuantType(Element::f32), Bytes::own(std::move(bytes))};
}

// On `ref`, as a function: what lies in the state is an input and an output.
Plan golden_plan_of(const Plan& plan, const std::string& name) {
  Plan g = plan;
  g.name = name, g.arch = Arch::ref, g.golden = "";
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    PlanTensor& t = g.tensors[static_cast<size_t>(g.inputs[i].tensor)];
    t.storage = Storage::kInput, t.index = static_cast<int64_t>(i);
  }
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    PlanTensor& t = g.tensors[static_cast<size_t>(g.outputs[i].tensor)];
    t.storage = Storage::kOutput, t.index = static_cast<int64_t>(i);
  }
  for (PlanStep& s : g.steps) s.variant = s.op + "/reference";
  return g;
}

// counting_engine over one sample, with an echo of x; both graphs have a plan for four rows and one for two.
Engine engine_of_buckets() {
  const Engine counts = counting_engine();
  Engine e = counts;
  e.plans.clear();
  Buffer w(static_cast<size_t>(kMostRows * kCountedCols) * 4);
  std::memcpy(w.data(), weights(static_cast<size_t>(kMostRows * kCountedCols)).data(), w.size());
  e.constants[0].data = Bytes::own(std::move(w));
  e.states[0].bytes = kMostRows * kCountedCols * 4;
  for (const int64_t rows : {kFewRows, kMostRows}) {
    for (Plan p : counts.plans) {
      p.batch = 1, p.sizes = {{"rows", rows}};
      p.name = cat(p.graph, ".rows", rows);
      if (p.graph == "begin") {
        p.tensors.push_back(test_tensor("echo", {}, Storage::kOutput, 1));
        p.outputs.push_back({"echo", 3});
        p.steps.push_back({.layer = "echo", .op = "copy", .variant = "copy/cpu", .in = {0}, .out = {3}});
      }
      for (PlanTensor& t : p.tensors) t = test_tensor(t.name, {1, rows, kCountedCols}, t.storage, t.index);
      p.arena_bytes = p.arena_bytes > 0 ? rows * kCountedCols * 4 : 0;
      p.golden = e.plans.empty() ? "golden" : cat("golden.", p.name);
      e.plans.push_back(p);
    }
  }
  const size_t runnable = e.plans.size();
  for (size_t i = 0; i < runnable; ++i) {
    const Plan p = e.plans[i];
    const int64_t rows = p.sizes.at("rows");
    const std::vector<float> w = weights(static_cast<size_t>(rows * kCountedCols)), x = sum(w, w, 2),
                             zeros(x.size(), 0);
    const bool begin = p.graph == "begin";
    GoldenForm form{.plan = p.golden, .outputs = {}, .bounds = {1e-12, 1e-12}, .values = {}};
    if (begin) {
      form.inputs = {golden("x", rows, x), golden("sum", rows, zeros)};
      form.outputs = {golden("sum after", rows, x), golden("echo", rows, x)};
    } else {
      form.inputs = {golden("sum", rows, x)};
      form.outputs = {golden("sum after", rows, sum(x, w)), golden("y", rows, sum(x, w))};
    }
    if (i == 0) e.golden.inputs = form.inputs, form.inputs.clear();
    e.plans.push_back(golden_plan_of(p, p.golden));
    e.golden.forms.push_back(form);
  }
  return e;
}

}  // namespace

std::string session_engine(const std::filesystem::path& folder, bool failing) {
  Engine e = engine_of_buckets();
  for (GoldenForm& form : e.golden.forms) {
    if (failing && form.plan == "golden.begin.rows4")
      form.outputs[0] = golden("sum after", kMostRows, std::vector<float>(kMostRows * kCountedCols, 77));
  }
  const std::string path = (folder / (failing ? "failing.tess" : "session.tess")).string();
  const Status written = write_engine(e, path);
  EXPECT_TRUE(written.ok()) << written.message();
  return path;
}

}  // namespace tessera
