// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>

#include "assemble/build_auto.h"
#include "base/log.h"
#include "cli/build_flags.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/plan_summary.h"
#include "plan/engine_file.h"
#include "runtime/executor.h"

namespace tessera {
namespace {

struct Options {
  std::string model, output;
  std::vector<std::string> batches;
  int64_t golden_samples = 2;
  uint64_t seed = 1;
  std::string golden_inputs;
  std::optional<double> min_cosine;
  std::string tuning;
  bool tune = false;
  BuildFlags flags;
  const OptionList* options = nullptr;
};

std::string golden_sentence(const Engine& engine, bool ran) {
  if (engine.golden.outputs.empty()) return "no golden values (--no-verify)";
  if (ran) return "golden values reproduced here";
  return "golden values stored; not run on its target: " + why_not_here(engine.target);
}

// Attention has a flag of its own: who asks for fewer than 16 bits hears that it is not meant by it.
std::string attention_sentence(const Engine& engine, const BuildOptions& options) {
  const Plan& plan = engine.plans[0];
  const auto type_of = [&](int tensor) { return plan.tensors[static_cast<size_t>(tensor)].desc.type; };
  const auto in_codes = [&](const PlanStep& s) { return type_of(s.in[0]).scaled(); };
  int64_t plain = 0;
  bool few_bits = false;
  std::string carrier;
  for (const PlanStep& s : plan.steps) {
    if (s.op == "attention" && !in_codes(s))
      ++plain, carrier = info(type_of(s.in[0]).element).bits == 16 ? "fp16" : "fp32";
    few_bits = few_bits || (s.op == "matmul" && s.in.size() > 1 && s.in[1] >= 0 && type_of(s.in[1]).scaled() &&
                            !s.asked.starts_with(kImported));
  }
  if (plain == 0 || !few_bits || !options.attention.empty() || (options.recipe && !options.recipe->attention.empty()))
    return "";
  return cat("attention stays ", carrier, " (", plural(plain, "layer"), "): --attention fp8 asks for fewer bits there");
}

// Attentions that nobody recognised: no flag reaches them, so they are counted.
std::string spelt_sentence(const Plan& plan) {
  const SpeltAttentions spelt = spelt_attentions(plan);
  if (spelt.softmaxes == 0) return "";
  return cat(plural(spelt.softmaxes, "softmax", "softmaxes"), spelt.softmaxes == 1 ? " is" : " are",
             " not recognised as attention: ",
             spelt.softmaxes == 1 ? "it and its products run" : "they and their products run", " op by op in ",
             spelt.type);
}

// Outputs of the quantized model beside those of the model as written.
Json quality_json(const ModelReport& report) {
  Json outputs = Json::array();
  for (const OutputQuality& q : report.outputs) {
    if (q.whole) {
      outputs.push_back({{"name", q.name}, {"same", q.whole->same}, {"of", q.whole->all}});
      continue;
    }
    outputs.push_back({{"name", q.name},
                       {"cosine_mean", q.closeness.cosine_mean},
                       {"cosine_worst", q.closeness.cosine_worst},
                       {"relative_l2", q.closeness.relative_l2}});
  }
  return outputs;
}

Status build(const Options& o, const Common& common) {
  TS_ASSIGN(std::vector<int64_t> batches, parse_batches(o.batches));
  for (const char* name : {"--golden-samples", "--seed", "--golden-inputs", "--min-cosine"}) {
    if (o.flags.no_verify && o.options->given(name) &&
        !(o.flags.precision == kAuto && name == std::string("--min-cosine")))
      return usage_error(cat(name, " is about golden values, which --no-verify leaves out: give one of the two"));
  }
  std::error_code none;
  const std::string path = o.output.empty() ? model_stem(o.model, o.flags.family) + ".tess" : o.output;
  if (o.flags.family.empty()) {
    if (std::filesystem::is_directory(o.model, none))
      return usage_error(cat(o.model, " is a folder; one with a checkpoint is built with --family NAME"));
    TS_ASSIGN(const bool engine_file, is_engine_file(o.model));
    if (engine_file) return usage_error(cat(o.model, " is an engine, already built; build takes an ONNX model"));
  }
  if (std::filesystem::equivalent(o.model, path, none))
    return usage_error(cat("the engine would overwrite the model ", path, ": give another -o"));
  if (std::filesystem::is_regular_file(path, none) && std::filesystem::file_size(path, none) > 0) {
    const auto was_engine =
        is_engine_file(path);  // calibration data, weights beside a model: whatever it is, it is not ours
    if (!was_engine.ok() && was_engine.status().code() != Code::kBadInput) return was_engine.status();
    if (!was_engine.ok() || !*was_engine)
      return usage_error(cat("-o ", path, ": is no engine and would be overwritten; give another name"));
  }
  if (const auto folder = std::filesystem::path(path).parent_path();
      !folder.empty() && !std::filesystem::is_directory(folder, none)) {
    return usage_error(cat("-o ", path, ": there is no folder ", folder.string(), "; make it first"));
  }
  TS_ASSIGN(BuildOptions options, build_options(o.flags, o.model, std::move(batches), common.quiet || common.json));
  options.golden_samples = o.golden_samples;
  options.seed = o.seed;
  options.golden_inputs = o.golden_inputs;
  options.min_cosine = o.min_cosine;
  options.tuning = o.tuning;
  options.tune = o.tune;
  if (!o.golden_inputs.empty() && o.options->given("--seed"))
    return usage_error("--seed draws golden inputs, --golden-inputs brings them: give one of the two");
  BuildTimes times;
  ModelReport quality;
  bool ran = false;
  AutoChoice chosen;
  TS_ASSIGN(const Engine engine, build_engine(options, &times, &ran, &quality, &chosen));
  const auto start = std::chrono::steady_clock::now();
  TS_TRY(write_engine(engine, path));
  const double write_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double seconds =
      times.import_s + times.refine_s + times.calibrate_s + times.tune_s + times.compile_s + times.golden_s + write_s;
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path));
  Json plans = Json::array(), layers = Json::array();
  for (const Plan* p : runnable_plans(engine))
    plans.push_back({{"name", p->name},
                     {"batch", p->batch},
                     {"steps", p->steps.size()},
                     {"arena_bytes", p->arena_bytes},
                     {"tuning", p->tuning}});
  const std::vector<PromiseGroup> groups = promise_groups(engine.plans[0]);
  for (const PromiseGroup& g : groups)
    layers.push_back({{"asked", g.asked}, {"stored", g.stored}, {"computed", g.computed}, {"layers", g.layers}});
  if (common.json) {
    Json automatic = Json::array();
    for (const AutoLayer& l : chosen.layers)
      automatic.push_back(
          {{"layer", l.layer.name}, {"precision", l.precision}, {"cost", l.cost}, {"bytes_saved", l.bytes_saved}});
    print_json({{"file", path},
                {"bytes", bytes},
                {"model", engine.model},
                {"precision", engine.precision},
                {"target", info(engine.target).name},
                {"calibration", engine.calibration},
                {"preprocess", engine.preprocess},
                {"plans", plans},
                {"layers", layers},
                {"softmaxes_not_in_attention", spelt_attentions(engine.plans[0]).softmaxes},
                {"auto", automatic},
                {"golden", golden_sentence(engine, ran)},
                {"golden_inputs", engine.golden.from},
                {"on_samples", quality.samples == 0 ? Json()
                                                    : Json({{"samples", quality.samples},
                                                            {"cosine_mean", quality.on_samples.cosine_mean},
                                                            {"cosine_worst", quality.on_samples.cosine_worst},
                                                            {"relative_l2", quality.on_samples.relative_l2}})},
                {"min_cosine", quality.outputs.empty() ? Json() : Json(quality.min_cosine)},
                {"outputs", quality_json(quality)},
                {"padding", quality.padding},
                {"warnings", quality.warnings},
                {"validated", quality.validated},
                {"ran_on_target", ran},
                {"seconds",
                 {{"import", times.import_s},
                  {"refine", times.refine_s},
                  {"calibrate", times.calibrate_s},
                  {"tune", times.tune_s},
                  {"compile", times.compile_s},
                  {"golden", times.golden_s},
                  {"write", write_s}}}});
    return {};
  }
  // Both are measured by CPU plans, which have no gate: what that changes is said.
  const bool gated = std::any_of(engine.plans[0].steps.begin(), engine.plans[0].steps.end(),
                                 [](const PlanStep& s) { return s.then.gated(); });
  const char* const as_run =
      gated ? " (by layers on the CPU, which round both halves of a gated MLP and their product; the engine does not)"
            : "";
  const auto say = [](size_t indent, const std::string& line) {
    fmt::print("{}\n", wrap(printable(line), indent, indent + 2));
  };
  const std::string how = engine.recipe.empty() ? engine.precision : cat("recipe ", engine.recipe);
  say(0, cat(path, ": ", engine.model, " in ", how, " for ", info(engine.target).name, ", ", megabytes(bytes)));
  const auto tuned = [](const Plan& p) -> std::string {
    if (!p.tuning.empty()) return cat(", tuned by table ", p.tuning);
    return info(p.arch).device == DeviceKind::kCuda ? ", kernels not chosen by measured times (--tune measures)" : "";
  };
  for (const Plan* p : runnable_plans(engine)) {
    say(2, cat("plan ", p->name, ": ", plural(static_cast<int64_t>(p->steps.size()), "step"), ", ",
               megabytes(p->arena_bytes), " of working memory", tuned(*p)));
    if (const std::string folded = say_folded_norms(*p); !folded.empty())
      say(4, folded + " (--keep-norms leaves them)");
  }
  for (const PromiseGroup& g : groups) {
    say(2, cat(plural(g.layers, "layer"), ": asked ", g.asked, ", stored ", g.stored, ", computed ", g.computed));
    // Layers that are not in the precision of the command line are few, and they are named.
    if (!g.asked.starts_with(engine.precision) && engine.recipe.empty() && engine.precision != "auto") say(4, g.names);
  }
  if (const std::string text = attention_sentence(engine, options); !text.empty()) say(2, text);
  if (const std::string text = spelt_sentence(engine.plans[0]); !text.empty()) say(2, text);
  if (!chosen.layers.empty()) {
    Table table({"layer", "chosen", ">1 - cosine alone", ">saves"});
    for (const AutoLayer& l : chosen.layers)
      table.add(
          {l.layer.name, l.precision, fmt::format("{:.1e}", l.cost), megabytes(static_cast<int64_t>(l.bytes_saved))});
    fmt::print("{}", table.text());
    say(2, cat("weights of these layers: ", megabytes(static_cast<int64_t>(chosen.bytes)), ", in ", chosen.base, " ",
               megabytes(static_cast<int64_t>(chosen.bytes_of_carrier))));
    if (gated) say(2, cat("cosines of the choice", as_run));
  }
  if (!engine.calibration.empty()) say(2, "scales: " + engine.calibration);
  if (!engine.preprocess.empty()) say(2, "images: " + engine.preprocess);
  for (const std::string& a : engine.allowed) say(2, "allowed: " + a);
  if (quality.samples > 0) {
    say(2, fmt::format("on {} of --calib: mean cosine {:.5f} of the quantized model with the model in fp32, at least "
                       "{:.6g} wanted; worst sample {:.5f}, relative L2 {:.1e}{}",
                       plural(quality.samples, "sample"), quality.on_samples.cosine_mean, quality.min_cosine,
                       quality.on_samples.cosine_worst, quality.on_samples.relative_l2, as_run));
  }
  for (const OutputQuality& q : quality.outputs) {
    if (q.whole) {
      say(2, fmt::format(
                 "on the golden inputs ({}): output '{}': {} of {} whole numbers are those of the model as written",
                 engine.golden.from, q.name, q.whole->same, q.whole->all));
      continue;
    }
    say(2, fmt::format("on the golden inputs ({}): mean cosine {:.5f} of output '{}' of the quantized model with the "
                       "model as written, at least {:.6g} wanted",
                       engine.golden.from, q.closeness.cosine_mean, q.name, quality.min_cosine));
  }
  if (!quality.padding.empty())
    say(2, cat("padding: what '", quality.padding, "' hides does not change the outputs (other numbers stood there)"));
  constexpr size_t kColumn = 18;  // "tessera: warning: " stands before it
  for (const std::string& w : quality.warnings) warn(wrap(printable(w), kColumn, 2).substr(kColumn));
  say(2, golden_sentence(engine, ran));
  say(2, fmt::format("{:.1f} s: import {:.1f}, refine {:.1f}, calibrate {:.1f}, tune {:.1f}, compile {:.1f}, golden "
                     "values {:.1f}, write {:.1f}",
                     seconds, times.import_s, times.refine_s, times.calibrate_s, times.tune_s, times.compile_s,
                     times.golden_s, write_s));
  return {};
}

Runner add(OptionList& options, const Common& common) {
  auto o = std::make_shared<Options>();
  options.add("model", o->model, "MODEL", "an ONNX model, or with --family a folder").required = true;
  options.group("Engine");
  options.add("-o,--output", o->output, "FILE", "the engine file to write (default: MODEL.tess in the working folder)");
  options.add("--batch", o->batches, "N,...",
              "batch sizes, one plan each, up to 1048576: 1,8,64 (default: the model's, or 1)");
  add_build_flags(options, o->flags);
  options.group("Golden values");
  options
      .add("--golden-samples", o->golden_samples, "N",
           "samples that golden values are stored for, 1 to 64, at most the largest batch (default: 2)")
      .check = within(1, 64);
  options.add("--seed", o->seed, "N", "of the golden inputs (default: 1)").check = not_negative();
  options.add("--golden-inputs", o->golden_inputs, "FILE",
              "npz or folder of images that golden inputs are taken from (default: --calib, else random numbers)");
  options
      .add("--min-cosine", o->min_cosine, "C",
           "what --precision auto reaches over samples (default: 0.999); else "
           "fail where the quantized model has a lower mean cosine, on the golden inputs with the model as written or "
           "on up to 32 samples of --calib with the model in fp32 (default: by type: "
           "f32 0.9999, f16 0.999, bf16 0.99, fp8 and int8 0.95, fp4 0.8, 2:4 0.5)")
      .check = is_cosine();
  options.group("Tuning");
  options.add(
      "--tune", o->tune,
      "time every kernel and tile shape that may run a layer on the GPU here, keep the times in --tuning's file, "
      "and take the fastest; what the file holds is not timed again");
  options.add(
      "--tuning", o->tuning, "FILE",
      cat("table of times that kernels are chosen by, made by --tune; none: by their order (default: the one that "
          "comes with the program; with --tune: ",
          kDefaultTuning, ")"));
  o->options = &options;
  return [o, &common] { return build(*o, common); };
}

}  // namespace

const Command build_command{
    "build",
    "compile an ONNX model into an engine file",
    "Imports the model, recognises its layers, gives every value its type, chooses a kernel per layer, packs the "
    "weights for it and plans the memory. Requested "
    "precision is realised precision: a layer that cannot run as asked fails the build, by name and with each kernel's "
    "reason, unless --allow accepts another "
    "precision for it. The engine is then run on its golden values where its target is here, and a model with an "
    "attention mask "
    "once more with other numbers at what the mask hides, which must not show. The same model and "
    "options give the same bytes.",
    "  tessera build vit.onnx -o vit.tess --precision fp16 --batch 1,8\n"
    "  tessera build vit.onnx --precision fp8 --calib images.npz --target sm90\n"
    "  tessera build vit.onnx --precision fp8 --calib images.npz --allow 'blocks.*.mlp.fc2=fp16'\n"
    "  tessera build --family vit vit-nvfp4/ -o vit.tess\n"
    "  tessera build vit.onnx --precision fp8 --target sm90 --batch 64 --tune\n",
    "Files:\n"
    "  MODEL.onnx  weights inside or in files beside it; the batch may be open, other axes with --shape\n"
    "  FOLDER      with --family: config.json and *.safetensors; plain, ModelOpt or compressed-tensors\n"
    "  --calib     an npz, a folder of JPEG and PNG images (with --preprocess), or the ranges.json that\n"
    "              tessera calibrate wrote, told apart by content\n"
    "  --tuning    JSON of tessera build --tune: times per problem on one GPU (docs/tuning.md)\n"
    "  *.npz       numpy arrays, one per input of the model, named like it: [samples, ...]\n"
    "  *.tess      the engine; written whole or not at all\n",
    true,
    add};

}  // namespace tessera
