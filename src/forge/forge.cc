// SPDX-License-Identifier: Apache-2.0
#include "forge/forge.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/log.h"
#include "base/progress.h"
#include "compile/compile.h"
#include "passes/canonicalise.h"
#include "plan/engine_file.h"
#include "runtime/executor.h"
#include "study/calibrate.h"
#include "study/verify.h"

namespace tessera {
namespace {

class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  double& seconds_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// A bar where one is wanted; goes when it goes out of scope.
class Bar {
 public:
  Bar(bool quiet, const char* name, int64_t total) {
    if (!quiet) progress_.emplace(name, total);
  }
  void advance() {
    if (progress_) progress_->advance();
  }

 private:
  std::optional<Progress> progress_;
};

// Names the layer where it can: a build that fails its own check is a fault of a kernel, and the layer says which.
std::string golden_failure(const Engine& engine, const VerifyReport& report) {
  const std::string text = cat("plan ", report.plan, " does not reproduce its golden values: ", report.sentence);
  const auto layers = verify_plans(engine, {.plan = report.plan});
  if (!layers.ok() || layers->front().first_stray < 0) return text;
  return cat(text, "; ", layers->front().sentence);
}

// Batch of the calibration runs: enough rows to use the cores, few enough to keep the arena small.
constexpr int64_t kCalibrationBatch = 16;

// Shapes that are given whole have a batch of their own, which the other inputs must share.
int64_t calibration_batch(const BuildOptions& options) {
  if (!options.shapes.empty()) return options.batches.empty() ? 1 : options.batches[0];
  return options.calib_path.empty() ? 2 : kCalibrationBatch;
}

Result<QuantizeOptions> types_asked(const BuildOptions& options) {
  QuantizeOptions types;
  types.precision = options.precision;
  types.attention = options.attention;
  if (options.recipe) {
    types.rules = options.recipe->rules;
    if (types.precision.empty()) types.precision = options.recipe->precision;
    if (types.attention.empty()) types.attention = options.recipe->attention;
  }
  if (!types.precision.empty()) TS_TRY(base_precision(types.precision).status());
  for (const std::string& text : options.allow) {
    TS_ASSIGN(Allowance a, parse_allowance(text));
    types.allow.push_back(std::move(a));
  }
  return types;
}

}  // namespace

Result<Engine> build_engine(const BuildOptions& options, BuildTimes* times, bool* ran_on_target, ModelReport* report) {
  if (ran_on_target != nullptr) *ran_on_target = false;
  BuildTimes unused;
  BuildTimes& t = times != nullptr ? *times : unused;
  LowerOptions lowering;
  TS_ASSIGN(lowering.types, types_asked(options));
  Engine engine;
  engine.target = options.target;
  engine.allowed = options.allow;
  if (options.recipe) engine.allowed.insert(engine.allowed.begin(), "recipe " + options.recipe->name);
  engine.producer = cat("tessera ", TS_VERSION);
  const LoadOptions any_batch{.exact = false, .shapes = options.shapes, .family = options.family};
  Graph sample_graph;
  {
    const Stopwatch watch(t.import_s);
    Bar bar(options.quiet, "importing", 1);
    TS_ASSIGN(sample_graph, load_model(options.model_path, calibration_batch(options), any_batch));
  }
  if (lowering.types.precision.empty()) lowering.types.precision = states_types(sample_graph) ? kImported : "fp16";
  engine.precision = lowering.types.precision;
  Ranges ranges;
  if (needs_ranges(lowering.types)) {
    const Stopwatch watch(t.calibrate_s);
    const Activity calibrating("calibrating", options.model_path);
    CalibrateOptions calibration{.path = options.calib_path,
                                 .samples = options.calib_samples,
                                 .method = {},
                                 .preprocess = options.preprocess,
                                 .quiet = options.quiet};
    if (!options.calib_method.empty()) {
      TS_ASSIGN(calibration.method, parse_range_method(options.calib_method));
    }
    TS_ASSIGN(ranges, calibrate(sample_graph, calibration));
    engine.calibration = ranges.how;
    engine.preprocess = ranges.preprocess;
    for (const std::string& fault : ranges.warnings) {
      warn(cat("calibration: ", fault));
      engine.calibration += "; " + fault;
    }
    lowering.types.ranges = &ranges;
  } else if (!options.calib_path.empty()) {
    return usage_error(cat("--calib: ", engine.precision,
                           " has no scales to calibrate; leave it out, or ask for another --precision"));
  }

  ConstantPool pool(engine.constants);
  std::vector<int64_t> batches = options.batches;
  std::sort(batches.begin(), batches.end());
  batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
  const bool asked = !batches.empty();
  if (!asked) batches = {1};
  const LoadOptions this_batch{.exact = asked && options.exact_batches, .shapes = options.shapes, .family = options.family};
  lowering.plan.target = options.target;
  int64_t largest = 1;
  // The import and the plan of each batch size, and of the golden plan.
  std::optional<Bar> bar;
  bar.emplace(options.quiet, "importing, packing", 2 * (static_cast<int64_t>(batches.size()) + 1));
  for (int64_t batch : batches) {
    const std::string planned = cat("batch", batch);
    const Activity planning("planning", planned);
    Graph graph;
    {
      const Stopwatch watch(t.import_s);
      TS_ASSIGN(graph, load_model(options.model_path, batch, this_batch));
    }
    bar->advance();
    const Stopwatch watch(t.compile_s);
    engine.model = graph.name;
    lowering.plan.batch = batch_of(graph);
    if (this_batch.exact && lowering.plan.batch != batch) {
      return usage_error(cat("--shape gives a batch of ", lowering.plan.batch, ", --batch ", batch,
                             ": leave --batch out"));
    }
    lowering.plan.name = cat("batch", lowering.plan.batch);
    largest = std::max(largest, lowering.plan.batch);
    TS_ASSIGN(Plan plan, lower(std::move(graph), lowering, pool));
    engine.plans.push_back(std::move(plan));
    bar->advance();
  }
  Graph written, canonical;  // with the golden plan's batch
  {
    {
      const Stopwatch watch(t.import_s);
      const int64_t batch = options.shapes.empty() ? std::min(largest, options.golden_samples) : largest;
      TS_ASSIGN(written, import_model(options.model_path, batch, any_batch));
      canonical = written;
      TS_TRY(canonicalise(canonical));
    }
    bar->advance();
    const Stopwatch watch(t.compile_s);
    lowering.plan.batch = batch_of(canonical);
    lowering.plan.name = "golden";
    lowering.plan.as_reference = true;
    TS_ASSIGN(Plan plan, lower(canonical, lowering, pool));
    engine.plans.push_back(std::move(plan));
  }
  bar.reset();
  TS_TRY(check_engine(engine));
  if (options.golden) {
    const Stopwatch watch(t.golden_s);
    const ModelGraphs graphs{.written = &written, .canonical = &canonical, .prepared = &canonical};
    const GoldenOptions golden{.seed = options.seed,
                               .inputs = options.calib_path,
                               .min_cosine = options.min_cosine,
                               .quiet = options.quiet};
    TS_ASSIGN(engine.golden, make_golden(engine, golden, &graphs, report));
    if (why_not_here(options.target).empty()) {
      Bar checking(options.quiet, "checking", static_cast<int64_t>(engine.plans.size()) - 1);
      for (size_t i = 0; i + 1 < engine.plans.size(); ++i) {
        TS_ASSIGN(const VerifyReport report, check_golden(engine, engine.plans[i]));
        if (!report.ok) return Status(Code::kVerifyFailed, golden_failure(engine, report));
        checking.advance();
      }
      if (ran_on_target != nullptr) *ran_on_target = true;
    }
  }
  return engine;
}

}  // namespace tessera
