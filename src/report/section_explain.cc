// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>

#include "base/status.h"
#include "report/escape.h"
#include "report/figures.h"
#include "report/sections.h"

namespace tessera {
namespace {

constexpr size_t kChangedRows = 40, kNameLength = 110;

ChartBlock ladder_chart(const Explanation& e) {
  BarChart chart;
  if (e.compared && e.speedup && !e.ladder.empty()) {
    chart.legend = {{fill::k8Bits, "measured"}, {-1, "predicted"}};
  }
  for (const Rung& r : e.ladder) {
    const bool measured =
        e.compared && e.speedup && r.base == 'B' &&
        &r == &*std::find_if(e.ladder.begin(), e.ladder.end(), [](const Rung& x) { return x.base == 'B'; });
    chart.rows.push_back({.name = r.name,
                          .value = cat(ratio_words(r.speedup), r.nominal ? ", nominal" : ""),
                          .segments = {{fill::k8Bits, r.speedup, ""}},
                          .predicted = !measured});
  }
  return {cat("What the speedup over ", e.a.name, " would be, step by step."), std::move(chart),
          "Open bars are predictions."};
}

TableBlock ladder_table(const Explanation& e) {
  TableBlock t{.caption =
                   "The ladder's arithmetic. From: whose times it starts with. Nominal: with the ratio of rates "
                   "that data sheets give, not one that was measured here.",
               .columns = {{"step", false}, {"from", false}, {"arithmetic", false}, {"ms", true}, {"speedup", true}},
               .rows = {}};
  for (const Rung& r : e.ladder)
    t.rows.push_back({r.name, r.base == 'A' ? e.a.name : e.b.name, r.arithmetic, TableCell(decimals(r.ms, 3), r.ms),
                      TableCell(cat(ratio_words(r.speedup), r.nominal ? " (nominal)" : ""), r.speedup)});
  return t;
}

TableBlock recommendation_table(const Explanation& e) {
  TableBlock t{.caption = "What would help, the most gained first. Rows that change the same part do not add up.",
               .columns = {{"", false},
                           {"what", false},
                           {"predicted", true},
                           {"of", false},
                           {"saves, ms", true},
                           {"confidence", false}},
               .rows = {}};
  for (const Recommendation& r : e.recommendations) {
    t.rows.push_back({cat(t.rows.size() + 1, "."), r.what, TableCell(ratio_words(r.predicted), r.predicted), r.basis,
                      TableCell(decimals(r.gain_ms, 3), r.gain_ms), name_of(r.confidence)});
    t.rows.back()[1].strong = true;
  }
  return t;
}

// Why each is recommended, how sure that is, and what does it.
ListBlock recommendation_list(const Explanation& e) {
  ListBlock list{.items = {}, .numbered = true};
  for (const Recommendation& r : e.recommendations) {
    const bool is_command = r.flag.starts_with("--") || r.flag.starts_with("tessera ");
    std::string text = r.why;
    if (!r.because.empty()) text += cat("; confidence ", name_of(r.confidence), ": ", r.because);
    if (!is_command && !r.flag.empty()) text += cat(". ", r.flag);
    list.items.emplace_back(cat(text, "."), is_command ? r.flag : "");
  }
  return list;
}

TableBlock fallback_table(const Explanation& e) {
  TableBlock t{
      .caption = cat("Products in a higher precision than ", e.asked.empty() ? "asked" : e.asked,
                     e.asked_how.empty() ? "" : cat(" (", e.asked_how, ")"), "."),
      .columns =
          {{"kernel", false}, {"layer", false}, {"precision", false}, {"calls", true}, {"ms", true}, {"share", true}},
      .rows = {}};
  for (const Fallback& f : e.fallbacks)
    t.rows.push_back(
        {TableCell::code(cut_middle(f.kernel, kNameLength)),
         f.layer == f.kernel || f.layer.empty() ? TableCell("-") : TableCell::code(cut_middle(f.layer, kNameLength)),
         f.precision, TableCell(std::to_string(f.calls), static_cast<double>(f.calls)),
         TableCell(decimals(f.ms, 3), f.ms), TableCell(share_words(f.share), f.share)});
  return t;
}

// Where fallbacks are not looked for, the notes say so.
std::optional<TextBlock> fallback_block(const Explanation& e) {
  if (e.asked.empty() || !e.fallbacks_unknown_share) return {};
  std::string text = fallback_words(e);
  if (text.empty()) return {};
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  const bool unknown = e.fallbacks_unknown_share.value_or(0) > 0;
  return TextBlock{cat(text, " (asked: ", e.asked, ")."), unknown ? TextBlock::Kind::kWarning : TextBlock::Kind()};
}

TableBlock change_table(const Explanation& e) {
  TableBlock t{.caption = cat("What changed, by ", e.changes.by, ", the largest change first."),
               .columns = {{e.changes.by, false},
                           {cat(e.a.name, ", ms"), true},
                           {cat(e.b.name, ", ms"), true},
                           {"change, ms", true},
                           {"precision", false}},
               .rows = {},
               .folded = true};
  for (const LayerChange& c : e.changes.all) {
    if (t.rows.size() >= kChangedRows) {
      t.caption += cat(" ", e.changes.all.size() - kChangedRows, " that changed less are left out.");
      break;
    }
    const double by = c.b_ms - c.a_ms;
    const std::string to =
        c.b_precision == c.a_precision ? "" : cat(c.a_precision.empty() ? "" : " to ", c.b_precision);
    t.rows.push_back({TableCell::code(cut_middle(c.name, kNameLength)),
                      c.in_a ? TableCell(decimals(c.a_ms, 4), c.a_ms) : TableCell("-"),
                      c.in_b ? TableCell(decimals(c.b_ms, 4), c.b_ms) : TableCell("-"),
                      TableCell(signed_words(by, 4), by), cat(c.a_precision, to)});
  }
  return t;
}

// What was seen, a sentence each.
std::vector<ListItem> findings(const Explanation& e) {
  std::vector<ListItem> out;
  if (e.compared) out.emplace_back(cat("A is ", e.a.name, ", B is ", e.b.name, "."));
  if (e.speedup) {
    out.emplace_back(cat("Kernel time: ", decimals(e.a.kernel_ms, 3), " ms / ", decimals(e.b.kernel_ms, 3),
                         " ms = ", ratio_words(*e.speedup),
                         e.latency_speedup ? cat("; latency: ", ratio_words(*e.latency_speedup)) : "",
                         e.per_sample ? ", both per sample." : "."));
  }
  if (e.attention) {
    const AttentionChange& a = *e.attention;
    const bool same = a.a_precision == a.b_precision;
    const auto in = [&](const std::string& p) { return p.empty() || same ? std::string() : cat(" as ", p); };
    out.emplace_back(cat("Attention", a.unchanged ? " is unchanged: " : ": ", time_words(a.a_us), in(a.a_precision),
                         " in ", e.a.name, ", ", time_words(a.b_us), in(a.b_precision), " in ", e.b.name,
                         same && !a.a_precision.empty() ? cat(", both computed in ", a.a_precision) : "", "."));
  }
  if (e.compared && e.growth.a_ms > 0) {
    std::string most;
    for (const ClassTime& c : e.growth.grown) {
      if (most.size() > 80) break;
      most += cat(most.empty() ? "" : ", ", c.name, " ", decimals(c.a_ms, 3), " to ", decimals(c.b_ms, 3), " ms");
    }
    out.emplace_back(cat("Work outside the products: ", decimals(e.growth.a_ms, 3), " ms in ", e.a.name, ", ",
                         decimals(e.growth.b_ms, 3), " ms in ", e.b.name, " (",
                         ratio_words(e.growth.b_ms / e.growth.a_ms), ")", most.empty() ? "" : "; what grew: ", most,
                         "."));
  }
  for (const auto& [name, outside] : {std::pair(e.a.name, e.a_outside), std::pair(e.b.name, e.b_outside)}) {
    if (!outside) continue;
    std::string text = cat(name, ": latency ", decimals(outside->latency_ms, 3), " ms, kernels busy ",
                           decimals(outside->busy_ms, 3), " ms");
    // Both are medians of their own: the sum of the one may be above the other by what runs differ.
    if (outside->outside_ms > 0) {
      text += cat(", so ", decimals(outside->outside_ms, 3), " ms outside of them");
      if (outside->unexplained_ms > 0)
        text += cat(", of which ", decimals(outside->unexplained_ms, 3), " ms are not explained by gaps and copies");
    }
    out.emplace_back(text + ".");
  }
  return out;
}

TableBlock check_table(const Applied& applied) {
  TableBlock t{.caption = cat("Recommendations that ", applied.c.name, " shows as applied: predicted beside measured."),
               .columns = {{"what", false}, {"seen", false}, {"predicted gain, ms", true}, {"measured gain, ms", true}},
               .rows = {}};
  for (const auto& c : applied.checks)
    t.rows.push_back({c.what, c.seen, TableCell(decimals(c.predicted_gain_ms, 3), c.predicted_gain_ms),
                      TableCell(decimals(c.measured_gain_ms, 3), c.measured_gain_ms)});
  return t;
}

std::string heading_of(const Explanation& e, bool one_of_several) {
  if (!e.speedup) return cat(e.b.name, " beside ", e.a.name);
  if (*e.speedup < 1) return cat("Why ", e.b.name, " is slower than ", e.a.name);
  return cat("Why ", one_of_several ? cat(e.b.name, " is ") : "", ratio_words(*e.speedup),
             one_of_several ? " as fast" : "", " and not more");
}

}  // namespace

Section explanation_section(const ReportInput& input, const Explanation& e) {
  Section s{.heading = "What limits the speed", .blocks = {}};
  if (e.compared) s.heading = heading_of(e, input.explained.size() > 1);
  if (ListBlock found{.items = findings(e)}; !found.items.empty()) s.blocks.push_back(std::move(found));
  if (!e.fallbacks.empty()) s.blocks.push_back(fallback_table(e));
  if (const auto said = fallback_block(e)) s.blocks.push_back(*said);
  if (!e.ladder.empty()) {
    s.blocks.push_back(ladder_chart(e));
    s.blocks.push_back(ladder_table(e));
  }
  if (!e.recommendations.empty()) {
    s.blocks.push_back(recommendation_table(e));
    s.blocks.push_back(recommendation_list(e));
  }
  for (const Combination& c : e.combinations) {
    std::string which;
    for (size_t i = 0; i < c.of.size(); ++i)
      which += cat(i == 0 ? "" : i + 1 == c.of.size() ? " and " : ", ", c.of[i] + 1);
    s.blocks.push_back(TextBlock{cat(which, " together: ", ratio_words(c.predicted), ", ", c.arithmetic, ".")});
  }
  if (e.applied && !e.applied->checks.empty()) s.blocks.push_back(check_table(*e.applied));
  if (e.other_model) s.blocks.push_back(TextBlock{e.answer, TextBlock::Kind::kWarning});
  if (e.compared && !e.changes.all.empty()) s.blocks.push_back(change_table(e));
  if (!e.notes.empty()) s.blocks.push_back(ListBlock{.items = {e.notes.begin(), e.notes.end()}});
  return s;
}

}  // namespace tessera
