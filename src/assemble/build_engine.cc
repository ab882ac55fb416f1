// SPDX-License-Identifier: Apache-2.0
#include "assemble/build_engine.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>

#include "assemble/choose_norms.h"
#include "assemble/choose_types.h"
#include "assemble/golden_forms.h"
#include "assemble/lengths.h"
#include "assemble/tuning.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/progress_sink.h"
#include "calibrate/calibrate.h"
#include "calibrate/ranges_file.h"
#include "calibrate/refine.h"
#include "calibrate/row_offsets.h"
#include "compile/compile.h"
#include "compile/weights_checksum.h"
#include "io/mmap.h"
#include "plan/engine_file.h"
#include "plan/golden_plans.h"
#include "plan/join_engines.h"
#include "precision/layer_weights.h"
#include "runtime/batches.h"
#include "runtime/executor.h"
#include "verify/model_as_written.h"
#include "verify/padding.h"
#include "verify/validate/validate_plan.h"
#include "verify/verify.h"

namespace tessera {
namespace {

// Adds the time until it goes to `seconds`, but for what another one counts meanwhile.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds), around_(running_) {
    if (around_ != nullptr) around_->add();
    running_ = this;
  }
  ~Stopwatch() {
    add();
    running_ = around_;
    if (around_ != nullptr) around_->start_ = Clock::now();
  }

 private:
  using Clock = std::chrono::steady_clock;
  void add() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }

  static inline thread_local Stopwatch* running_ = nullptr;
  double& seconds_;
  Stopwatch* const around_;
  Clock::time_point start_ = Clock::now();
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
  return options.calib_path.empty() || !options.calib_of.empty() ? 1 : kCalibrationBatch;
}

Result<QuantizeOptions> types_asked(const BuildOptions& options) {
  QuantizeOptions types;
  types.precision = options.precision;
  types.attention = options.attention;
  types.sparse = options.refine.sparse();
  types.promoted = options.promoted;
  types.part = options.part;
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

Result<std::shared_ptr<ModelSource>> open_source(const BuildOptions& options) {
  TS_ASSIGN(ModelSource source, ModelSource::open(options.model_path, options.family, options.random));
  return std::make_shared<ModelSource>(std::move(source));
}

// The stages of a build, in order; each leaves what the next needs.
class Builder {
 public:
  // `source`: the model, where it is open already.
  explicit Builder(const BuildOptions& options, std::shared_ptr<ModelSource> source = nullptr)
      : options_(options), source_(std::move(source)) {}

  Result<Built> run() {
    TS_ASSIGN(lowering_.types, types_asked(options_));
    TS_ASSIGN(lowering_.plan.tuning, load_tuning(options_, tuning_));
    lowering_.plan.target = options_.target;
    lowering_.plan.graph = options_.graph;
    lowering_.plan.chains = options_.chains;
    TS_TRY(load_samples_graph());
    if (engine_.precision == kAuto) TS_TRY(choose_by_sensitivity());
    TS_ASSIGN(ranges_given_, is_ranges_file(options_.calib_path));
    if (ranges_given_) TS_TRY(calibrate_ranges());  // they are of the model as it was
    TS_TRY(check_cancelled());
    TS_TRY(refine());
    TS_TRY(check_cancelled());
    if (!ranges_given_) TS_TRY(calibrate_ranges());
    if (!options_.calib_method.empty() && !needs_ranges(lowering_.types))
      return usage_error(cat("--calib-method: ", engine_.precision, " has no scales to calibrate; leave it out"));
    note_calib_without_scales();
    TS_TRY(choose_norms_of_plans());
    if (options_.golden) TS_TRY(judge_folded_norms());
    TS_TRY(make_engine());
    for (const std::string& why : why_kept_) note_kept_norms(why);
    // Whoever runs the engine without writing it reads its weights all the time.
    for (const EngineConstant& c : engine_.constants) keep_pages(c.data.data());
    return std::move(built_);
  }

  // What layers would get, before anything is built.
  Result<Choices> choices() {
    TS_ASSIGN(lowering_.types, types_asked(options_));
    TS_TRY(load_samples_graph());
    return choose_precisions(sampled_, lowering_.types);
  }

 private:
  LoadOptions any_batch() const {
    LoadOptions how = this_batch();
    how.exact = false;
    return how;
  }

  Status load_samples_graph() {
    engine_.target = options_.target;
    engine_.allowed = options_.allow;
    if (options_.recipe) engine_.recipe = options_.recipe->name;
    engine_.producer = cat("tessera ", TS_VERSION);
    const Stopwatch watch(t_.import_s);
    Bar bar(options_.quiet, "importing", 1);
    if (source_ == nullptr) {
      TS_ASSIGN(source_, open_source(options_));
    }
    PlanCase sampled;  // calibration data are taken at their own length
    if (!options_.lengths.empty()) {
      TS_ASSIGN(engine_.lengths, find_lengths(options_, model_at()));
      TS_ASSIGN(sampled.sizes, sizes_of_file(options_, engine_.lengths, options_.calib_path));
    }
    TS_ASSIGN(sampled_, source_->canonical(calibration_batch(options_), in_bucket(any_batch(), sampled)));
    TS_TRY(take_whole(in_bucket(any_batch(), sampled)));
    if (lowering_.types.precision.empty()) lowering_.types.precision = states_types(sampled_) ? kImported : "fp16";
    engine_.precision = lowering_.types.precision;
    engine_.weights = weights_checksum(sampled_);
    return {};
  }

  // A first axis that the model fixes may be no batch: frames or tokens, which attend to one another. Such a model is
  // one sample.
  Status take_whole(const LoadOptions& how) {
    const int64_t asked = calibration_batch(options_), own = batch_of(sampled_);
    if (own < 2 || this_batch().exact) return {};
    if (own == asked) {
      TS_ASSIGN(const Graph larger, source_->written(asked + 1, how));
      if (batch_of(larger) != own) return {};
    }
    if (check_samples_alone(sampled_, options_.seed).code() != Code::kVerifyFailed) return {};
    for (const ValueId in : sampled_.inputs) {
      Shape& shape = shapes_[sampled_.at(in).name] = sampled_.at(in).type.shape;
      shape.insert(shape.begin(), 1);
    }
    if (!options_.quiet) note(cat("the model mixes what lies along its first axis (", own, "): it is one sample"));
    LoadOptions whole = how;
    whole.shapes = shapes_;
    TS_ASSIGN(sampled_, source_->canonical(1, whole));
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
    note_sparse_weights(choices);
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
    if (refined_.layers.empty() && !refining.what.sparse())
      return usage_error(cat("--refine: no layer of ", engine_.precision,
                             " has a weight with scales that it could better; leave it out"));
    engine_.refinements = refined_.notes;
    engine_.refined_weights = refined_.changed, engine_.divided_layers = refined_.divided;
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
  // their norms: of plans that fold some the golden run alone says it.
  Status measure_on_samples() {
    on_samples_ = {};
    const std::vector<PlanCase> all = cases();
    const auto whole = std::find_if(all.begin(), all.end(), [&](const PlanCase& c) { return folds_.at(c).empty(); });
    if (options_.calib_path.empty() || ranges_given_ || whole == all.end()) return {};
    const Stopwatch watch(t_.golden_s);
    CalibrateOptions few = calibration();
    few.samples = std::min<int64_t>(few.samples, 32);
    TS_ASSIGN(CalibrationSamples data, samples_of(original_, few));
    const auto trials = Trials::make(original_, std::move(data.samples));
    if (!trials.ok()) return {};  // no floating-point output: the gate counts whole numbers
    QuantizeOptions types = lowering_.types;
    folds_.apply(*whole, types);
    TS_ASSIGN(on_samples_.on_samples, trials->measure(sampled_, types));
    on_samples_.samples = trials->samples();
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

  // A model that was pruned and trained again is dense here unless somebody asks.
  void note_sparse_weights(const Choices& choices) const {
    if (options_.quiet) return;
    size_t all = 0, dense = 0;
    for (size_t n = 0; n < sampled_.nodes.size(); ++n) {
      const Node& node = sampled_.nodes[n];
      if (!in_block(node) || !is_linear_layer(sampled_, node)) continue;
      ++all;
      if (!choices.layers[n].sparse && has_24_zeros(sampled_, node.inputs[1])) ++dense;
    }
    if (dense > 0)
      note(cat("the weights of ", dense, " of the ", all,
               " linear layers of the blocks are 2:4 sparse in the model and ",
               "stored dense; --sparsity 2:4 stores half of their numbers"));
  }

  // Weights in bf16 are in fp16 from here on: more digits, less range. Those beyond it are an error
  // (precision/give_carrier.h).
  void note_bf16(const Graph& written) const {
    const auto base = base_precision(lowering_.types.precision);
    if (options_.quiet || !base.ok() || (*base)->carrier != Element::f16 || !is_in_bf16(written)) return;
    note(cat("most weights of the model are bf16 numbers; ",
             (*base)->weight.scaled() ? cat("what is not ", (*base)->name) : "the engine",
             " is in fp16, whose largest number is 65504 (--precision bf16 keeps bf16)"));
  }

  Status make_engine() {
    TS_TRY(make_plans());
    if (!options_.lengths.empty()) {
      const Stopwatch watch(t_.golden_s);
      const Activity trying("trying whether lengths may be padded, of", options_.model_path);
      TS_TRY(try_padding(options_, model_at(), engine_));
    }
    TS_TRY(check_engine(engine_));
    if (options_.golden) return make_golden_values();
    TS_ASSIGN(const GoldenModel* const model, forms_.model_of(*golden_plan(engine_)));
    return check_samples_alone(model->canonical, options_.seed);
  }

  void note_kept_norms(const std::string& why) const {
    if (!options_.quiet)
      note(cat("norms stay kernels of their own; had they been folded: ", why.substr(0, why.find('\n'))));
  }

  std::vector<PlanCase> cases() const { return cases_of(options_.batches, options_.buckets); }

  LoadOptions this_batch() const {
    return {.exact = !options_.batches.empty() && options_.exact_batches,
            .shapes = shapes_,
            .states = options_.states,
            .ports = options_.ports,
            .family = options_.family,
            .graph = options_.graph == BuildOptions().graph ? std::string() : options_.graph,
            .sizes = options_.sizes};
  }

  LoadOptions in_bucket(LoadOptions how, const PlanCase& of) const {
    for (const RangedSize& length : options_.lengths) {
      for (const auto& [input, axis] : length.axes) how.shapes[input][axis] = of.sizes.at(length.name);
    }
    if (!options_.lengths.empty()) return how;
    for (const auto& [name, size] : of.sizes) how.sizes[name] = size;
    return how;
  }
  ModelAt model_at() const {
    return [this](const BucketSizes& sizes) { return source_->canonical(1, in_bucket(any_batch(), {.sizes = sizes})); };
  }

  // The model for one plan, with the weights that were refined.
  Result<Graph> graph_to_plan(const PlanCase& of) {
    TS_ASSIGN(Graph graph, source_->canonical(of.batch, in_bucket(this_batch(), of)));
    TS_TRY(carry_over(sampled_, refined_, graph));
    return graph;
  }

  // Shapes that are given whole have a batch of their own.
  int64_t golden_batch(int64_t largest) const {
    return shapes_give_batch(options_) ? largest : std::min(largest, options_.golden_samples);
  }

  Status choose_norms_of_plans() {
    lowering_.types.target = options_.target;
    const bool cuda = info(options_.target).device == DeviceKind::kCuda;
    if (options_.keep_norms && !cuda)
      return usage_error(
          cat("--keep-norms: norms are never folded for ", info(options_.target).name, "; leave it out"));
    // Weights that were refined have their norms' gains as they are.
    if (!cuda || options_.keep_norms || engine_.precision == kAuto || !refined_.layers.empty()) return {};
    TS_ASSIGN(FoldedNorms folded, norms_to_fold());
    const Stopwatch watch(t_.compile_s);
    const GraphsToPlan plans{.cases = cases(), .graph = [&](const PlanCase& of) { return graph_to_plan(of); }};
    TS_ASSIGN(NormChoice norms, choose_norms(plans, std::move(folded), lowering_));
    folds_ = std::move(norms.folded);
    why_kept_ = std::move(norms.why_kept);
    return {};
  }

  // In each case, where kernels of the target say so and the rows of the samples allow it.
  Result<FoldedNorms> norms_to_fold() {
    constexpr int64_t kSamples = 8;
    std::optional<RowOffsets> offsets;
    const Stopwatch watch(t_.import_s);
    FoldedNorms folded;
    for (const PlanCase& of : cases()) {
      TS_ASSIGN(const Graph graph, graph_to_plan(of));
      TS_ASSIGN(const std::set<std::string> any, foldable_norms(graph, lowering_.types, {}));
      if (any.empty()) continue;
      if (!offsets) {
        CalibrateOptions few = calibration();
        few.samples = std::min(few.samples, kSamples);
        if (ranges_given_) few.path.clear();
        TS_ASSIGN(const CalibrationSamples data, samples_of(sampled_, few));
        TS_ASSIGN(offsets, measure_row_offsets(sampled_, data.samples));
      }
      TS_ASSIGN(folded.at(of), foldable_norms(graph, lowering_.types, *offsets));
    }
    return folded;
  }

  // Whether plans of this bucket get golden values.
  bool has_values(const std::map<std::string, int64_t>& sizes) const {
    if (options_.golden_of == BuildOptions::GoldenOf::kAll) return true;
    return std::all_of(options_.buckets.begin(), options_.buckets.end(), [&](const auto& bucket) {
      const auto size = sizes.find(bucket.first);
      return size == sizes.end() || size->second == *std::min_element(bucket.second.begin(), bucket.second.end());
    });
  }

  // How the plan of this case is made, and what is known of it.
  PlanToMirror to_mirror(const PlanCase& of) {
    PlanToMirror plan{.of = of, .lowering = lowering_};
    folds_.apply(of, plan.lowering.types);
    plan.lowering.plan.sizes = of.sizes;
    if (plan.lowering.types.folded_norms.empty()) plan.report = on_samples_;
    return plan;
  }
  std::vector<PlanToMirror> plans_to_mirror() {
    std::vector<PlanToMirror> plans;
    for (const PlanCase& of : cases()) plans.push_back(to_mirror(of));
    return plans;
  }

  // Whether folded norms cost too much accuracy, before any plan is made with them: the golden plans of all forms are
  // run, and where one misses the gate its norms stay kernels; where it has none folded itself, those of the others do,
  // whose gains are in its weights. Either changes weights that all plans share: all are asked again.
  Status judge_folded_norms() {
    TS_TRY(measure_on_samples());
    std::set<std::pair<std::map<std::string, int64_t>, std::set<std::string>>> sound;
    for (const PlanCase& of : cases()) {
      const std::set<std::string> folded = folds_.at(of);
      if (folds_.none() || !has_values(of.sizes) || sound.contains({of.sizes, folded})) continue;
      std::vector<PlanToMirror> alike;
      for (const PlanToMirror& p : plans_to_mirror()) {
        if (p.of.sizes == of.sizes && p.lowering.types.folded_norms == folded) alike.push_back(p);
      }
      const Stopwatch watch(t_.golden_s);
      const Status status = forms_.judge(alike, lowering_.types.ranges);
      if (status.ok()) {
        sound.insert({of.sizes, folded});
        continue;
      }
      if (status.code() != Code::kVerifyFailed) return status;
      why_kept_.push_back(status.message());
      if (folded.empty()) folds_ = {};
      for (const PlanToMirror& p : alike) folds_.at(p.of).clear();
      // Larger buckets are not judged themselves: what their smallest says holds for them.
      for (const PlanCase& other : cases()) {
        if (!has_values(other.sizes)) folds_.at(other).clear();
      }
      forms_.forget();
      return judge_folded_norms();
    }
    return {};
  }

  // One plan per case, and the golden plans.
  Status make_plans() {
    ConstantPool pool(engine_.constants, &engine_.states);
    const std::vector<PlanCase> all = cases();
    Bar bar(options_.quiet, "importing, packing", 2 * (static_cast<int64_t>(all.size()) + 1));
    for (const PlanCase& of : all) {
      const std::string planned = of.name();
      const Activity planning("planning", planned);
      Graph graph;
      {
        const Stopwatch watch(t_.import_s);
        TS_ASSIGN(graph, graph_to_plan(of));
      }
      bar.advance();
      TS_TRY(make_plan_of(std::move(graph), of, pool));
      bar.advance();
      TS_TRY(check_cancelled());
    }
    const Stopwatch watch(t_.compile_s);
    TS_TRY(forms_.add_plans(engine_, pool, plans_to_mirror()));
    bar.advance();
    // A table that grew from plan to plan has one hash in the end; what was chosen by it stays, since entries are only
    // added.
    for (Plan& p : engine_.plans) {
      if (!p.tuning.empty()) p.tuning = tuning_hash(*lowering_.plan.tuning);
    }
    return {};
  }

  Status make_plan_of(Graph graph, const PlanCase& asked, ConstantPool& pool) {
    engine_.model = graph.name;
    LowerOptions lowering = to_mirror(asked).lowering;
    lowering.plan.batch = batch_of(graph);
    const PlanCase made{.batch = lowering.plan.batch, .sizes = asked.sizes};
    lowering.plan.name = cat(options_.graph == Plan().graph ? "" : options_.graph + ".", made.name());
    if (this_batch().exact && made.batch != asked.batch) {
      return usage_error(
          cat("--shape gives a batch of ", made.batch, ", --batch ", asked.batch, ": leave --batch out"));
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

  Result<GoldenModel> load_golden_model(const PlanCase& of) {
    const Stopwatch watch(t_.import_s);
    const LoadOptions how = in_bucket(any_batch(), of);
    GoldenModel model;
    TS_ASSIGN(model.written, source_->written(of.batch, how));
    if (!std::exchange(bf16_noted_, true)) note_bf16(model.written);
    TS_ASSIGN(model.canonical, source_->canonical(of.batch, how));
    model.prepared = model.canonical;
    model.refined = !refined_.layers.empty();
    TS_TRY(carry_over(sampled_, refined_, model.prepared));
    return model;
  }

  GoldenOptions golden_options() const {
    std::error_code none;
    // Images have one size, lengths have several.
    const bool unusable =
        ranges_given_ || (!options_.lengths.empty() && std::filesystem::is_directory(options_.calib_path, none));
    const std::string data = unusable ? std::string() : options_.calib_path;
    return {.seed = options_.seed,
            .inputs = options_.golden_inputs.empty() ? data : options_.golden_inputs,
            .preprocess = options_.preprocess,
            .min_cosine = engine_.precision == kAuto ? std::nullopt : options_.min_cosine,
            .random_scales = options_.calib_path.empty() && !ranges_.values.empty(),
            .shapes = {.front = !options_.buckets.empty(), .lengths = &engine_.lengths},
            .quiet = options_.quiet};
  }

  Status make_golden_values() {
    const Stopwatch watch(t_.golden_s);
    std::vector<ModelReport>& reports = built_.reports;
    std::vector<const Plan*> goldens = golden_plans(engine_);
    std::erase_if(goldens, [&](const Plan* golden) { return !has_values(golden->sizes); });
    TS_ASSIGN(engine_.golden, forms_.make_values(engine_, goldens, plans_to_mirror(), lowering_.types.ranges, reports));
    // Ranges of a file may be of these samples or of others: then nothing is said, and scales are judged as any others.
    const std::string data = ranges_given_ ? std::string() : options_.calib_path, inputs = golden_options().inputs;
    if (!ranges_given_ || inputs.empty()) {
      // A smaller bucket computes something else with the front of a sample.
      engine_.golden.within_amax = options_.buckets.empty() && !ranges_.values.empty() &&
                                   ranges_.method.kind == RangeMethod::kAmax && !data.empty() && inputs == data &&
                                   golden_samples(engine_, engine_.plans[0]).count <= ranges_.samples;
    }
    reports[0].validated.insert(reports[0].validated.begin(), validated_.begin(), validated_.end());
    const bool here = why_not_here(options_.target).empty();
    for (size_t i = 0; i < goldens.size(); ++i) {
      TS_ASSIGN(const GoldenModel* const model, forms_.model_of(*goldens[i]));
      const ModelGraphs graphs = model->graphs(lowering_.types.ranges);
      TS_ASSIGN(const PaddingReport padding, check_padding(engine_, *goldens[i], graphs, options_.seed, here));
      reports[i].padding = padding.mask;
    }
    if (!here) return {};
    std::vector<const Plan*> plans = runnable_plans(engine_);
    std::erase_if(plans, [&](const Plan* plan) { return !has_golden_values(engine_, *plan); });
    Bar checking(options_.quiet, "checking", static_cast<int64_t>(plans.size()));
    for (const Plan* plan : plans) {
      TS_ASSIGN(const VerifyReport checked, check_golden(engine_, *plan));
      if (!checked.ok) return Status(Code::kVerifyFailed, golden_failure(engine_, checked));
      checking.advance();
    }
    built_.ran_on_target = true;
    return {};
  }

  const BuildOptions& options_;
  std::map<std::string, Shape> shapes_ = options_.shapes;  // and those of take_whole
  Built built_;
  BuildTimes& t_ = built_.times;
  Engine& engine_ = built_.engine;
  LowerOptions lowering_;
  std::shared_ptr<ModelSource> source_;
  TuningTable tuning_;        // of a file, where one is read or made; lowering_ points at it then
  Graph sampled_, original_;  // with the batch of calibration: refined, and as it was
  Refined refined_;
  Ranges ranges_;
  bool calib_used_ = false, ranges_given_ = false;
  std::vector<std::string> validated_;  // how plans were held against the model
  ComparedConstants compared_;          // by them
  FoldedNorms folds_;
  std::vector<std::string> why_kept_;  // norms that could have been folded
  ModelReport on_samples_;             // of plans that fold none: only what was measured on samples
  bool bf16_noted_ = false;
  GoldenForms forms_{[this](const PlanCase& of) { return load_golden_model(of); },
                     [this](int64_t largest) { return golden_batch(largest); }, [this] { return golden_options(); }};
};

}  // namespace

Result<SparsityMethod> default_sparsity_method(const std::string& calib_path) {
  TS_ASSIGN(const bool ranges, is_ranges_file(calib_path));
  return calib_path.empty() || ranges ? SparsityMethod::kMagnitude : SparsityMethod::kHessian;
}

namespace {

BuildOptions options_of(const BuildOptions& options, const GraphOptions& g) {
  BuildOptions one = options;
  one.graphs.clear(), one.schedule.clear();
  one.graph = g.name;
  one.part = options.graphs.size() > 1;
  for (const auto& [input, shape] : g.shapes) one.shapes[input] = shape;
  for (const auto& [name, size] : g.sizes) one.sizes[name] = size;
  std::erase_if(one.buckets, [&](const auto& b) {
    return std::find(g.buckets.begin(), g.buckets.end(), b.first) == g.buckets.end();
  });
  if (const auto own = options.calib_of.find(g.name); own != options.calib_of.end()) one.calib_path = own->second;
  return one;
}

// Each rule of a recipe and each allowance names a layer of one graph at least.
Status check_rules_of_graphs(const BuildOptions& options, const std::shared_ptr<ModelSource>& source) {
  if (options.allow.empty() && (!options.recipe || options.recipe->rules.empty())) return {};
  std::vector<bool> rules(options.recipe ? options.recipe->rules.size() : 0), allowances(options.allow.size());
  for (const GraphOptions& g : options.graphs) {
    BuildOptions one = options_of(options, g);
    one.quiet = true;
    auto choices = Builder(one, source).choices();
    if (!choices.ok()) return choices.status().at(cat("graph '", g.name, "'"));
    for (size_t r = 0; r < rules.size(); ++r) rules[r] = rules[r] || choices->rule_used[r];
    for (size_t a = 0; a < allowances.size(); ++a) allowances[a] = allowances[a] || choices->allow_used[a];
  }
  for (size_t r = 0; r < rules.size(); ++r) {
    const Rule* const rule = &options.recipe->rules[r];
    if (!rules[r])
      return usage_error(cat("recipe, rule ", r + 1, ": no linear layer of any graph has the name '", rule->layer,
                             "' and the role '", rule->role, "'"));
  }
  for (size_t a = 0; a < allowances.size(); ++a) {
    if (!allowances[a])
      return usage_error(
          cat("--allow ", options.allow[a], ": no linear layer or attention of any graph has such a name"));
  }
  return {};
}

// Some graph has a plan for each number of a size, over states of the largest.
Status check_buckets(const BuildOptions& options) {
  for (const auto& [name, numbers] : options.buckets) {
    std::string known;
    bool found = false;
    for (const GraphOptions& g : options.graphs) {
      for (const std::string& own : g.buckets) {
        found = found || own == name;
        if (known.find("'" + own + "'") == std::string::npos) known += cat(known.empty() ? "'" : ", '", own, "'");
      }
    }
    if (!found)
      return usage_error(cat("size '", name, "' has ", numbers.size(), " numbers, and no graph has a plan for each",
                             known.empty() ? "" : cat("; sizes that may have several are ", known)));
  }
  const bool one = std::all_of(options.batches.begin(), options.batches.end(), [](int64_t b) { return b == 1; });
  if (!options.buckets.empty() && !one)
    return usage_error("plans of several lengths share states, of which a shorter one uses the front: batch 1 alone");
  return {};
}

// Each graph is built by itself, over one model that was read once, and then they are joined.
Result<Built> build_graphs(const BuildOptions& options, const std::shared_ptr<ModelSource>& source) {
  Built all;
  std::vector<Engine> engines;
  TS_TRY(check_rules_of_graphs(options, source));
  for (const GraphOptions& g : options.graphs) {
    const Activity building("graph", g.name);
    const BuildOptions one = options_of(options, g);
    auto built = Builder(one, source).run();
    if (!built.ok()) return built.status().at(cat("graph '", g.name, "'"));
    engines.push_back(std::move(built->engine));
    all.times += built->times;
    all.ran_on_target = built->ran_on_target;
    for (ModelReport& r : built->reports) all.reports.push_back(std::move(r));
  }
  TS_ASSIGN(all.engine, join_engines(std::move(engines)));
  all.engine.schedule = options.schedule;
  TS_TRY(check_engine(all.engine));
  return all;
}

}  // namespace

Result<Built> build_engine(const BuildOptions& asked) {
  TS_ASSIGN(const BuildOptions options, with_lengths(asked));
  TS_ASSIGN(const std::shared_ptr<ModelSource> source, open_source(options));
  BuildOptions all = options;
  if (options.graphs.empty()) {
    TS_ASSIGN(const FamilySchedule own, source->schedule(options.sizes));
    for (const std::string& name : own.graphs) {
      const auto lengths = own.buckets.find(name);
      all.graphs.push_back({.name = name, .shapes = {}, .sizes = {}, .buckets = {}});
      if (lengths != own.buckets.end()) all.graphs.back().buckets = lengths->second;
    }
    for (const auto& [graph, times] : own.runs) all.schedule.push_back({graph, times});
    if (!options.schedule.empty()) return usage_error("--schedule orders graphs, which --graph names: give some");
  }
  if (all.lengths.empty()) TS_TRY(check_buckets(all));
  if (all.graphs.empty()) return Builder(options, source).run();
  if (options.precision == kAuto) return usage_error("--precision auto chooses for one graph: leave --graph out");
  return build_graphs(all, source);
}

}  // namespace tessera
