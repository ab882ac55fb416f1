// SPDX-License-Identifier: Apache-2.0
#include "cli/compare_rows.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/words/nearest_word.h"
#include "cli/build_file.h"
#include "cli/measure_engine.h"
#include "cli/open_engine.h"
#include "cli/open_profile.h"
#include "cli/report_file.h"
#include "io/images_prepare.h"
#include "plan/engine_file.h"
#include "plan/golden_plans.h"
#include "precision/quantize.h"
#include "report/compare.h"
#include "runtime/batches.h"
#include "verify/verify.h"

namespace tessera {
namespace {

Result<BuildCombination> parse_combination(const std::string& word, const BuildFlags& common) {
  const std::vector<std::string> parts = split(word, '+');
  BuildCombination c{.name = word, .flags = common};
  c.flags.precision = parts[0];
  if (parts[0] != kAuto && find_precision(parts[0]) == nullptr)
    return usage_error(cat("--precisions: precision '", parts[0], "' is unknown",
                           did_you_mean(parts[0], precision_names()), "; tessera build --help lists them"));
  for (size_t i = 1; i < parts.size(); ++i) {
    const size_t equals = std::min(parts[i].find('='), parts[i].size());
    const std::string key = parts[i].substr(0, equals), value = parts[i].substr(std::min(equals + 1, parts[i].size()));
    std::string* const field = key == "attention"    ? &c.flags.attention
                               : key == "sparsity"   ? &c.flags.sparsity
                               : key == "refine"     ? &c.flags.refine
                               : key == "accumulate" ? &c.flags.accumulate
                                                     : nullptr;
    if (field == nullptr || value.empty())
      return usage_error(cat("--precisions '", word, "': after + wanted attention=NAME, sparsity=2:4, refine=NAME or ",
                             "accumulate=NAME"));
    *field = value;
  }
  return c;
}

// A name that a file can have: "fp8_attention_fp8".
std::string file_stem(const std::string& name) {
  std::string stem = name;
  for (char& c : stem) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
    if (!plain) c = '_';
  }
  return stem;
}

std::string command_of(const BuildCombination& c, const std::string& model, const std::vector<int64_t>& batches,
                       const std::string& path) {
  const BuildFlags& f = c.flags;
  std::string line = cat("tessera build ", quoted(model), " -o ", quoted(path));
  const std::pair<const char*, const std::string*> flags[] = {{"--family", &f.family},
                                                              {"--precision", &f.precision},
                                                              {"--attention", &f.attention},
                                                              {"--sparsity", &f.sparsity},
                                                              {"--refine", &f.refine},
                                                              {"--accumulate", &f.accumulate},
                                                              {"--target", &f.target},
                                                              {"--calib", &f.calib},
                                                              {"--calib-method", &f.calibration.method},
                                                              {"--preprocess", &f.calibration.preprocess}};
  for (const auto& [flag, value] : flags) {
    if (!value->empty()) line += cat(" ", flag, " ", quoted(*value));
  }
  for (const std::string& s : f.shapes) line += cat(" --shape ", quoted(s));
  for (const std::string& a : f.allow) line += cat(" --allow ", quoted(a));
  std::string sizes;
  for (const int64_t b : batches) sizes += cat(sizes.empty() ? "" : ",", b);
  return sizes.empty() ? line : cat(line, " --batch ", sizes);
}

void take_measured(const ReportEntry& entry, ComparedEngine& facts) {
  const Profile& p = entry.profile;
  facts.batch = p.batch;
  facts.bytes = p.engine_bytes;
  // Time between kernels, launches and copies are in a latency: kernel time is none.
  if (p.kernel_us() > 0) facts.kernel_ms = p.kernel_us() / 1e3;
  if (p.latency && p.latency->median_ms > 0) facts.latency_ms = p.latency->median_ms;
  facts.per_second = p.per_second();
  if (entry.accuracy) facts.cosine = entry.accuracy->cosine();
}

// What is known of an engine that does not run here: size, and accuracy from the values that its build stored.
void take_stored(const std::string& path, const Engine& engine, const PlansOfAnswer& plans, bool verify,
                 ComparedEngine& facts) {
  std::error_code none;
  facts.batch = plans.at(0).plan->batch;
  facts.bytes = static_cast<int64_t>(std::filesystem::file_size(path, none));
  if (!verify || engine.golden.original.empty()) return;
  AccuracyFacts accuracy;
  for (const ScheduledPlan& item : plans) {
    const auto stored = measure_quantization(engine, nullptr, {.quiet = true}, golden_plan(engine, *item.plan));
    if (!stored.ok()) return;
    for (const OutputQuality& o : stored->outputs) {
      if (!o.whole)
        accuracy.outputs.push_back({.output = o.name, .inputs = "", .cosine_mean = o.closeness.cosine_mean});
    }
  }
  facts.cosine = accuracy.cosine();
}

// A row for the schedule, or one per plan that users run.
std::vector<ComparedRow> engine_rows(const std::string& path, const std::string& name, const RowOptions& options) {
  const auto refused_row = [&](const std::string& why) {
    return std::vector<ComparedRow>{
        {.facts = {.name = name, .refused = why}, .entry = {}, .path = path, .command = ""}};
  };
  const auto engine = open_engine(path);
  if (!engine.ok()) return refused_row(engine.status().message());
  std::vector<ComparedRow> rows;
  const bool graphs = graph_names(*engine).size() > 1;
  for (const PlansOfAnswer& plans : answers_of(*engine)) {
    const bool one_graph = graphs && plans.size() == 1;
    ComparedRow row{.facts = {.name = one_graph ? cat(name, ", ", plans[0].plan->graph) : name,
                              .graph = one_graph ? plans[0].plan->graph : ""},
                    .entry = {},
                    .path = path,
                    .command = ""};
    const EngineWords words = words_of(*engine, plans);
    row.facts.precision = words.precision;
    row.facts.attention = words.attention;
    row.facts.sparsity = words.sparsity;
    auto entry =
        measure_engine(path, *engine, plans, {.runs = options.runs, .verify = options.verify, .ceilings = false});
    if (entry.ok()) {
      take_measured(*entry, row.facts);
      entry->name = row.facts.name;
      row.entry = std::move(entry).value();
      row.measured_here = true;
    } else {
      take_stored(path, *engine, plans, options.verify, row.facts);
      row.facts.refused = entry.status().message();
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// The precision that the products or the attention of a profile have, the one with the most time.
std::string longest_precision(const Profile& p, bool products) {
  std::map<std::string, double> us;
  for (const KernelTime& k : p.kernels) {
    const bool counts = products ? is_product(k.kernel_class) : k.kernel_class == KernelClass::kAttention;
    if (counts && !k.precision.empty()) us[k.precision] += k.us;
  }
  const auto most =
      std::max_element(us.begin(), us.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == us.end() ? "" : most->first;
}

}  // namespace

Result<std::vector<BuildCombination>> parse_combinations(const std::string& text, const BuildFlags& common,
                                                         bool sparse) {
  std::vector<BuildCombination> all;
  std::set<std::string> stems;
  for (const std::string& word : split(text, ',')) {
    TS_ASSIGN(BuildCombination c, parse_combination(word, common));
    if (!stems.insert(file_stem(c.name)).second)
      return usage_error(cat("--precisions: '", word, "' stands there twice"));
    all.push_back(std::move(c));
  }
  for (size_t i = 0, n = all.size(); sparse && i < n; ++i) {
    if (!all[i].flags.sparsity.empty()) continue;
    BuildCombination c = all[i];
    c.name += "+sparsity=2:4";
    c.flags.sparsity = "2:4";
    if (stems.insert(file_stem(c.name)).second) all.push_back(std::move(c));
  }
  return all;
}

Result<std::vector<ComparedRow>> build_rows(const BuildCombination& combination, const std::string& model,
                                            const std::vector<int64_t>& batches, const std::string& folder,
                                            const RowOptions& options) {
  const BuildFlags& flags = combination.flags;
  TS_ASSIGN(const BuildOptions build, build_options(flags, model, batches, /*quiet=*/true));
  const std::string path = folder + "/" + file_stem(combination.name) + ".tess";
  TS_TRY(check_output(path, model));
  Status built;
  {
    const auto file = build_file(build, path);  // its engine goes before the file is opened: memory for one is enough
    built = file.status();
  }
  std::vector<ComparedRow> rows;
  if (built.ok()) {
    rows = engine_rows(path, combination.name, options);
  } else {
    rows.emplace_back().path = path;
    ComparedEngine& facts = rows[0].facts;
    facts.name = combination.name;
    facts.precision = flags.precision;
    facts.attention = flags.attention;
    facts.sparsity = flags.sparsity;
    facts.refused = built.message();
  }
  for (ComparedRow& r : rows) r.command = command_of(combination, model, batches, path);
  return rows;
}

std::vector<ComparedRow> file_rows(const std::string& path, const Rules& rules, const RowOptions& options) {
  const std::string name = std::filesystem::path(path).filename().string();
  const auto engine = is_engine_file(path);
  if (engine.ok() && *engine) return engine_rows(path, std::filesystem::path(path).stem().string(), options);
  ComparedRow row{.facts = {.name = name}, .entry = {}, .path = path, .command = ""};
  auto profile = engine.ok() ? open_profile(path, rules, {}) : Result<Profile>(engine.status());
  if (!profile.ok()) {
    row.facts.refused = profile.status().message();
    return {row};
  }
  row.facts.precision = profile->precision.empty() ? longest_precision(*profile, true) : profile->precision;
  row.facts.attention = longest_precision(*profile, false);
  ReportEntry entry{.name = name, .profile = std::move(profile).value()};
  entry.no_accuracy = "a profile holds no outputs to compare";
  if (entry.profile.path.empty()) entry.profile.path = path;
  take_measured(entry, row.facts);
  row.entry = std::move(entry);
  return {row};
}

std::string short_reason(const std::string& reason) {
  constexpr size_t kWhole = 4;  // lines that are shown as they are
  const std::vector<std::string> lines = split(reason, '\n');
  if (lines.size() <= kWhole) return reason;
  const auto trimmed = [](const std::string& line) {
    const size_t begin = line.find_first_not_of(' ');
    return begin == std::string::npos ? std::string() : line.substr(begin);
  };
  std::string first = trimmed(lines[0]);
  if (first.ends_with(':')) first.pop_back();
  return cat(first, "; ", trimmed(lines[lines.size() - 2]), "; ", trimmed(lines.back()));
}

Result<std::vector<std::string>> list_comparable(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> paths;
  for (const auto& item : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = item.path().filename().string();
    const bool fits =
        name.ends_with(".tess") || name.ends_with(".json") || name.ends_with(".json.gz") || name.ends_with(".sqlite");
    if (!fits || !item.is_regular_file(error)) continue;
    // What stands beside a profile is no profile; one that cannot be opened is a row, with the reason.
    const auto kind = kind_of_profile(item.path().string());
    if (!kind.ok() || *kind != ProfileKind::kCompanion) paths.push_back(item.path().string());
  }
  if (error) return machine_error(cat(folder, ": ", error.message()));
  if (paths.empty())
    return bad_input(cat(folder, ": holds no engine (.tess) and no profile (.json, .json.gz, .sqlite) to compare"));
  std::sort(paths.begin(), paths.end());
  return paths;
}

namespace {

std::string version_name(const ComparedRow& row) {
  return row.facts.batch > 0 ? cat(row.facts.name, ", batch ", row.facts.batch) : row.facts.name;
}

}  // namespace

std::vector<VersionPair> versions_among(const std::vector<ComparedRow>& rows) {
  std::vector<VersionPair> pairs;
  for (size_t b = 0; b < rows.size(); ++b) {
    if (!rows[b].entry || rows[b].entry->profile.model.empty()) continue;
    const ComparedEngine& after = rows[b].facts;
    const Profile& new_one = rows[b].entry->profile;
    for (size_t a = b; a-- > 0;) {  // the nearest before it: what each version changed
      if (!rows[a].entry) continue;
      const ComparedEngine& before = rows[a].facts;
      const Profile& old_one = rows[a].entry->profile;
      const bool same = old_one.model == new_one.model && old_one.plan == new_one.plan &&
                        old_one.source == new_one.source && old_one.making == new_one.making &&
                        before.precision == after.precision && before.attention == after.attention &&
                        before.sparsity == after.sparsity && before.batch == after.batch &&
                        rows[a].path != rows[b].path;
      if (!same) continue;
      const bool latency = old_one.latency && new_one.latency;
      pairs.push_back({.before = version_name(rows[a]),
                       .after = version_name(rows[b]),
                       .ms_before = latency ? old_one.latency->median_ms : old_one.kernel_us() / 1e3,
                       .ms_after = latency ? new_one.latency->median_ms : new_one.kernel_us() / 1e3,
                       .latency = latency,
                       .steps = changed_steps(old_one, new_one),
                       .same_program = rows[a].measured_here && rows[b].measured_here});
      break;
    }
  }
  return pairs;
}

}  // namespace tessera
