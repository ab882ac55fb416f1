// SPDX-License-Identifier: Apache-2.0
#include "report/report.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "base/progress.h"
#include "cli/build_flags.h"
#include "cli/command.h"
#include "cli/measure_engine.h"
#include "cli/open_engine.h"
#include "cli/open_profile.h"
#include "cli/output.h"
#include "cli/report_file.h"

namespace tessera {
namespace {

constexpr size_t kMost = 16;  // entries: more belong into a comparison (compare.cc)

struct Options {
  std::vector<std::string> paths;
  std::string output, title, plan, rules, asked;
  int runs = 20;
  bool no_verify = false;
};

// An argument as it stands in the report, and the commands that make it.
Result<ReportEntry> open_entry(const Options& o, const std::string& path, const Rules& rules,
                               std::vector<std::string>& commands) {
  TS_ASSIGN(const bool engine_file, is_engine_file(path));
  if (!engine_file) {
    TS_ASSIGN(Profile profile, open_profile(path, rules, {}));
    if (profile.path.empty()) profile.path = path;
    return ReportEntry{
        .name = "", .profile = std::move(profile), .no_accuracy = "a profile holds no outputs to compare"};
  }
  TS_ASSIGN(const Engine engine, open_engine(path));
  TS_ASSIGN(const PlansOfAnswer plans, open_plans(path, engine, o.plan));
  commands.push_back(build_command_of(path, engine));
  TS_ASSIGN(ReportEntry entry, measure_engine(path, engine, plans, {.runs = o.runs, .verify = !o.no_verify}));
  note_other_plans(engine, plans, o.plan, entry.profile);
  return entry;
}

std::string command_of(const Options& o) {
  std::string line = "tessera report";
  for (const std::string& p : o.paths) line += " " + quoted(p);
  line += cat(" -o ", quoted(o.output));
  for (const auto& [flag, value] :
       {std::pair("--plan", o.plan), {"--title", o.title}, {"--rules", o.rules}, {"--asked", o.asked}}) {
    if (!value.empty()) line += cat(" ", flag, " ", quoted(value));
  }
  if (o.runs != Options().runs) line += cat(" --runs ", o.runs);
  return line + (o.no_verify ? " --no-verify" : "");
}

Status make(const Options& o, const Common& common) {
  TS_TRY(check_report_name(o.output));
  if (o.paths.size() > kMost)
    return usage_error(
        cat("a report holds at most ", kMost, " engines and profiles; tessera compare puts more beside each other"));
  std::error_code none;
  for (const std::string& p : o.paths) {
    if (std::filesystem::equivalent(p, o.output, none)) return usage_error(cat("-o would overwrite ", p));
  }
  TS_ASSIGN(const Rules rules, open_rules(o.rules));
  ReportInput input{
      .title = o.title, .date = today(), .program = "tessera " TS_VERSION, .entries = {}, .explained = {}};
  Progress progress("measuring", static_cast<int64_t>(o.paths.size()));
  for (const std::string& path : o.paths) {
    TS_ASSIGN(ReportEntry entry, open_entry(o, path, rules, input.commands));
    input.entries.push_back(std::move(entry));
    progress.advance();
  }
  progress.done();
  name_entries(input.entries);
  input.explained = explain_entries(input.entries, {.asked = o.asked});
  input.commands.push_back(command_of(o));
  TS_ASSIGN(const int64_t bytes, write_report(o.output, input));
  if (common.json) {
    Json names = Json::array();
    for (const ReportEntry& e : input.entries) names.push_back(e.name);
    print_json({{"file", o.output}, {"bytes", bytes}, {"entries", names}});
  } else {
    fmt::print("{}: {} on {}\n", o.output, megabytes(bytes), plural(static_cast<int64_t>(o.paths.size()), "profile"));
  }
  return {};
}

Runner add(OptionList& options, const Common& common) {
  auto o = std::make_shared<Options>();
  options
      .add("file", o->paths, "FILE",
           "engines, which are profiled here, and profiles of any tool; the first is what "
           "the others are compared with")
      .required = true;
  options.add("-o,--output", o->output, "FILE", "the report to write: .html or .md").required = true;
  options.add("--title", o->title, "TEXT", "of the report (default: what is compared)");
  options.add("--asked", o->asked, "PRECISION",
              "the precision that the profiles after the first were to have (default: as they say)");
  options.group("Engines");
  options.add("--plan", o->plan, "NAME", "which plan to profile (default: the schedule, else the first)");
  options.add("--runs", o->runs, "N", "runs that times are taken over, up to 1000000 (default: 20)").check =
      within(1, 1000000);
  options.add("--no-verify", o->no_verify, "do not hold the engines against their golden values and their model");
  options.group("Profiles of other tools");
  options.add("--rules", o->rules, "FILE", "rules that tell kernels by their names, before those of the program");
  return [o, &common] { return make(*o, common); };
}

}  // namespace

const Command report_command{
    "report",
    "write an HTML or Markdown report of engines and profiles",
    "One file that needs nothing else: summary, why it is not faster, where the time goes, kernels, precision of each "
    "layer, accuracy, latency, configuration and how to make it again. Engines are profiled on this machine and held "
    "against their golden values and their model; profiles are of tessera profile --json, trtexec, Nsight Systems or "
    "PyTorch. One of several files, or whose runs must be told: tessera profile FILE --runs N --beside FILE --json.",
    "  tessera report vit_fp16.tess vit_fp8.tess -o report.html\n"
    "  tessera report fp16.json nvfp4.json -o report.md --title 'ViT-B, FP16 and NVFP4'\n",
    "",
    true,
    add};

}  // namespace tessera
