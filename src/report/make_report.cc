// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "base/status.h"
#include "report/report.h"
#include "report/sections.h"

namespace tessera {
namespace {

std::string join(const std::set<std::string>& words) {
  std::string out;
  for (const std::string& w : words) out += cat(out.empty() ? "" : ", ", w);
  return out;
}

std::string title_of(const ReportInput& input) {
  if (!input.title.empty()) return input.title;
  std::string names;
  for (size_t i = 0; i < input.entries.size() && i < 4; ++i)
    names += cat(i == 0 ? "" : i == 1 ? " beside " : ", ", input.entries[i].name);
  if (input.entries.size() > 4) names += cat(" and ", input.entries.size() - 4, " more");
  return names.empty() ? "Engines side by side" : names;
}

}  // namespace

Document make_report(const ReportInput& input) {
  Document d{.title = title_of(input), .subtitle = "", .facts = {}, .sections = {}};
  std::set<std::string> models, machines, sources;
  std::set<int64_t> batches;
  for (const ReportEntry& e : input.entries) {
    if (!e.profile.model.empty()) models.insert(e.profile.model);
    if (!e.profile.machine.empty()) machines.insert(e.profile.machine);
    if (!e.profile.source.empty()) sources.insert(e.profile.source);
    if (e.profile.batch > 0) batches.insert(e.profile.batch);
  }
  d.subtitle = join(models);
  if (batches.size() == 1) d.subtitle += cat(d.subtitle.empty() ? "batch " : ", batch ", *batches.begin());
  for (const std::string& fact :
       {join(machines), sources.empty() ? "" : cat("profiles of ", join(sources)), input.date, input.program}) {
    if (!fact.empty()) d.facts.push_back(fact);
  }
  const auto add = [&](Section s) {
    if (!s.blocks.empty()) d.sections.push_back(std::move(s));
  };
  add(summary_section(input));
  add(comparison_section(input));
  add(versions_section(input));
  for (const Explanation& e : input.explained) add(explanation_section(input, e));
  add(time_section(input));
  add(kernels_section(input));
  add(precision_section(input));
  add(accuracy_section(input));
  add(latency_section(input));
  add(configuration_section(input));
  add(reproduce_section(input));
  return d;
}

}  // namespace tessera
