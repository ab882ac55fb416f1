// SPDX-License-Identifier: Apache-2.0
#include "explain/explain.h"

#include <fmt/format.h>

#include <array>
#include <memory>

#include "cli/build_flags.h"
#include "cli/command.h"
#include "cli/explain_tables.h"
#include "cli/open_profile.h"
#include "explain/rates.h"

namespace tessera {
namespace {

constexpr size_t kMost = 3;  // A, B, C

struct Options {
  std::array<std::string, kMost> paths;
  std::array<ReadOptions, kMost> read;
  std::string rules, asked, plan;
  bool all = false;
};

Status check_options(const Options& o, const Common& common) {
  if (o.all && common.json) return usage_error("--json holds every layer: leave --all out");
  if (!o.asked.empty() && multiplied_in(o.asked).empty())
    return usage_error(
        cat("--asked ", o.asked,
            ": is no known precision; accepted are fp32, tf32, fp16, bf16, fp8, int8, fp4, and names of ",
            "tessera build --precision"));
  for (size_t i = 0; i < kMost; ++i) {
    const char letter = "abc"[i];
    if (!o.paths[i].empty()) continue;
    if (o.read[i].runs > 0) return usage_error(cat("--runs-", letter, ": there is no profile ", "ABC"[i]));
    if (!o.read[i].beside.empty()) return usage_error(cat("--beside-", letter, ": there is no profile ", "ABC"[i]));
  }
  return {};
}

Status run_explain(const Options& o, const Common& common) {
  TS_TRY(check_options(o, common));
  TS_ASSIGN(const Rules rules, open_rules(o.rules));
  std::vector<Profile> profiles;
  bool engines = false;
  for (size_t i = 0; i < kMost && !o.paths[i].empty(); ++i) {
    const auto engine = is_engine_file(o.paths[i]);
    engines = engines || (engine.ok() && *engine);
  }
  if (!o.plan.empty() && !engines) return usage_error(cat("--plan ", o.plan, " is of engines: no engine is given"));
  for (size_t i = 0; i < kMost && !o.paths[i].empty(); ++i) {
    TS_ASSIGN(Profile p, open_profile(o.paths[i], rules, o.read[i], o.plan));
    if (p.path.empty()) p.path = o.paths[i];
    profiles.push_back(std::move(p));
  }
  const ExplainOptions options{.asked = o.asked};
  const Explanation e = profiles.size() == 1   ? explain(profiles[0], options)
                        : profiles.size() == 2 ? explain(profiles[0], profiles[1], options)
                                               : explain(profiles[0], profiles[1], profiles[2], options);
  if (common.json) {
    fmt::print("{}\n", explanation_json(e));
  } else {
    print_explanation(e, o.all);
  }
  return {};
}

Runner add(OptionList& options, const Common& common) {
  auto o = std::make_shared<Options>();
  options.add("a", o->paths[0], "PROFILE", "the profile before, or the only one: a file of a profiler, or an engine")
      .required = true;
  options.add("b", o->paths[1], "PROFILE", "the profile after: what is explained");
  options.add("c", o->paths[2], "PROFILE", "made after a recommendation was applied: predicted against measured");
  options.add("--asked", o->asked, "PRECISION",
              "the precision that B was to have (default: as the profile says, else the lowest that 10 % of the GEMM "
              "time has)");
  options.add("--plan", o->plan, "NAME",
              "of engines: the plan that is profiled (default: the schedule, else the first)");
  options.add("--all", o->all, "show every layer and fallback (default: 10)");
  options.group("Profiles of other tools");
  options.add("--rules", o->rules, "FILE",
              "rules that tell kernels by their names, before those of the program (docs/foreign-profiles.md)");
  for (size_t i = 0; i < kMost; ++i) {
    const std::string letter(1, "abc"[i]);
    options
        .add("--runs-" + letter, o->read[i].runs, "N",
             cat("runs of the model that profile ", "ABC"[i], " holds (default: as the file says, else 1)"))
        .check = within(1, 1 << 30);
    options.add("--beside-" + letter, o->read[i].beside, "FILE",
                cat("a further file of profile ", "ABC"[i], " (trtexec: layer information, times); repeatable"));
  }
  return [o, &common] { return run_explain(*o, common); };
}

}  // namespace

const Command explain_command{
    "explain",
    "say why a model is not as much faster as its precision promises",
    "Compares two profiles: the speedup on kernel time, where the time went by class, which share of the GEMMs has "
    "which precision (by time, by flops and by bytes, never one for another), kernels that fell back to a higher "
    "precision, the speedup that would be reached if one limit after the other fell, with its arithmetic, and what to "
    "do, ranked by what it saves. Profiles are of tessera profile --json, of trtexec (--exportProfile), Nsight Systems "
    "(exported SQLite) or PyTorch (profiler trace); an engine file is profiled here. One profile alone gives its "
    "classes, coverage and fallbacks; a "
    "third one, made after a recommendation was applied, checks the prediction.",
    "  tessera explain vit_fp16.json vit_nvfp4.json\n"
    "  tessera explain vit_fp16.tess vit_fp8.tess --plan batch64\n"
    "  tessera explain fp16.sqlite nvfp4.sqlite --runs-a 100 --runs-b 100 --asked nvfp4\n"
    "  tessera explain before.json after.json again.json\n"
    "  tessera explain trace.json.gz --json | jq '.fallbacks'\n",
    "",
    true,
    add};

}  // namespace tessera
