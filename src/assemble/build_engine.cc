// SPDX-License-Identifier: Apache-2.0
#include "assemble/build_engine.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>

#include "assemble/choose_norms.h"
#include "assemble/choose_types.h"
#include "assemble/tuning.h"
#include "base/log.h"
#include "base/progress.h"
#include "calibrate/calibrate.h"
#include "calibrate/ranges_file.h"
#include "calibrate/refine.h"
#include "calibrate/row_offsets.h"
#include "compile/compile.h"
#include "io/mmap.h"
#include "plan/engine_file.h"
#include "runtime/executor.h"
#include "verify/model_as_written.h"
#include "verify/padding.h"
#include "verify/validate/validate_plan.h"
#include "verify/verify.h"

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

// Whether a shape says the batch, too.
bool shapes_give_batch(const BuildOptions& options) {
  return std::any_of(options.shapes.begin(), options.shapes.end(),
                     [](const auto& s) { return s.second.empty() || s.second[0] != 0; });
}

// Shapes that are given whole have a batch of their own, which the other inputs must share.
int64_t calibration_batch(const BuildOptions& options) {
  if (shapes_give_batch(options)) return options.batches.empty() ? 1 : options.batches[0];
  return options.calib_path.empty() ? 1 : kCalibrationBatch;
}

Result<QuantizeOptions> types_asked(const BuildOptions& options) {
  QuantizeOptions types;
  types.precision = options.precision;
  types.attention = options.attention;
  types.sparse = options.refine.sparse();
  types.promoted = options.promoted;
  if (options.recipe && !options.precision.empty())
    return usage_error(cat("--precision and --recipe: the recipe ", options.recipe->name,
                           " says what layers get that no rule names; give one of the two"));
  if (options.recipe) {
    types.rules = options.recipe->rules;
    if (types.precision.empty()) types.precision = options.recipe->precision;
    if (types.attention.empty()) types.attention = options.recipe->attention;
  }
  if (!types.precision.empty() && types.precision != kAuto) TS_TRY(base_precision(types.precision).status());
  for (const std::string& text : options.allow) {
    TS_ASSIGN(Allowance a, parse_allowance(text));
    types.allow.push_back(std::move(a));
  }
  return types;
}

// The stages of a build, in order; each leaves what the next needs.
class Builder {
 public:
  explicit Builder(const BuildOptions& options) : options_(options) {}

  Result<Built> run() {
    TS_ASSIGN(lowering_.types, types_asked(options_));
    TS_ASSIGN(lowering_.plan.tuning, load_tuning(options_, tuning_));
    lowering_.plan.target = options_.target;
    TS_TRY(load_samples_graph());
    if (engine_.precision == kAuto) TS_TRY(choose_by_sensitivity());
    TS_ASSIGN(ranges_given_, is_ranges_file(options_.calib_path));
    if (ranges_given_) TS_TRY(calibrate_ranges());  // they are of the model as it was
    TS_TRY(refine());
    if (!ranges_given_) TS_TRY(calibrate_ranges());
    if (!options_.calib_method.empty() && !needs_ranges(lowering_.types))
      return usage_error(cat("--calib-method: ", engine_.precision, " has no scales to calibrate; leave it out"));
    note_calib_without_scales();
    TS_TRY(choose_norms_of_all_plans());
    Status made = make_engine();
    if (made.code() == Code::kVerifyFailed && !lowering_.types.folded_norms.empty())
      made = make_engine_with_its_norms(made);
    TS_TRY(made);
    // Whoever runs the engine without writing it reads its weights all the time.
    for (const EngineConstant& c : engine_.constants) keep_pages(c.data.data());
    return std::move(built_);
  }

 private:
  LoadOptions any_batch() const { return {.exact = false, .shapes = options_.shapes, .family = options_.family}; }

  Status load_samples_graph() {
    engine_.target = options_.target;
    engine_.allowed = options_.allow;
    if (options_.recipe) engine_.recipe = options_.recipe->name;
    engine_.producer = cat("tessera ", TS_VERSION);
    const Stopwatch watch(t_.import_s);
    Bar bar(options_.quiet, "importing", 1);
    TS_ASSIGN(source_, ModelSource::open(options_.model_path, options_.family));
    TS_ASSIGN(sampled_, source_->canonical(calibration_batch(options_), any_batch()));
    if (lowering_.types.precision.empty()) lowering_.types.precision = states_types(sampled_) ? kImported : "fp16";
    engine_.precision = lowering_.types.precision;
    engine_.weights = weights_checksum(sampled_);
    return {};
  }

  CalibrateOptions calibration() const {
    return {.path = options_.calib_path,
            .samples = options_.calib_samples > 0 ? options_.calib_samples : 512,
            .method = {},
            .preprocess = options_.preprocess,
            .quiet = options_.quiet};
  }

  // Layers get what their measured sensitivity allows; what the user allows goes before it.
  Status choose_by_sensitivity() {
    if (options_.recipe) return usage_error("--precision auto chooses by itself: leave --recipe out");
    TS_ASSIGN(const bool ranges_given, is_ranges_file(options_.calib_path));
    if (options_.calib_path.empty() || ranges_given)
      return usage_error("--precision auto measures layers on samples: give them with --calib FILE.npz");
    const Stopwatch watch(t_.calibrate_s);
    CalibrateOptions how = calibration();
    if (!options_.calib_method.empty()) {
      TS_ASSIGN(how.method, parse_range_method(options_.calib_method));
    }
    TS_ASSIGN(built_.chosen, choose_types(sampled_, options_, how, lowering_));
    const AutoChoice& choice = built_.chosen;
    lowering_.types.precision = choice.base;
    lowering_.types.allow.insert(lowering_.types.allow.begin(), choice.allow.begin(), choice.allow.end());
    engine_.allowed.insert(engine_.allowed.begin(), choice.sentence);
    calib_used_ = true;
    return {};
  }

  // Weights that lose less (precision/refine.h), once for all batch sizes.
  Status refine() {
    original_ = sampled_;
    TS_ASSIGN(const Choices choices, choose_precisions(sampled_, lowering_.types));
    RefineOptions refining{.what = options_.refine, .type_of = {}, .quiet = options_.quiet};
    if (options_.calib_samples > 0) refining.samples = options_.calib_samples;
    std::map<std::string, LayerChoice> chosen;
    for (size_t n = 0; n < sampled_.nodes.size(); ++n) chosen[sampled_.nodes[n].name] = choices.layers[n];
    const bool any_sparse = std::any_of(chosen.begin(), chosen.end(), [](const auto& c) { return c.second.sparse; });
    if (any_sparse && !refining.what.sparse()) {
      TS_ASSIGN(const SparsityMethod method, default_sparsity_method(options_.calib_path));
      refining.what.sparsity = {SparsityPattern::k24, method};
    }
    if (!refining.what.any()) return {};
    refining.what.is_sparse = [&chosen](const Node& n) { return chosen.contains(n.name) && chosen.at(n.name).sparse; };
    refining.what.pattern_of = [&chosen, flag = refining.what.sparsity.pattern](const Node& n) {
      const auto it = chosen.find(n.name);
      if (it == chosen.end() || it->second.pattern.empty()) return flag;
      return it->second.pattern == "4:8" ? SparsityPattern::k48Pairs : SparsityPattern::k24;
    };
    refining.type_of = [&chosen](const Node& n) {
      const auto it = chosen.find(n.name);
      return it == chosen.end() || it->second.precision == nullptr ? QuantType() : it->second.precision->weight;
    };
    const Stopwatch watch(t_.refine_s);
    const Activity activity("refining the weights of", options_.model_path);
    CalibrationSamples data;
    if (refining.what.needs_moments()) {
      if (options_.calib_path.empty() || ranges_given_)
        return usage_error(
            "--refine and --sparsity by hessian look at what layers read: give samples with --calib FILE.npz");
      TS_ASSIGN(data, samples_of(sampled_, calibration()));
      calib_used_ = true;
      engine_.preprocess = data.preprocess;
    }
    TS_ASSIGN(refined_, refine_model(sampled_, refining.what.needs_moments() ? &data.samples : nullptr, refining));
    if (refined_.layers.empty())
      return usage_error(cat("--refine: no layer of ", engine_.precision,
                             " has a weight with scales that it could better; leave it out"));
    engine_.refinements = refined_.notes;
    engine_.refined_weights = refined_.layers, engine_.divided_layers = refined_.divided;
    return {};
  }

  Status calibrate_ranges() {
    if (!needs_ranges(lowering_.types))  // ranges are not used then, and yet must be ones that could be
      return ranges_given_ ? calibrate(sampled_, calibration()).status() : Status();
    const Stopwatch watch(t_.calibrate_s);
    const Activity calibrating("calibrating", options_.model_path);
    CalibrateOptions how = calibration();
    if (!options_.calib_method.empty()) {
      TS_ASSIGN(how.method, parse_range_method(options_.calib_method));
    }
    TS_ASSIGN(ranges_, calibrate(sampled_, how));
    calib_used_ = true;
    engine_.calibration = ranges_.how;
    engine_.preprocess = ranges_.preprocess;
    for (const std::string& fault : ranges_.warnings) {
      warn(cat("calibration: ", fault));
      engine_.calibration += "; " + fault;
    }
    if (!ranges_.unread.empty()) warn(cat("calibration: ", ranges_.unread));  // says nothing of the scales: not kept
    lowering_.types.ranges = &ranges_;
    return {};
  }

  // What the quantized model is worth on the user's own samples, beside fp32. Both run as CPU plans, which have all of
  // their norms: where some are folded the golden run alone says it.
  Status measure_on_samples() {
    if (options_.calib_path.empty() || ranges_given_ || !lowering_.types.folded_norms.empty()) return {};
    const Stopwatch watch(t_.golden_s);
    CalibrateOptions few = calibration();
    few.samples = std::min<int64_t>(few.samples, 32);
    TS_ASSIGN(CalibrationSamples data, samples_of(original_, few));
    const auto trials = Trials::make(original_, std::move(data.samples));
    if (!trials.ok()) return {};  // no floating-point output: the gate counts whole numbers
    TS_ASSIGN(built_.report.on_samples, trials->measure(sampled_, lowering_.types));
    built_.report.samples = trials->samples();
    return {};
  }

  // The same line serves every precision: one without static scales does not refuse the samples of the others.
  void note_calib_without_scales() const {
    if (calib_used_ || options_.calib_path.empty() || options_.quiet) return;
    note(cat("--calib: ", engine_.precision, " has no static scales; ",
             ranges_given_     ? "the ranges are not used"
             : options_.golden ? "its samples serve golden inputs and accuracy"
                               : "without golden values its samples are not used"));
  }

  // Weights in bf16 are in fp16 from here on: more digits, less range. Those beyond it are an error
  // (precision/give_carrier.h).
  void note_bf16() const {
    const auto base = base_precision(lowering_.types.precision);
    if (options_.quiet || !base.ok() || (*base)->carrier != Element::f16 || !is_in_bf16(written_)) return;
    note(cat("most weights of the model are bf16 numbers; ",
             (*base)->weight.scaled() ? cat("what is not ", (*base)->name) : "the engine",
             " is in fp16, whose largest number is 65504 (--precision bf16 keeps bf16)"));
  }

  Status make_engine() {
    if (options_.golden) TS_TRY(measure_on_samples());
    TS_TRY(make_plans());
    TS_TRY(check_engine(engine_));
    return options_.golden ? make_golden_values() : check_samples_alone(canonical_, options_.seed);
  }

  // What folded norms cost in accuracy shows where the golden plan has run, and not before: all plans mirror it, so
  // they are made anew.
  Status make_engine_with_its_norms(const Status& failed) {
    engine_.plans.clear(), engine_.constants.clear();
    built_.report = {};
    TS_TRY(share_norms({}));  // whether all plans can pool theirs was asked with the others folded
    TS_TRY(make_engine());
    note_kept_norms(failed.message());
    return {};
  }

  void note_kept_norms(const std::string& why) const {
    if (!options_.quiet)
      note(cat("norms stay kernels of their own; had they been folded or pooled: ", why.substr(0, why.find('\n'))));
  }

  // In order, each once.
  std::vector<int64_t> batches() const {
    std::vector<int64_t> all = options_.batches;
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all.empty() ? std::vector<int64_t>{1} : all;
  }

  LoadOptions this_batch() const {
    return {.exact = !options_.batches.empty() && options_.exact_batches,
            .shapes = options_.shapes,
            .family = options_.family};
  }

  // The model for one plan, with the weights that were refined.
  Result<Graph> graph_to_plan(int64_t batch, const LoadOptions& how) {
    TS_ASSIGN(Graph graph, source_->canonical(batch, how));
    TS_TRY(carry_over(sampled_, refined_, graph));
    return graph;
  }

  // Shapes that are given whole have a batch of their own.
  int64_t golden_batch(int64_t largest) const {
    return shapes_give_batch(options_) ? largest : std::min(largest, options_.golden_samples);
  }

  Status choose_norms_of_all_plans() {
    lowering_.types.target = options_.target;
    const bool cuda = info(options_.target).device == DeviceKind::kCuda;
    if (options_.keep_norms && !cuda)
      return usage_error(
          cat("--keep-norms: norms are never folded for ", info(options_.target).name, "; leave it out"));
    if (!cuda) return {};
    std::set<std::string> folded;
    // Weights that were refined have their norms' gains as they are.
    if (!options_.keep_norms && engine_.precision != kAuto && refined_.layers.empty()) {
      TS_ASSIGN(folded, norms_to_fold());
    }
    return share_norms(std::move(folded));
  }

  // What all plans can share of these folded norms, and of pooled ones.
  Status share_norms(std::set<std::string> folded) {
    GraphsToPlan plans{.batches = batches(), .graph = {}};
    const int64_t golden = golden_batch(plans.batches.back());
    const bool own_graph = std::find(plans.batches.begin(), plans.batches.end(), golden) == plans.batches.end();
    if (own_graph) plans.batches.push_back(golden);
    plans.graph = [&](int64_t batch) {
      return graph_to_plan(batch, own_graph && batch == golden ? any_batch() : this_batch());
    };
    const Stopwatch watch(t_.compile_s);
    TS_ASSIGN(NormChoice norms, choose_norms(plans, std::move(folded), lowering_));
    if (!norms.why_kept.empty()) note_kept_norms(norms.why_kept);
    lowering_.types.folded_norms = std::move(norms.folded);
    lowering_.types.pooled_norms = norms.pooled;
    return {};
  }

  // At the largest batch, where kernels of the target say so and the rows of the samples allow it.
  Result<std::set<std::string>> norms_to_fold() {
    constexpr int64_t kSamples = 8;
    std::optional<RowOffsets> offsets;
    const Stopwatch watch(t_.import_s);
    const auto at = [&](int64_t batch) -> Result<std::set<std::string>> {
      TS_ASSIGN(const Graph graph, graph_to_plan(batch, this_batch()));
      TS_ASSIGN(const std::set<std::string> any, foldable_norms(graph, lowering_.types, {}));
      if (any.empty()) return any;
      if (!offsets) {
        CalibrateOptions few = calibration();
        few.samples = std::min(few.samples, kSamples);
        if (ranges_given_) few.path.clear();
        TS_ASSIGN(const CalibrationSamples data, samples_of(sampled_, few));
        TS_ASSIGN(offsets, measure_row_offsets(sampled_, data.samples));
      }
      return foldable_norms(graph, lowering_.types, *offsets);
    };
    const std::vector<int64_t> all = batches();
    TS_ASSIGN(std::set<std::string> folded, at(all.back()));
    if (all.size() == 1 || options_.quiet) return folded;
    TS_ASSIGN(const std::set<std::string> alone, at(all.front()));
    if (alone.size() > folded.size())
      note(cat("batch ", all.front(), " keeps ", alone.size() - folded.size(), " of ", alone.size(),
               " norms as kernels because batch ", all.back(),
               " is in the same engine; for the shortest time build it alone: --batch ", all.front()));
    return folded;
  }

  // One plan per batch size, and the golden plan.
  Status make_plans() {
    ConstantPool pool(engine_.constants);
    validated_.clear(), compared_.clear();
    const std::vector<int64_t> all = batches();
    int64_t largest = 1;
    Bar bar(options_.quiet, "importing, packing", 2 * (static_cast<int64_t>(all.size()) + 1));
    for (int64_t batch : all) {
      const std::string planned = cat("batch", batch);
      const Activity planning("planning", planned);
      Graph graph;
      {
        const Stopwatch watch(t_.import_s);
        TS_ASSIGN(graph, graph_to_plan(batch, this_batch()));
      }
      bar.advance();
      largest = std::max(largest, batch_of(graph));
      TS_TRY(make_plan_of(std::move(graph), batch, pool));
      bar.advance();
    }
    TS_TRY(load_golden_graphs(golden_batch(largest)));
    bar.advance();
    const Stopwatch watch(t_.compile_s);
    LowerOptions golden = lowering_;
    golden.plan.batch = batch_of(prepared_);
    golden.plan.name = kGoldenPlan;
    golden.plan.as_reference = true;
    TS_ASSIGN(Plan plan, lower(prepared_, golden, pool));
    engine_.plans.push_back(std::move(plan));
    // A table that grew from plan to plan has one hash in the end; what was chosen by it stays, since entries are only
    // added.
    for (Plan& p : engine_.plans) {
      if (!p.tuning.empty()) p.tuning = tuning_hash(*lowering_.plan.tuning);
    }
    return {};
  }

  Status make_plan_of(Graph graph, int64_t asked_batch, ConstantPool& pool) {
    engine_.model = graph.name;
    LowerOptions lowering = lowering_;
    lowering.plan.batch = batch_of(graph);
    lowering.plan.name = cat("batch", lowering.plan.batch);
    if (this_batch().exact && lowering.plan.batch != asked_batch) {
      return usage_error(
          cat("--shape gives a batch of ", lowering.plan.batch, ", --batch ", asked_batch, ": leave --batch out"));
    }
    if (options_.tune) {
      const Stopwatch tuning(t_.tune_s);
      TS_TRY(tune_graph(graph, lowering, options_, tuning_));
    }
    {
      const Stopwatch watch(t_.compile_s);
      TS_ASSIGN(Plan plan, lower(graph, lowering, pool));
      if (lowering.plan.tuning == &tuning_) warn_of_unknown_tiles(plan, tuning_);
      engine_.plans.push_back(std::move(plan));
    }
    if (!options_.golden) return {};
    const Stopwatch watch(t_.golden_s);  // while the model with this batch is at hand
    const ValidateOptions how{.ranges = lowering.types.ranges, .compared = &compared_};
    return check_plan(engine_.constants, engine_.plans.back(), graph, how, &validated_);
  }

  // The model with the golden plan's batch: as written, canonical, and as plans are made of it.
  Status load_golden_graphs(int64_t batch) {
    const Stopwatch watch(t_.import_s);
    TS_ASSIGN(written_, source_->written(batch, any_batch()));
    note_bf16();
    TS_ASSIGN(canonical_, source_->canonical(batch, any_batch()));
    prepared_ = canonical_;
    return carry_over(sampled_, refined_, prepared_);
  }

  Status make_golden_values() {
    ModelReport& report = built_.report;
    const Stopwatch watch(t_.golden_s);
    const ModelGraphs graphs{.written = &written_,
                             .canonical = &canonical_,
                             .prepared = refined_.layers.empty() ? &canonical_ : &prepared_,
                             .ranges = lowering_.types.ranges};
    const std::string data = ranges_given_ ? std::string() : options_.calib_path;
    const GoldenOptions golden{.seed = options_.seed,
                               .inputs = options_.golden_inputs.empty() ? data : options_.golden_inputs,
                               .preprocess = options_.preprocess,
                               .min_cosine = engine_.precision == kAuto ? std::nullopt : options_.min_cosine,
                               .random_scales = options_.calib_path.empty() && !ranges_.values.empty(),
                               .quiet = options_.quiet};
    TS_ASSIGN(engine_.golden, make_golden(engine_, golden, &graphs, &report));
    // Ranges of a file may be of these samples or of others: then nothing is said, and scales are judged as any others.
    if (!ranges_given_ || golden.inputs.empty()) {
      engine_.golden.within_amax = !ranges_.values.empty() && ranges_.method.kind == RangeMethod::kAmax &&
                                   !data.empty() && golden.inputs == data && batch_of(prepared_) <= ranges_.samples;
    }
    report.validated.insert(report.validated.begin(), validated_.begin(), validated_.end());
    const bool here = why_not_here(options_.target).empty();
    TS_ASSIGN(const PaddingReport padding, check_padding(engine_, graphs, options_.seed, here));
    report.padding = padding.mask;
    if (!here) return {};
    Bar checking(options_.quiet, "checking", static_cast<int64_t>(engine_.plans.size()) - 1);
    for (size_t i = 0; i + 1 < engine_.plans.size(); ++i) {
      TS_ASSIGN(const VerifyReport checked, check_golden(engine_, engine_.plans[i]));
      if (!checked.ok) return Status(Code::kVerifyFailed, golden_failure(engine_, checked));
      checking.advance();
    }
    built_.ran_on_target = true;
    return {};
  }

  const BuildOptions& options_;
  Built built_;
  BuildTimes& t_ = built_.times;
  Engine& engine_ = built_.engine;
  LowerOptions lowering_;
  std::optional<ModelSource> source_;
  TuningTable tuning_;        // of a file, where one is read or made; lowering_ points at it then
  Graph sampled_, original_;  // with the batch of calibration: refined, and as it was
  Refined refined_;
  Ranges ranges_;
  bool calib_used_ = false, ranges_given_ = false;
  std::vector<std::string> validated_;    // how plans were held against the model
  ComparedConstants compared_;            // by them
  Graph written_, canonical_, prepared_;  // with the golden plan's batch
};

}  // namespace

Result<SparsityMethod> default_sparsity_method(const std::string& calib_path) {
  TS_ASSIGN(const bool ranges, is_ranges_file(calib_path));
  return calib_path.empty() || ranges ? SparsityMethod::kMagnitude : SparsityMethod::kHessian;
}

Result<Built> build_engine(const BuildOptions& options) { return Builder(options).run(); }

}  // namespace tessera
