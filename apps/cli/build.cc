// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "cli/build_flags.h"
#include "cli/command.h"
#include "cli/layers.h"
#include "cli/output.h"
#include "plan/engine_file.h"
#include "runtime/executor.h"

namespace tessera {
namespace {

struct Options {
  std::string model, output;
  std::vector<int64_t> batches;
  int64_t golden_samples = 2;
  uint64_t seed = 1;
  BuildFlags flags;
};

std::string golden_sentence(const Engine& engine, bool ran) {
  if (engine.golden.outputs.empty()) return "no golden values (--no-verify)";
  if (ran) return "golden values reproduced here";
  return "golden values stored; not run on its target: " + why_not_here(engine.target);
}

Status build(const Options& o, const Common& common) {
  const std::string path = o.output.empty() ? std::filesystem::path(o.model).stem().string() + ".tess" : o.output;
  std::error_code none;
  if (std::filesystem::equivalent(o.model, path, none)) return usage_error(cat("the engine would overwrite the model ", path, ": give another -o"));
  if (const auto folder = std::filesystem::path(path).parent_path(); !folder.empty() && !std::filesystem::is_directory(folder, none)) {
    return usage_error(cat("-o ", path, ": there is no folder ", folder.string()));
  }
  TS_ASSIGN(BuildOptions options, build_options(o.flags, o.model, o.batches, common.quiet || common.json));
  options.golden_samples = o.golden_samples;
  options.seed = o.seed;
  BuildTimes times;
  bool ran = false;
  TS_ASSIGN(const Engine engine, build_engine(options, &times, &ran));
  TS_TRY(write_engine(engine, path));
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path));
  Json plans = Json::array(), layers = Json::array();
  for (const Plan* p : runnable_plans(engine))
    plans.push_back(
        {{"name", p->name}, {"batch", p->batch}, {"steps", p->steps.size()}, {"arena_bytes", p->arena_bytes}});
  const std::vector<PromiseGroup> groups = promise_groups(engine.plans[0]);
  for (const PromiseGroup& g : groups)
    layers.push_back({{"asked", g.asked}, {"stored", g.stored}, {"computed", g.computed}, {"layers", g.layers}});
  if (common.json) {
    print_json({{"file", path},
                {"bytes", bytes},
                {"model", engine.model},
                {"precision", engine.precision},
                {"target", info(engine.target).name},
                {"calibration", engine.calibration},
                {"plans", plans},
                {"layers", layers},
                {"golden", golden_sentence(engine, ran)},
                {"ran_on_target", ran},
                {"seconds",
                 {{"import", times.import_s},
                  {"calibrate", times.calibrate_s},
                  {"compile", times.compile_s},
                  {"golden", times.golden_s}}}});
    return {};
  }
  fmt::print("{}: {} in {} for {}, {}\n", path, printable(engine.model), engine.precision, info(engine.target).name,
             megabytes(bytes));
  for (const Plan* p : runnable_plans(engine)) {
    fmt::print("  plan {}: {}, {} of working memory\n", p->name, plural(static_cast<int64_t>(p->steps.size()), "step"),
               megabytes(p->arena_bytes));
  }
  for (const PromiseGroup& g : groups) {
    fmt::print("  {}: asked {}, stored {}, computed {}\n", plural(g.layers, "layer"), g.asked, g.stored, g.computed);
    // Layers that are not in the precision of the command line are few, and they are named.
    if (g.asked != engine.precision) fmt::print("    kept: {}\n", printable(g.names));
  }
  if (!engine.calibration.empty()) fmt::print("  scales: {}\n", printable(engine.calibration));
  for (const std::string& a : engine.allowed) fmt::print("  allowed: {}\n", printable(a));
  fmt::print("  {}\n", golden_sentence(engine, ran));
  fmt::print("  {:.1f} s: import {:.1f}, calibrate {:.1f}, compile {:.1f}, golden {:.1f}\n",
             times.import_s + times.calibrate_s + times.compile_s + times.golden_s, times.import_s, times.calibrate_s,
             times.compile_s, times.golden_s);
  return {};
}

Runner add(CLI::App& app, const Common& common) {
  auto o = std::make_shared<Options>();
  app.add_option("model", o->model, "an ONNX model")->type_name("FILE")->required();
  app.add_option("-o,--output", o->output, "the engine file to write (default: MODEL.tess in the working folder)")
      ->type_name("FILE");
  app.add_option("--batch", o->batches, "batch sizes, one plan each: 1,8,64 (default: the model's, or 1)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(within(1, 1 << 20))
      ->type_name("N");
  add_build_flags(app, o->flags);
  app.add_option("--golden-samples", o->golden_samples, "samples that golden values are stored for (default: 2)")
      ->check(within(1, 64))
      ->type_name("N");
  app.add_option("--seed", o->seed, "of the golden inputs (default: 1)")->type_name("N");
  return [o, &common] { return build(*o, common); };
}

}  // namespace

const Command build_command{
    "build", "compile an ONNX model into an engine file",
    "  tessera build vit.onnx -o vit.tess --precision fp16 --batch 1,8\n"
    "  tessera build vit.onnx --precision fp8 --calib images.npz --target sm90\n"
    "  tessera build vit.onnx --precision fp8 --calib images.npz --allow 'blocks.*.mlp.fc2=fp16'\n",
    true, add};

}  // namespace tessera
