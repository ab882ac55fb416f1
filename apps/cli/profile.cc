// SPDX-License-Identifier: Apache-2.0
#include "profile/profile_engine.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/build_flags.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/open_engine.h"
#include "cli/open_profile.h"
#include "cli/output.h"
#include "cli/profile_tables.h"
#include "io/atomic_file.h"
#include "profile/predict.h"
#include "traces/chrome_trace.h"

namespace tessera {
namespace {

struct Options {
  std::string engine, plan, trace, chip, ceilings, rules;
  std::vector<std::string> beside;
  int runs = 20, warmup = kOwnWarmup;
  bool intensity = false, all = false;
  const OptionList* options = nullptr;
};

// Before anything is measured.
Status check_trace_file(const std::string& path) {
  std::error_code none;
  const auto folder = std::filesystem::path(path).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder, none))
    return usage_error(cat("--trace ", path, ": there is no folder ", folder.string(), "; make it first"));
  if (std::filesystem::is_directory(path, none))
    return usage_error(cat("--trace ", path, ": is a folder; name a file in it"));
  const auto was_engine = is_engine_file(path);
  return was_engine.ok() && *was_engine ? usage_error(cat("--trace would overwrite the engine ", path)) : Status();
}

Status check(const Options& o, const Common& common) {
  if (!o.ceilings.empty() && o.ceilings != "again" && o.ceilings != "none")
    return usage_error(cat("--ceilings takes again or none, not '", o.ceilings, "'"));
  if (common.json && (o.all || o.intensity))
    return usage_error(
        cat("--json holds every layer with its flops and bytes: leave ", o.all ? "--all" : "--intensity", " out"));
  if (!o.chip.empty() && !o.trace.empty())
    return usage_error("--trace writes a timeline that was measured, and --chip only predicts: leave one out");
  if (!o.chip.empty() && !o.ceilings.empty())
    return usage_error("--ceilings is about this machine, and --chip about another: leave one out");
  return o.trace.empty() ? Status() : check_trace_file(o.trace);
}

Result<Profile> make_profile(const Options& o, const Engine& engine, const PlansOfAnswer& plans) {
  if (!o.chip.empty()) {
    TS_ASSIGN(const Chip* const chip, pick_chip(o.chip));
    return predict_engine(engine, plans, *chip, o.engine);
  }
  if (const Status here = check_runs_here(engine); !here.ok())
    return Status(here.code(), here.message() + "; --chip NAME predicts its times from a chip's data");
  return profile_engine(engine, plans,
                        {.runs = o.runs,
                         .warmup = o.warmup,
                         .ceilings = o.ceilings == "again"  ? CeilingsUse::kAgain
                                     : o.ceilings == "none" ? CeilingsUse::kNone
                                                            : CeilingsUse::kCached,
                         .path = o.engine,
                         .time_schedule = timer_of_policy(engine)});
}

// Of another tool, or of this command: a file that is no engine, and that a reader of profiles knows.
bool is_foreign(const std::string& path) {
  const auto engine = is_engine_file(path);
  if (!engine.ok() || *engine) return false;
  const auto kind = kind_of_profile(path);
  return kind.ok() && *kind != ProfileKind::kNone;
}

// What others measured, as a profile of this program: report, compare and explain read it without further options.
Status convert(const Options& o, const Common& common) {
  for (const char* name : {"--plan", "--warmup", "--chip", "--ceilings", "--trace", "--intensity"}) {
    if (o.options->given(name))
      return usage_error(cat(name, " is for engines, and ", o.engine, " is a profile already: leave it out"));
  }
  if (common.json && o.all) return usage_error("--json holds every layer: leave --all out");
  TS_ASSIGN(const Rules rules, open_rules(o.rules));
  const ReadOptions read{.runs = o.options->given("--runs") ? o.runs : 0, .beside = o.beside};
  TS_ASSIGN(const Profile p, open_profile(o.engine, rules, read));
  if (common.json) {
    fmt::print("{}\n", profile_json(p));
    return {};
  }
  print_profile_summary(p);
  print_profile_tables(p, o.all);
  return {};
}

Status profile(const Options& o, const Common& common) {
  if (is_foreign(o.engine)) return convert(o, common);
  const bool named_so = o.engine.ends_with(".json") || o.engine.ends_with(".gz") || o.engine.ends_with(".sqlite");
  if (const auto engine = is_engine_file(o.engine); named_so && engine.ok() && !*engine) {
    const auto read = read_profile(o.engine, {}, {});
    if (!read.ok()) return Status(read.status().code(), read.status().message() + ", or an engine of tessera build");
  }
  for (const char* name : {"--rules", "--beside"}) {
    if (o.options->given(name))
      return usage_error(cat(name, " is for profiles of other tools, and ", o.engine, " is none: leave it out"));
  }
  TS_TRY(check(o, common));
  TS_ASSIGN(const Engine engine, open_engine(o.engine));
  TS_ASSIGN(const PlansOfAnswer plans, open_plans(o.engine, engine, o.plan));
  TS_ASSIGN(Profile p, make_profile(o, engine, plans));
  note_other_plans(engine, plans, o.plan, p);
  if (!o.trace.empty()) {
    TS_ASSIGN(const std::string trace, chrome_trace(p));
    TS_TRY(write_file(o.trace, trace));
  }
  if (common.json) {
    fmt::print("{}\n", profile_json(p));
    return {};
  }
  print_profile_summary(p);
  print_profile_tables(p, o.all);
  if (o.intensity) print_intensity(p, o.all);
  if (!o.trace.empty())
    fmt::print("\nwritten {}: open it in Perfetto (ui.perfetto.dev) or chrome://tracing\n", o.trace);
  return {};
}

Runner add(OptionList& options, const Common& common) {
  auto o = std::make_shared<Options>();
  o->options = &options;
  options.add("engine", o->engine, "FILE", "an engine file, or a profile of another tool, which becomes one of Tessera")
      .required = true;
  options.add("--plan", o->plan, "NAME",
              "the plan to profile (default: the whole schedule of an engine that has one, else the first)");
  options
      .add("--runs", o->runs, "N",
           "timed runs, up to 1000000 (default: 20); of another tool's profile: runs that it holds (default: as it "
           "says, else 1)")
      .check = within(1, 1000000);
  options
      .add("--warmup", o->warmup, "N",
           "runs before the first that counts, up to 1000000 (default: 1 on a CPU, 20 on a GPU)")
      .check = within(0, 1000000);
  options.add("--intensity", o->intensity, "also flops, bytes and flop/byte of each layer beside the machine's ridge");
  options.add("--chip", o->chip, "NAME", "predict the times on this chip from its data; nothing is run");
  options.add("--all", o->all, "every layer (default: the ten slowest)");
  options.add("--trace", o->trace, "FILE", "write the timeline of a run, for Perfetto and chrome://tracing");
  options.add("--ceilings", o->ceilings, "HOW",
              "what this machine can do: again measures it anew, none leaves it out (default: measured once and kept)");
  options.group("Profiles of other tools");
  options.add("--beside", o->beside, "FILE",
              "a further file of the profile (trtexec: layer information, times); repeatable");
  options.add("--rules", o->rules, "FILE",
              "rules that tell kernels by their names, before those of the program (docs/foreign-profiles.md)");
  return [o, &common] { return profile(*o, common); };
}

}  // namespace

const Command profile_command{
    "profile",
    "show where the time of an engine goes",
    "Times whole runs of a plan on seeded random inputs, then every step inside such runs, and shows the latency, the "
    "kernels and the slowest layers, each with the bandwidth and the rate that it reaches and which of the machine's "
    "ceilings bounds it. On a GPU kernels are timed by CUPTI inside the CUDA graph; gaps, overlap and the rest up to "
    "the graph's time are told apart. Of an engine with a schedule (a policy) every graph is profiled and counts as "
    "often as it runs. For an engine whose target is not here, --chip predicts from the chip's data. "
    "A profile of trtexec, PyTorch or Nsight Systems, with --runs, --beside and --rules, becomes the same tables, and "
    "with --json a file that report, compare and explain read.",
    "  tessera profile vit.tess\n"
    "  tessera profile vit.tess --plan batch64 --all --trace vit.trace.json\n"
    "  tessera profile vit.tess --chip h200 --intensity\n"
    "  tessera profile vit.tess --json > vit.profile.json\n"
    "  tessera profile profile.json --beside layers.json --beside times.json --json > trt.json\n",
    "Files:\n"
    "  $XDG_CACHE_HOME/tessera/ceilings-*.json (else ~/.cache/tessera): what this machine can do\n"
    "Environment:\n"
    "  TESSERA_CUPTI   libcupti to open, where the loader does not find it\n",
    true,
    add};

}  // namespace tessera
