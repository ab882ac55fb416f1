// SPDX-License-Identifier: Apache-2.0
#include "report/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "base/progress.h"
#include "cli/build_file.h"
#include "cli/build_flags.h"
#include "cli/command.h"
#include "cli/compare_rows.h"
#include "cli/open_engine.h"
#include "cli/open_profile.h"
#include "cli/output.h"
#include "cli/report_file.h"
#include "cli/scratch_folder.h"

namespace tessera {
namespace {

constexpr size_t kChangedSteps = 12;  // that the table of a version shows

struct Options {
  std::vector<std::string> paths, batches;
  std::string precisions, output, rules;
  int runs = 20;
  bool sparse = false;
  BuildFlags flags;
  const OptionList* options = nullptr;
};

bool is_report(const std::string& path) { return path.ends_with(".html") || path.ends_with(".md"); }

Status refuse_ignored(const Options& o) {
  if (!o.precisions.empty()) {
    if (o.paths.size() > 1) return usage_error("--precisions builds one model: give one MODEL");
    return {};
  }
  for (const char* name : {"--sparse", "--batch", "--target", "--calib", "--calib-method", "--calib-samples",
                           "--preprocess", "--family", "--shape", "--allow"}) {
    if (o.options->given(name))
      return usage_error(cat(name, " is for models that are built: name them with --precisions"));
  }
  if (!o.output.empty() && !is_report(o.output))
    return usage_error(
        cat("-o ", o.output, ": reports are .html or .md files; a folder is for engines of --precisions"));
  return {};
}

// Where engines are built, where the report goes; both may be empty.
struct Places {
  std::string engines, report;
};
Result<Places> places_of(const Options& o, const ScratchFolder& scratch) {
  Places p;
  if (!o.output.empty() && is_report(o.output)) {
    TS_TRY(check_report_name(o.output));
    p.report = o.output;
  }
  if (o.precisions.empty()) return p;
  p.engines = scratch.path();
  if (!o.output.empty() && p.report.empty()) {
    std::error_code error;
    std::filesystem::create_directories(o.output, error);
    if (!std::filesystem::is_directory(o.output, error))
      return usage_error(cat("-o ", o.output, ": is no report (.html, .md), and no folder could be made of it"));
    p.engines = o.output;
    p.report = o.output + "/report.html";
  }
  if (p.engines.empty()) return machine_error("no temporary folder could be made");
  return p;
}

// What is to be built: asked before a folder is made for it.
struct Builds {
  std::vector<int64_t> batches;
  std::vector<BuildCombination> all;
};
Result<Builds> builds_of(const Options& o) {
  Builds b;
  if (o.precisions.empty()) return b;
  TS_ASSIGN(b.batches, parse_batches(o.batches));
  TS_TRY(check_model(o.paths[0], o.flags.family));
  TS_ASSIGN(b.all, parse_combinations(o.precisions, o.flags, o.sparse));
  return b;
}

Result<std::vector<ComparedRow>> built_rows(const Options& o, const Builds& builds, const Places& places) {
  std::vector<ComparedRow> rows;
  Progress progress("building and measuring", static_cast<int64_t>(builds.all.size()));
  for (const BuildCombination& c : builds.all) {
    TS_ASSIGN(std::vector<ComparedRow> of_one, build_rows(c, o.paths[0], builds.batches, places.engines,
                                                          {.runs = o.runs, .verify = !o.flags.no_verify}));
    for (ComparedRow& r : of_one) rows.push_back(std::move(r));
    progress.advance();
  }
  return rows;
}

// Files of one name in two folders are called by their paths.
void name_apart(std::vector<ComparedRow>& rows) {
  std::map<std::string, std::set<std::string>> paths;
  for (const ComparedRow& r : rows) paths[r.facts.name].insert(r.path);
  for (ComparedRow& r : rows) {
    if (paths[r.facts.name].size() > 1) r.facts.name = r.path;
  }
}

Result<std::vector<ComparedRow>> found_rows(const Options& o) {
  TS_ASSIGN(const Rules rules, open_rules(o.rules));
  std::vector<std::string> files;
  std::error_code none;
  for (const std::string& path : o.paths) {
    if (!std::filesystem::is_directory(path, none)) {
      if (!std::filesystem::exists(path, none)) return bad_input(cat(path, ": no such file", hint_for_missing(path)));
      if (path.ends_with(".onnx"))
        return usage_error(cat(path, " is a model: say what to build with --precisions, for example fp16,fp8"));
      files.push_back(path);
      continue;
    }
    TS_ASSIGN(const std::vector<std::string> inside, list_comparable(path));
    files.insert(files.end(), inside.begin(), inside.end());
  }
  std::vector<ComparedRow> rows;
  Progress progress("measuring", static_cast<int64_t>(files.size()));
  for (const std::string& f : files) {
    for (ComparedRow& r : file_rows(f, rules, {.runs = o.runs, .verify = !o.flags.no_verify}))
      rows.push_back(std::move(r));
    progress.advance();
  }
  name_apart(rows);
  return rows;
}

Json row_json(const ComparedRow& r) {
  const ComparedEngine& f = r.facts;
  const auto number = [](const auto& v) { return v ? Json(*v) : Json(); };
  Json graphs = Json::array();
  for (const GraphTime& g : r.entry ? r.entry->profile.graphs : std::vector<GraphTime>{})
    graphs.push_back({{"graph", g.graph}, {"plan", g.plan}, {"times", g.times}, {"ms", number(g.ms)}});
  return {{"name", f.name},
          {"file", r.path},
          {"precision", f.precision},
          {"attention", f.attention},
          {"sparsity", f.sparsity},
          {"batch", f.batch > 0 ? Json(f.batch) : Json()},
          {"latency_ms", number(f.latency_ms)},
          {"kernel_ms", number(f.kernel_ms)},
          {"per_second", number(f.per_second)},
          {"bytes", number(f.bytes)},
          {"cosine", number(f.cosine)},
          {"graphs", graphs},
          {"front", f.on_front},
          {"refused", f.refused.empty() ? Json() : Json(f.refused)}};
}

Json version_json(const VersionPair& v) {
  Json steps = Json::array();
  for (const StepChange& s : v.steps)
    steps.push_back({{"layer", s.layer},
                     {"kernel_before", s.kernel_before},
                     {"kernel_after", s.kernel_after},
                     {"us_before", s.us_before ? Json(*s.us_before) : Json()},
                     {"us_after", s.us_after ? Json(*s.us_after) : Json()}});
  return {{"before", v.before},     {"after", v.after},      {"ms_before", v.ms_before},
          {"ms_after", v.ms_after}, {"ms_of", time_kind(v)}, {"steps", steps}};
}

void print_rows(const std::vector<ComparedRow>& rows) {
  // Profiles of other tools often have no latency: then there is a column of what they do have.
  const bool kernels = std::any_of(rows.begin(), rows.end(),
                                   [](const ComparedRow& r) { return r.facts.kernel_ms && !r.facts.latency_ms; });
  std::vector<std::string> titles = {"engine", "precision",  "attention", "sparse",  ">batch",
                                     ">ms",    ">samples/s", ">size",     ">cosine", "front"};
  if (kernels) titles.insert(titles.begin() + 6, ">kernels ms");
  Table table(titles);
  const auto number = [](const std::optional<double>& v, int digits) {
    return v ? fmt::format("{:.{}f}", *v, digits) : std::string("-");
  };
  for (const ComparedRow& r : rows) {
    const ComparedEngine& f = r.facts;
    const auto or_none = [](const std::string& text) { return text.empty() ? std::string("-") : text; };
    std::vector<std::string> row = {printable(f.name),
                                    printable(or_none(f.precision)),
                                    or_none(f.attention),
                                    or_none(f.sparsity),
                                    f.batch > 0 ? std::to_string(f.batch) : "-",
                                    number(f.latency_ms, 3),
                                    number(f.per_second, 1),
                                    f.bytes ? megabytes(*f.bytes) : "-",
                                    number(f.cosine, 6),
                                    verdict_words(f)};
    if (kernels) row.insert(row.begin() + 6, number(f.kernel_ms, 3));
    table.add(std::move(row));
  }
  fmt::print("{}", table.text());
  fmt::print("{}\n",
             wrap("front: no other of the same batch is at least as good in cosine (with the model as written), "
                  "latency and size, and better in one",
                  0, 2));
  for (const ComparedRow& r : rows) {
    std::string graphs;
    for (const GraphTime& g : r.entry ? r.entry->profile.graphs : std::vector<GraphTime>{})
      graphs += fmt::format("{}{} x {} of {:.3f} ms", graphs.empty() ? "" : ", ", g.times, g.graph,
                            g.ms.value_or(g.kernel_us / 1e3));
    if (!graphs.empty()) fmt::print("{}\n", wrap(printable(cat(r.facts.name, " runs ", graphs)), 0, 2));
    if (!r.facts.refused.empty())
      fmt::print("{}\n", wrap(printable(cat(r.facts.name, ": ", short_reason(r.facts.refused))), 0, 2));
  }
}

void print_version(const VersionPair& v) {
  fmt::print("\n{}\n",
             wrap(printable(fmt::format("{} beside {}: {} {:.3f} ms to {:.3f} ms; {}; the steps that changed most",
                                        v.after, v.before, time_kind(v), v.ms_before, v.ms_after, kernel_words(v))),
                  0, 2));
  Table table({"layer", "kernel", ">before us", ">after us", ">change"});
  const auto number = [](const std::optional<double>& us) {
    return us ? fmt::format("{:.1f}", *us) : std::string("-");
  };
  for (size_t i = 0; i < v.steps.size() && i < kChangedSteps; ++i) {
    const StepChange& s = v.steps[i];
    const std::string kernel = s.kernel_before == s.kernel_after ? s.kernel_after
                               : s.kernel_before.empty()         ? cat("new: ", s.kernel_after)
                               : s.kernel_after.empty()          ? cat("gone: ", s.kernel_before)
                                                                 : cat(s.kernel_before, " to ", s.kernel_after);
    table.add({printable(s.layer), printable(kernel), number(s.us_before), number(s.us_after),
               fmt::format("{:+.1f}", s.change_us())});
  }
  fmt::print("{}", table.text());
}

// What a report looks into beyond the table: rows of one batch, the one with the most, and of those the first, the
// fastest and the front. Ten explanations are read by few, and rows of two batches have no parts to compare.
std::vector<ReportEntry> entries_in_detail(const std::vector<ComparedRow>& rows) {
  constexpr size_t kMost = 6;
  std::map<int64_t, size_t> counts;
  for (const ComparedRow& r : rows) counts[r.facts.batch] += r.entry.has_value();
  int64_t batch = 0;
  size_t most = 0;
  for (const auto& [size, count] : counts) {
    if (count >= most) batch = size, most = count;
  }
  std::vector<const ComparedRow*> of_batch;
  for (const ComparedRow& r : rows) {
    if (r.entry && r.facts.batch == batch) of_batch.push_back(&r);
  }
  if (of_batch.empty()) return {};
  const auto by_time = [](const ComparedRow* a, const ComparedRow* b) {
    const auto time = [](const ComparedEngine& f) {
      return std::pair(f.latency_ms.value_or(1e300), f.kernel_ms.value_or(1e300));
    };
    return time(a->facts) < time(b->facts);
  };
  const ComparedRow* const fastest = *std::min_element(of_batch.begin(), of_batch.end(), by_time);
  std::vector<ReportEntry> entries;
  const auto add = [&](const ComparedRow* r) {
    entries.push_back(*r->entry);
    entries.back().name = r->facts.name;
  };
  add(of_batch[0]);
  if (fastest != of_batch[0]) add(fastest);
  for (const bool front : {true, false}) {
    for (const ComparedRow* r : of_batch) {
      if (r != of_batch[0] && r != fastest && r->facts.on_front == front && entries.size() < kMost) add(r);
    }
  }
  return entries;
}

ReportInput report_of(const Options& o, const std::vector<ComparedRow>& rows, std::vector<VersionPair> versions) {
  const std::string model = o.precisions.empty() ? "" : std::filesystem::path(o.paths[0]).filename().string();
  ReportInput input{.title = model.empty() ? "Engines side by side" : cat("Engines of ", model),
                    .date = today(),
                    .program = "tessera " TS_VERSION,
                    .entries = entries_in_detail(rows),
                    .explained = {}};
  for (const ComparedRow& r : rows) {
    input.compared.push_back(r.facts);
    input.compared.back().refused = short_reason(r.facts.refused);
    if (!r.command.empty() && (input.commands.empty() || input.commands.back() != r.command))
      input.commands.push_back(r.command);
  }
  if (input.entries.size() > 1) input.explained = explain_entries({input.entries[0], input.entries[1]}, {});
  input.versions = std::move(versions);
  std::string line = "tessera compare";
  for (const std::string& p : o.paths) line += " " + quoted(p);
  input.commands.push_back(line + given_words(*o.options));
  return input;
}

Status compare(const Options& o, const Common& common) {
  TS_TRY(refuse_ignored(o));
  const ScratchFolder scratch;
  TS_ASSIGN(const Builds builds, builds_of(o));
  TS_ASSIGN(const Places places, places_of(o, scratch));
  TS_ASSIGN(std::vector<ComparedRow> rows, o.precisions.empty() ? found_rows(o) : built_rows(o, builds, places));
  std::vector<ComparedEngine> facts;
  for (const ComparedRow& r : rows) facts.push_back(r.facts);
  mark_front(facts);
  for (size_t i = 0; i < rows.size(); ++i) rows[i].facts.on_front = facts[i].on_front;
  std::vector<VersionPair> versions = versions_among(rows);
  Json json = {{"rows", Json::array()}, {"versions", Json::array()}};
  for (const ComparedRow& r : rows) json["rows"].push_back(row_json(r));
  for (const VersionPair& v : versions) json["versions"].push_back(version_json(v));
  if (!common.json) {
    print_rows(rows);
    for (const VersionPair& v : versions) print_version(v);
  }
  if (!places.report.empty()) {
    TS_ASSIGN(const int64_t bytes, write_report(places.report, report_of(o, rows, std::move(versions))));
    json["report"] = places.report;
    if (!common.json) fmt::print("\n{}: {}\n", places.report, megabytes(bytes));
  }
  if (common.json) print_json(json);
  // A row that could be built or read is a result; a machine without the engine's target still has its size.
  for (const ComparedRow& r : rows) {
    if (r.entry || r.facts.bytes) return {};
  }
  // Files that could not be read are no refusals of a build.
  return Status(o.precisions.empty() ? Code::kBadInput : Code::kRefused,
                common.json ? "" : "nothing could be compared: each row has its reason");
}

Runner add(OptionList& options, const Common& common) {
  auto o = std::make_shared<Options>();
  options.add("path", o->paths, "PATH", "folders, engines and profiles; with --precisions one model that is built")
      .required = true;
  options.add("-o,--output", o->output, "PATH",
              "a report to write (.html, .md); with --precisions also a folder that keeps the engines and gets "
              "report.html");
  options.add("--runs", o->runs, "N", "runs that times are taken over, up to 1000000 (default: 20)").check =
      within(1, 1000000);
  options.add("--no-verify", o->flags.no_verify, "no golden values, no accuracy: times and sizes alone");
  options.add("--rules", o->rules, "FILE",
              "rules that tell kernels of other tools by their names, before the program's");
  options.group("A model that is built");
  options.add("--precisions", o->precisions, "NAMES",
              "what to build, with commas between; after a + attention=NAME, sparsity=2:4, refine=NAME or "
              "accumulate=NAME: fp16,fp8,fp8+attention=fp8,nvfp4");
  options.add("--sparse", o->sparse, "each of them also with 2:4 sparsity");
  options.add("--batch", o->batches, "N,...", "batch sizes, a row each (default: the model's, or 1)");
  options.add("--target", o->flags.target, "ARCH", "what to build for (default: cpu)");
  options.add("--calib", o->flags.calib, "FILE", "samples that scales are taken from, as of tessera build");
  add_calibration_flags(options, o->flags.calibration, "--calib-method", "--calib-samples");
  options.add("--allow", o->flags.allow, "LAYER=NAME", "accept another precision for layers; repeatable");
  options.add("--shape", o->flags.shapes, "INPUT=N,...",
              "the shape of an input whose axes the model leaves open; repeatable");
  options.add("--family", o->flags.family, "NAME",
              "the model is a folder with a checkpoint of this family: " + family_list());
  o->options = &options;
  return [o, &common] { return compare(*o, common); };
}

}  // namespace

const Command compare_command{
    "compare",
    "put engines side by side: precision, latency, size, accuracy",
    "Times every engine of a folder on this machine, or builds a model in several precisions first, and shows latency, "
    "size and accuracy with those that no other beats in all three marked as the front. A combination that is refused "
    "is a row with its reason. Two engines of one model and precision are taken for versions: what the later one (by "
    "name) changed is shown step by step. Profiles of other tools in the folder are rows too.",
    "  tessera compare engines/\n"
    "  tessera compare vit.onnx --precisions fp16,fp8,fp8+attention=fp8,nvfp4 --calib images.npz -o out\n"
    "  tessera compare old/vit.tess new/vit.tess -o changed.md\n",
    "",
    true,
    add};

}  // namespace tessera
