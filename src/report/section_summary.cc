// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <set>

#include "base/status.h"
#include "report/figures.h"
#include "report/sections.h"

namespace tessera {

std::optional<double> AccuracyFacts::cosine() const {
  std::optional<double> least;
  for (const OutputAccuracy& o : outputs) {
    if (!o.same_of && (!least || o.cosine_mean < *least)) least = o.cosine_mean;
  }
  return least;
}

double time_of(const Profile& profile) {
  return profile.latency ? profile.latency->median_ms : profile.kernel_us() / 1e3;
}

bool all_have_latency(const ReportInput& input) {
  return std::all_of(input.entries.begin(), input.entries.end(),
                     [](const ReportEntry& e) { return e.profile.latency.has_value(); });
}

namespace {

std::string cosine_words(const ReportEntry& e) {
  const std::optional<double> c = e.accuracy ? e.accuracy->cosine() : std::nullopt;
  return or_dash(c, [](double v) { return decimals(v, 5); });
}

TableBlock summary_table(const ReportInput& input) {
  const bool latency = all_have_latency(input);
  std::string caption =
      latency ? "Latency is that of whole runs, without a profiler. Kernel time is the sum over kernels of one run."
              : "Kernel time is the sum over kernels of one run; not every profile has a latency.";
  if (std::any_of(input.entries.begin(), input.entries.end(),
                  [](const ReportEntry& e) { return e.accuracy.has_value(); }))
    caption += " The cosine is with the model as written, the mean over samples.";
  TableBlock t{.caption = std::move(caption),
               .columns = {{"", false},
                           {"latency, ms", true},
                           {"p99, ms", true},
                           {"kernels, ms", true},
                           {"samples/s", true},
                           {"engine", true},
                           {"cosine", true},
                           {"speedup", true}},
               .rows = {}};
  // Where batch sizes differ, times are compared per sample.
  const auto samples_of = [&](const Profile& p) {
    const int64_t first = input.entries[0].profile.batch;
    return first > 0 && p.batch > 0 ? static_cast<double>(p.batch) / static_cast<double>(first) : 1;
  };
  const auto time = [&](const Profile& p) { return latency ? p.latency->median_ms : p.kernel_us() / 1e3; };
  for (size_t i = 0; i < input.entries.size(); ++i) {
    const ReportEntry& e = input.entries[i];
    const Profile& p = e.profile;
    const bool other_model = i > 0 && i <= input.explained.size() && input.explained[i - 1].other_model;
    std::vector<TableCell> row = {e.name};
    row[0].strong = true;
    row.push_back(p.latency ? TableCell(decimals(p.latency->median_ms, 3), p.latency->median_ms) : TableCell("-"));
    row.push_back(p.latency ? TableCell(decimals(p.latency->p99_ms, 3), p.latency->p99_ms) : TableCell("-"));
    row.emplace_back(in_ms(p.kernel_us()), p.kernel_us());
    const bool rate = p.batch > 0 && time(p) > 0;
    const double per_second = rate ? 1e3 * static_cast<double>(p.batch) / time(p) : 0;
    row.push_back(rate ? TableCell(rounded(per_second, 4), per_second) : TableCell("-"));
    row.push_back(p.engine_bytes ? TableCell(size_words(static_cast<double>(*p.engine_bytes)),
                                             static_cast<double>(*p.engine_bytes))
                                 : TableCell("-"));
    row.emplace_back(cosine_words(e), e.accuracy ? e.accuracy->cosine() : std::nullopt);
    const double speedup = other_model ? NAN : time(input.entries[0].profile) / time(p) * samples_of(p);
    row.emplace_back(ratio_words(speedup), std::isfinite(speedup) ? std::optional(speedup) : std::nullopt);
    row.back().strong = true;
    t.rows.push_back(std::move(row));
  }
  // A column that nobody fills says nothing.
  for (size_t c = t.columns.size(); c-- > 1;) {
    if (std::any_of(t.rows.begin(), t.rows.end(), [&](const auto& r) { return r[c].text != "-"; })) continue;
    t.columns.erase(t.columns.begin() + static_cast<std::ptrdiff_t>(c));
    for (auto& r : t.rows) r.erase(r.begin() + static_cast<std::ptrdiff_t>(c));
  }
  return t;
}

}  // namespace

Section summary_section(const ReportInput& input) {
  Section s{.heading = "Summary", .blocks = {}};
  for (const Explanation& e : input.explained) {
    if (!e.answer.empty()) s.blocks.push_back(TextBlock{e.answer, TextBlock::Kind::kFinding});
  }
  // Beside a comparison, whose table has more rows, it would say the same twice.
  if (!input.entries.empty() && input.compared.empty()) s.blocks.push_back(summary_table(input));
  for (const ReportEntry& e : input.entries) {
    if (e.profile.predicted)
      s.blocks.push_back(TextBlock{cat(e.name, " is predicted from the data of its chip: nothing of it was measured."),
                                   TextBlock::Kind::kWarning});
    if (e.accuracy && !e.accuracy->ok)
      s.blocks.push_back(
          TextBlock{cat(e.name, " failed its verification: ", e.accuracy->arithmetic, " ", e.accuracy->quantization),
                    TextBlock::Kind::kWarning});
  }
  return s;
}

namespace {

std::vector<std::pair<std::string, std::string>> facts_of(const ReportEntry& e) {
  const Profile& p = e.profile;
  std::vector<std::pair<std::string, std::string>> facts;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) facts.emplace_back(name, value);
  };
  add("file", p.path);
  add("profile of", p.source);
  add("model", p.model);
  add("precision asked", p.precision);
  add("batch", p.batch > 0 ? std::to_string(p.batch) : "");
  add("plan", p.plan);
  add("machine", p.machine);
  add("runs averaged", p.runs > 1 ? std::to_string(p.runs) : "");
  add("latency over", p.latency && p.latency->runs > 0 ? cat(p.latency->runs, " runs") : "");
  const auto size = [](const std::optional<int64_t>& bytes) {
    return bytes ? size_words(static_cast<double>(*bytes)) : std::string();
  };
  add("weights", size(p.weight_bytes));
  add("memory of activations", size(p.arena_bytes));
  if (p.ceilings) {
    std::string rates = cat("memory ", count_words(p.ceilings->bytes_per_s, "B/s"));
    for (const auto& [precision, rate] : p.ceilings->flops_per_s)
      rates += cat(", ", precision, " ", count_words(rate, "FLOP/s"));
    add("ceilings", cat(rates, p.ceilings->measured ? ", measured" : ", of the data sheet"));
  }
  for (const auto& [name, value] : e.configuration) add(name.c_str(), value);
  return facts;
}

}  // namespace

Section configuration_section(const ReportInput& input) {
  Section s{.heading = "Configuration", .blocks = {}};
  std::vector<std::string> names;
  std::vector<std::vector<std::pair<std::string, std::string>>> facts;
  for (const ReportEntry& e : input.entries) {
    facts.push_back(facts_of(e));
    for (const auto& [name, value] : facts.back()) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  TableBlock t{.caption = "What was profiled, and where.", .columns = {{"", false}}, .rows = {}};
  for (const ReportEntry& e : input.entries) t.columns.push_back({e.name, false});
  for (const std::string& name : names) {
    std::vector<TableCell> row = {name};
    for (const auto& of_entry : facts) {
      const auto found = std::find_if(of_entry.begin(), of_entry.end(), [&](const auto& f) { return f.first == name; });
      row.emplace_back(found == of_entry.end() ? "-" : found->second);
    }
    t.rows.push_back(std::move(row));
  }
  if (!t.rows.empty()) s.blocks.push_back(std::move(t));
  ListBlock notes;
  std::set<std::string> said;
  for (const ReportEntry& e : input.entries) {
    for (const std::string& note : e.profile.notes) {
      if (said.insert(note).second) notes.items.emplace_back(input.entries.size() > 1 ? cat(e.name, ": ", note) : note);
    }
  }
  if (!notes.items.empty()) s.blocks.push_back(std::move(notes));
  return s;
}

Section reproduce_section(const ReportInput& input) {
  Section s{.heading = "How to reproduce", .blocks = {}};
  if (input.commands.empty()) return s;
  s.blocks.push_back(
      TextBlock{"Times differ from run to run and from machine to machine; everything else is the same each time."});
  s.blocks.push_back(CodeBlock{input.commands});
  return s;
}

}  // namespace tessera
