// SPDX-License-Identifier: Apache-2.0
#include "assemble/tuning.h"

#include <filesystem>

#include "archs/cuda/device_memory.h"
#include "base/log.h"
#include "op/op.h"
#include "ops/ops.h"
#include "runtime/executor.h"
#include "tune/tune.h"
#include "tune/tune_in_plan.h"

namespace tessera {
namespace {

std::string tuning_path(const BuildOptions& options) {
  return options.tuning.empty() ? kDefaultTuning : options.tuning;
}

// The file's table, or an empty one for the GPU here.
Status open_for_tuning(const BuildOptions& options, TuningTable& own) {
  const Arch target = options.target;
  if (const std::string why = why_not_here(target); !why.empty()) {
    return machine_error(cat("--tune times kernels on the target, ", info(target).name, ", which is not here: ", why,
                             "; without it, kernels are chosen by the committed table"));
  }
  const std::string gpu = device_name(0), path = tuning_path(options);
  own = {.gpu = gpu, .arch = target, .entries = {}};
  std::error_code none;
  if (const auto folder = std::filesystem::path(path).parent_path();
      !folder.empty() && !std::filesystem::is_directory(folder, none))
    return usage_error(cat("--tuning ", path, ": there is no folder ", folder.string(), "; make it first"));
  if (!std::filesystem::exists(path, none)) return {};
  TS_ASSIGN(own, read_tuning(path));
  if (own.gpu == gpu && own.arch == target) return {};
  return bad_input(cat(path, ": holds times of ", own.gpu, " (", info(own.arch).name, "), the GPU here is ", gpu,
                       "; give another file with --tuning"));
}

// A table of another program's kernels would choose nothing, without a word.
void warn_of_unknown_kernels(const std::string& path, const TuningTable& table) {
  int64_t unknown = 0, all = 0;
  std::string example;
  for (const auto& [key, times] : table.entries) {
    for (const TunedTime& t : times) {
      ++all;
      if (find_variant(t.variant) != nullptr) continue;
      if (unknown++ == 0) example = kernel_name(t.variant, t.config);
    }
  }
  if (unknown == 0) return;
  warn(cat(path, ": ", unknown, " of its ", all, " times are of kernels that this program does not have, such as '",
           example.substr(0, 80), "': they are passed over"));
}

}  // namespace

void warn_of_unknown_tiles(const Plan& plan, const TuningTable& table) {
  int64_t unknown = 0;
  std::string example;
  for (const TunedProblem& p : problems_to_tune(plan)) {
    const std::vector<TunedTime>* times = table.find(p.key);
    for (const TunedTime& t : times != nullptr ? *times : std::vector<TunedTime>()) {
      if (find_candidate(p.all, t) != nullptr || find_variant(t.variant) == nullptr) continue;
      if (unknown++ == 0) example = cat(kernel_name(t.variant, t.config).substr(0, 80), "' for layer ", p.layers[0]);
    }
  }
  if (unknown == 0) return;
  warn(cat("the tuning table has ", unknown, unknown == 1 ? " time" : " times", " for plan ", plan.name,
           " of kernels that do not run its layers with such a tile, such as '", example, ": they are passed over"));
}

Result<const TuningTable*> load_tuning(const BuildOptions& options, TuningTable& own) {
  const Arch target = options.target;
  if (info(target).device != DeviceKind::kCuda) {
    if (!options.tune && options.tuning.empty()) return static_cast<const TuningTable*>(nullptr);
    return usage_error(cat(options.tune ? "--tune" : "--tuning", " is about kernels of GPUs; the target is ",
                           info(target).name, ": leave it out"));
  }
  if (options.tuning == "none") {
    if (!options.tune) return static_cast<const TuningTable*>(nullptr);
    return usage_error("--tune keeps its times in a file: --tuning none leaves no place for them");
  }
  if (options.tune) {
    TS_TRY(open_for_tuning(options, own));
    return &own;
  }
  if (options.tuning.empty()) return default_tuning(target);
  TS_ASSIGN(own, read_tuning(options.tuning));
  if (own.arch != target)
    return bad_input(
        cat(options.tuning, ": holds times of ", info(own.arch).name, ", the target is ", info(target).name));
  warn_of_unknown_kernels(options.tuning, own);
  return &own;
}

// The plans that are timed keep states as the engine's own do: in place, not as the caller's ports.
Status tune_graph(const Graph& graph, const LowerOptions& lowering, const BuildOptions& options, TuningTable& table) {
  const std::string path = tuning_path(options);
  {
    std::vector<EngineConstant> passing;  // weights packed for this look at the plan go with it
    std::vector<EngineState> states;
    ConstantPool pool(passing, &states);
    TS_ASSIGN(const Plan plan, lower(graph, lowering, pool));
    const auto report = tune(plan, {.time = time_on_device(), .quiet = options.quiet}, table);
    TS_TRY(write_tuning(table, path));  // what was measured before an error, too
    TS_TRY(report.status());
    for (const std::string& left : report->left_out) warn(cat("tuning: ", left));
    note(cat("tuning plan ", plan.name, ": ", report->problems, " problems with more than one candidate, ",
             report->measured, " candidates timed now; times are in ", path));
  }
  Engine engine;  // by those times
  engine.target = options.target;
  ConstantPool pool(engine.constants, &engine.states);
  TS_ASSIGN(Plan plan, lower(graph, lowering, pool));
  engine.plans.push_back(std::move(plan));
  const auto timed = tune_in_plan(engine.plans[0], time_plan_on_device(engine), options.quiet, table);
  TS_TRY(write_tuning(table, path));
  TS_TRY(timed.status());
  note(cat("tuning plan ", engine.plans[0].name, ": candidates of ", *timed, " problems timed in the plan"));
  return {};
}

}  // namespace tessera
