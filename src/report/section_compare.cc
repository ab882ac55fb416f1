// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "base/status.h"
#include "report/accuracy_chart.h"
#include "report/compare.h"
#include "report/escape.h"
#include "report/figures.h"
#include "report/sections.h"

namespace tessera {
namespace {

constexpr size_t kSteps = 40, kNameLength = 110;

std::string or_none(const std::string& text) { return text.empty() ? "-" : text; }

TableCell number_cell(const std::optional<double>& v, int digits) {
  return v ? TableCell(decimals(*v, digits), *v) : TableCell("-");
}

constexpr std::ptrdiff_t kAfterLatency = 6;  // place of the kernel time among the columns

std::vector<TableCell> row_of(const ComparedEngine& c, bool kernels) {
  const double bytes = c.bytes ? static_cast<double>(*c.bytes) : 0;
  std::vector<TableCell> row = {c.name,
                                or_none(c.precision),
                                or_none(c.attention),
                                or_none(c.sparsity),
                                c.batch > 0 ? TableCell(std::to_string(c.batch), static_cast<double>(c.batch)) : "-",
                                number_cell(c.latency_ms, 3),
                                number_cell(c.per_second, 1),
                                c.bytes ? TableCell(size_words(bytes), bytes) : TableCell("-"),
                                number_cell(c.cosine, 6),
                                verdict_words(c)};
  row[0].strong = c.on_front;
  if (kernels) row.insert(row.begin() + kAfterLatency, number_cell(c.kernel_ms, 3));
  return row;
}

}  // namespace

Section comparison_section(const ReportInput& input) {
  Section s{.heading = "Engines side by side", .blocks = {}};
  if (input.compared.empty()) return s;
  TableBlock t{.caption =
                   "Median latency, size of the file, mean cosine with the model as written. Front: no other of "
                   "the same batch is at least as good in all three and better in one.",
               .columns = {{"engine", false},
                           {"precision", false},
                           {"attention", false},
                           {"sparsity", false},
                           {"batch", true},
                           {"latency, ms", true},
                           {"samples/s", true},
                           {"size", true},
                           {"cosine", true},
                           {"front", false}},
               .rows = {}};
  // Of profiles without a latency the kernel time is what there is; it is none.
  const bool kernels = std::any_of(input.compared.begin(), input.compared.end(),
                                   [](const ComparedEngine& c) { return c.kernel_ms && !c.latency_ms; });
  if (kernels) {
    t.columns.insert(t.columns.begin() + kAfterLatency, {"kernels, ms", true});
    t.caption += " Kernels: the sum of their times, where a profile has no latency.";
  }
  std::set<int64_t> batches;
  for (const ComparedEngine& c : input.compared) {
    if (c.latency_ms) batches.insert(c.batch);
  }
  const bool per_sample = batches.size() > 1 && !batches.contains(0);
  ListBlock refused;
  std::vector<PlacedEngine> placed;
  for (const ComparedEngine& c : input.compared) {
    t.rows.push_back(row_of(c, kernels));
    if (!c.refused.empty()) refused.items.emplace_back(cat(c.name, ": ", c.refused));
    if (c.latency_ms && c.cosine) {
      const double ms = *c.latency_ms / (per_sample ? static_cast<double>(c.batch) : 1);
      placed.push_back({per_sample ? cat(c.name, ", batch ", c.batch) : c.name, ms, *c.cosine, c.on_front});
    }
  }
  s.blocks.push_back(std::move(t));
  if (!refused.items.empty()) {
    s.blocks.push_back(TextBlock{"Not built or not measured, and why:"});
    s.blocks.push_back(std::move(refused));
  }
  if (auto chart = accuracy_chart(placed, per_sample ? "latency per sample, ms" : "latency, ms"))
    s.blocks.push_back(std::move(*chart));
  return s;
}

Section versions_section(const ReportInput& input) {
  Section s{.heading = "What a version changed", .blocks = {}};
  for (const VersionPair& v : input.versions) {
    TableBlock t{.caption = cat(v.after, " beside ", v.before, ", both of one model and precision: ", time_kind(v), " ",
                                decimals(v.ms_before, 3), " ms to ", decimals(v.ms_after, 3), " ms (",
                                ratio_words(v.ms_before / v.ms_after), "); ", kernel_words(v),
                                ". Steps, the largest change first."),
                 .columns = {{"layer", false},
                             {"kernel", false},
                             {"before, us", true},
                             {"after, us", true},
                             {"change, us", true}},
                 .rows = {}};
    for (const StepChange& c : v.steps) {
      if (t.rows.size() >= kSteps) {
        t.caption += cat(" ", v.steps.size() - kSteps, " that changed less are left out.");
        break;
      }
      const bool same = c.kernel_before == c.kernel_after;
      const std::string kernel = same                      ? c.kernel_after
                                 : c.kernel_before.empty() ? cat("new: ", c.kernel_after)
                                 : c.kernel_after.empty()  ? cat("gone: ", c.kernel_before)
                                                           : cat(c.kernel_before, " to ", c.kernel_after);
      t.rows.push_back({TableCell::code(cut_middle(c.layer, kNameLength)),
                        TableCell::code(cut_middle(kernel, kNameLength)), number_cell(c.us_before, 1),
                        number_cell(c.us_after, 1), TableCell(signed_words(c.change_us(), 1), c.change_us())});
    }
    s.blocks.push_back(std::move(t));
  }
  return s;
}

}  // namespace tessera
