// SPDX-License-Identifier: Apache-2.0
#include "cli/explain_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "cli/output.h"
#include "explain/numbers.h"

namespace tessera {
namespace {

constexpr size_t kShown = 10;        // changes and fallbacks; --all and JSON have every one
constexpr size_t kNameColumns = 64;  // of a kernel in a sentence
constexpr size_t kIndent = 4;

class Printer {
 public:
  Printer(const Explanation& e, bool all) : e_(e), all_(all), scale_(std::max(e.a.kernel_ms, e.b.kernel_ms)) {}
  void print() const;

 private:
  std::string ms(double x) const { return duration(x, scale_); }
  // "-3.54 ms"; no sign where it rounds to nothing.
  std::string change(double a, double b) const {
    const std::string text = duration(std::fabs(b - a), scale_);
    if (text.find_first_of("123456789") == std::string::npos) return text;
    return (b < a ? "-" : "+") + text;
  }
  std::string signed_ms(double x) const { return (x < 0 ? "-" : "") + ms(std::fabs(x)); }
  static void title(const std::string& text) { fmt::print("\n{}\n", text); }
  static void say(const std::string& text, size_t first = 0, size_t rest = 2) {
    fmt::print("{}\n", wrap(printable(text), first, rest));
  }
  void files() const;
  void file(const char* name, const ProfileFacts& f) const;
  void classes() const;
  void graphs() const;
  void class_row(Table& table, const std::string& name, const PrecisionTime& t) const;
  void coverage() const;
  void coverage_of(const char* of, const Coverage& c) const;
  void fallbacks() const;
  void changed_work() const;
  void outside() const;
  void sizes() const;
  void ladder() const;
  void changes() const;
  void recommendations() const;
  void applied() const;
  void notes() const;

  const Explanation& e_;
  const bool all_;
  const double scale_;
};

void Printer::file(const char* name, const ProfileFacts& f) const {
  std::string text = (f.name.empty() ? std::string("?") : f.path) + " (" + f.source;
  for (const std::string& word : {f.model, f.precision, f.machine}) text += word.empty() ? "" : ", " + word;
  if (f.batch > 0) text += fmt::format(", batch {}", f.batch);
  print_record(
      name, text + "): kernels " + ms(f.kernel_ms) + (f.latency_ms ? ", latency " + ms(*f.latency_ms) : std::string()));
}

void Printer::files() const {
  file("A", e_.a);
  if (e_.compared) file("B", e_.b);
  if (e_.applied) file("C", e_.applied->c);
}

void Printer::class_row(Table& table, const std::string& name, const PrecisionTime& t) const {
  const auto share = [](double part, double whole) { return part > 0 ? percent(part / whole) : std::string("-"); };
  const auto time = [&](double x) { return x > 0 ? ms(x) : std::string("-"); };
  std::vector<std::string> row{name, time(t.a_ms), share(t.a_ms, e_.a.kernel_ms)};
  if (e_.compared) {
    for (const std::string& cell : {time(t.b_ms), share(t.b_ms, e_.b.kernel_ms)}) row.push_back(cell);
    if (!e_.other_model) row.push_back(change(t.a_ms, t.b_ms));
  }
  table.add(std::move(row));
}

void Printer::classes() const {
  title("Kernel time by class");
  std::vector<std::string> titles = {"class", e_.compared ? ">A" : ">time", ">share"};
  if (e_.compared) titles.insert(titles.end(), {">B", ">share"});
  if (e_.compared && !e_.other_model) titles.emplace_back(">change");
  Table table(titles);
  for (const ClassTime& t : e_.classes) {
    class_row(table, t.name, {.a_ms = t.a_ms, .b_ms = t.b_ms});
    for (const PrecisionTime& p : t.precisions) class_row(table, "  " + p.precision, p);
  }
  class_row(table, "all", {.a_ms = e_.a.kernel_ms, .b_ms = e_.b.kernel_ms});
  fmt::print("{}", table.text());
  say("unclassified, by no rule known: " + percent(e_.a.unclassified_share) +
      (e_.compared ? " of A, " + percent(e_.b.unclassified_share) + " of B" : ""));
}

void Printer::graphs() const {
  if (e_.graphs.empty()) return;
  title("Kernel time by graph, all of its runs together");
  std::vector<std::string> titles = {"graph", ">times", e_.compared ? ">A" : ">time", ">share"};
  if (e_.compared) titles.insert(titles.end(), {">B", ">share", ">change"});
  Table table(titles);
  for (const GraphChange& g : e_.graphs) {
    const bool both = e_.compared && g.a_times != g.b_times;
    std::vector<std::string> row = {g.graph, both ? fmt::format("{}, {}", g.a_times, g.b_times) : cat(g.a_times),
                                    ms(g.a_ms), percent(e_.a.kernel_ms > 0 ? g.a_ms / e_.a.kernel_ms : 0)};
    if (e_.compared) {
      const double share = e_.b.kernel_ms > 0 ? g.b_ms / e_.b.kernel_ms : 0;
      for (const std::string& cell : {ms(g.b_ms), percent(share), change(g.a_ms, g.b_ms)}) row.push_back(cell);
    }
    table.add(std::move(row));
  }
  fmt::print("{}", table.text());
}

void Printer::coverage_of(const char* of, const Coverage& c) const {
  title(fmt::format("Precision of {} GEMMs: three different shares", of));
  Table table({"precision", ">by time", ">by flops", ">by bytes"});
  std::vector<std::string> names;
  for (const ShareTable* t : {&c.time, &c.flops, &c.bytes}) {
    for (const PrecisionShare& s : t->shares) {
      if (std::find(names.begin(), names.end(), s.precision) == names.end()) names.push_back(s.precision);
    }
  }
  const auto cell = [](const ShareTable& t, const std::string& name) {
    const std::optional<double> share = t.of(name);
    return share ? percent(*share) : std::string(t.origin == Origin::kNotKnown ? "not known" : "-");
  };
  for (const std::string& name : names) table.add({name, cell(c.time, name), cell(c.flops, name), cell(c.bytes, name)});
  if (!names.empty()) fmt::print("{}", table.text());
  const auto how = [](const char* by, const ShareTable& t) {
    say(fmt::format("{}: {}{}", by, name_of(t.origin), t.why.empty() ? "" : " (" + t.why + ")"));
  };
  how("by time", c.time);
  how("by flops", c.flops);
  how("by bytes", c.bytes);
}

void Printer::coverage() const {
  const Coverage& c = e_.compared ? e_.b_coverage : e_.a_coverage;
  if (!c.time.shares.empty()) coverage_of(e_.compared ? "B's" : "the", c);
}

void Printer::fallbacks() const {
  if (e_.asked.empty()) return;
  title("Precision asked for: " + e_.asked + " (" + e_.asked_how + ")");
  const size_t shown = all_ ? e_.fallbacks.size() : std::min(kShown, e_.fallbacks.size());
  for (size_t i = 0; i < shown; ++i) {
    const Fallback& f = e_.fallbacks[i];
    std::string text = fmt::format("FALLBACK  asked {}; {} of the time is an {} {}: {}", f.asked, percent(f.share),
                                   f.precision, f.kind, short_kernel(f.kernel));
    if (!f.layer.empty() && f.layer != f.kernel) text += ", layer " + shorten(f.layer, kNameColumns);
    say(text + fmt::format(" ({}, {})", plural(f.calls, "call"), ms(f.ms)), 2, 12);
  }
  if (shown < e_.fallbacks.size()) say(fmt::format("and {} more (--all)", e_.fallbacks.size() - shown), 2, 4);
  if (const std::string words = fallback_words(e_); !words.empty()) say(words, 2, 4);
}

void Printer::changed_work() const {
  if (!e_.compared || e_.other_model) return;
  title("What a lower precision should not change");
  if (e_.attention) {
    const AttentionChange& t = *e_.attention;
    const auto precision = [](const std::string& p) { return p.empty() ? std::string("precision not told") : p; };
    print_record("attention", fmt::format("{:.0f} us ({}) -> {:.0f} us ({}){}", t.a_us, precision(t.a_precision),
                                          t.b_us, precision(t.b_precision), t.unchanged ? ": unchanged" : ""));
  }
  std::string text = ms(e_.growth.a_ms) + " -> " + ms(e_.growth.b_ms) + " with attention, " + ms(e_.growth.a_rest_ms) +
                     " -> " + ms(e_.growth.b_rest_ms) + " without";
  for (size_t i = 0; i < e_.growth.grown.size(); ++i) {
    const ClassTime& t = e_.growth.grown[i];
    text += (i == 0 ? "; grown: " : ", ") + t.name + " " + change(t.a_ms, t.b_ms);
  }
  print_record("non-GEMM", text);
}

void Printer::outside() const {
  if (!e_.a_outside && !e_.b_outside) return;
  title("Latency minus kernel time");
  Table table(
      {"", ">latency", ">kernels run", ">outside", ">gaps", ">copies", ">not explained", ">enqueue", ">overlap"});
  const auto row = [&](const char* name, const std::optional<Outside>& o) {
    if (!o) return;
    const auto cell = [&](const std::optional<double>& x) { return x ? ms(*x) : std::string("-"); };
    table.add({name, ms(o->latency_ms), ms(o->busy_ms), signed_ms(o->outside_ms), cell(o->gap_ms), cell(o->copies_ms),
               signed_ms(o->unexplained_ms), cell(o->enqueue_ms), cell(o->overlap_ms)});
  };
  row(e_.compared ? "A" : "", e_.a_outside);
  row("B", e_.b_outside);
  fmt::print("{}", table.text());
}

void Printer::sizes() const {
  Table table({"sizes", ">A", ">B", ">A / B"});
  bool any = false;
  const auto row = [&](const char* name, const std::optional<int64_t>& a, const std::optional<int64_t>& b) {
    if (!a && !b) return;
    any = true;
    const auto cell = [](const std::optional<int64_t>& x) { return x ? megabytes(*x) : std::string("-"); };
    const bool both = a && b && *b > 0;
    table.add({name, cell(a), cell(b), both ? ratio_digits(static_cast<double>(*a) / static_cast<double>(*b)) : "-"});
  };
  row("engine", e_.a_sizes.engine_bytes, e_.b_sizes.engine_bytes);
  row("weights", e_.a_sizes.weight_bytes, e_.b_sizes.weight_bytes);
  row("working memory", e_.a_sizes.arena_bytes, e_.b_sizes.arena_bytes);
  if (any && e_.compared) fmt::print("\n{}", table.text());
}

void Printer::ladder() const {
  if (e_.ladder.size() < 2) return;
  title(e_.compared ? "Ladder: speedup over A if one limit after the other fell (each with those above it)"
                    : "Ladder: speedup if one limit after the other fell (each with those above it)");
  for (const Rung& r : e_.ladder) {
    const std::string from = e_.compared ? fmt::format("from {}: ", r.base) : "";
    say(fmt::format("{:>6}  {}{}", times(r.speedup), from, r.name), 2, 10);
    if (r.arithmetic.find(' ') != std::string::npos && r.name != "now")
      say(r.arithmetic + (r.nominal ? " (nominal)" : ""), 10, 12);
  }
}

// Layers of the same place in every block as one row.
std::vector<LayerChange> by_pattern(const std::vector<LayerChange>& layers) {
  std::vector<LayerChange> rows;
  std::map<std::tuple<std::string, std::string, std::string>, size_t> places;  // pattern and both precisions
  for (const LayerChange& l : layers) {
    const std::string pattern = layer_pattern(l.name);
    const auto [at, fresh] = places.emplace(std::tuple(pattern, l.a_precision, l.b_precision), rows.size());
    if (fresh) {
      rows.push_back(l);
      rows.back().name = pattern;
      continue;
    }
    LayerChange& row = rows[at->second];
    row.a_ms += l.a_ms, row.b_ms += l.b_ms;
    row.in_a |= l.in_a, row.in_b |= l.in_b;
  }
  std::stable_sort(rows.begin(), rows.end(), [](const LayerChange& x, const LayerChange& y) {
    return std::fabs(x.b_ms - x.a_ms) > std::fabs(y.b_ms - y.a_ms);
  });
  return rows;
}

void Printer::changes() const {
  if (e_.changes.all.empty()) return;
  title("What changed most, by " + e_.changes.by);
  Table table({e_.changes.by, ">A", ">B", ">change", "precision"});
  const std::vector<LayerChange> rows = all_ ? e_.changes.all : by_pattern(e_.changes.all);
  const size_t shown = all_ ? rows.size() : std::min(kShown, rows.size());
  for (size_t i = 0; i < shown; ++i) {
    const LayerChange& l = rows[i];
    std::string precision = l.a_precision == l.b_precision ? l.a_precision : l.a_precision + " -> " + l.b_precision;
    if (!l.in_a || l.a_precision.empty()) precision = l.b_precision;
    if (!l.in_b || l.b_precision.empty()) precision = l.a_precision;
    table.add({l.name.empty() ? "(no layer)" : l.name, l.in_a ? ms(l.a_ms) : "-", l.in_b ? ms(l.b_ms) : "-",
               change(l.a_ms, l.b_ms), precision});
  }
  fmt::print("{}", table.text());
  if (shown < rows.size()) fmt::print("and {} more (--all: each layer)\n", rows.size() - shown);
}

void Printer::recommendations() const {
  if (e_.recommendations.empty()) return;
  title(e_.compared ? "What to do, most gained first (predicted speedup on kernel time over A, each alone)"
                    : "What to do, most gained first (predicted speedup on kernel time, each alone)");
  for (size_t i = 0; i < e_.recommendations.size(); ++i) {
    const Recommendation& r = e_.recommendations[i];
    const std::string on = r.basis == "kernel time" ? "" : " on " + r.basis;
    say(fmt::format("{}. {}{}  {} (saves {})", i + 1, times(r.predicted), on, r.what, ms(r.gain_ms)), 0, kIndent);
    const auto line = [](const char* name, const std::string& text) {
      say(fmt::format("{:<12}{}", name, text), kIndent, kIndent + 12);
    };
    line("why", r.why);
    line("arithmetic", r.arithmetic);
    line("confidence", fmt::format("{}: {}", name_of(r.confidence), r.because));
    line("how", r.flag);
  }
  for (const Combination& c : e_.combinations) {
    std::string numbers;
    for (const size_t j : c.of) numbers += (numbers.empty() ? "" : " + ") + std::to_string(j + 1);
    say(fmt::format("{} together: {} ({})", numbers, times(c.predicted), c.arithmetic), 0, kIndent);
  }
}

void Printer::applied() const {
  if (!e_.applied) return;
  title("What was applied in C, predicted against measured");
  Table table({"applied", ">predicted gain", ">measured", ">reached", "seen"});
  for (const AppliedCheck& c : e_.applied->checks) {
    table.add({c.id, ms(c.predicted_gain_ms), signed_ms(c.measured_gain_ms),
               c.predicted_gain_ms > 0 ? percent(c.measured_gain_ms / c.predicted_gain_ms) : "-", c.seen});
  }
  if (e_.applied->checks.empty()) {
    say("C shows none of the recommendations", 2, 4);
  } else {
    fmt::print("{}", table.text());
  }
  const auto speedup = [](const std::optional<double>& x) { return x ? times(*x) : "not known"; };
  say("speedup over A on kernel time: predicted " + speedup(e_.applied->predicted) + ", measured " +
      speedup(e_.applied->measured));
  for (const std::string& what : e_.applied->not_seen) say("not seen: " + what, 0, 2);
}

void Printer::notes() const {
  if (e_.notes.empty()) return;
  title("Notes");
  for (const std::string& n : e_.notes) say("- " + n, 0, 2);
}

void Printer::print() const {
  say(e_.answer, 0, 0);
  fmt::print("\n");
  files();
  graphs();
  classes();
  coverage();
  fallbacks();
  changed_work();
  outside();
  sizes();
  ladder();
  changes();
  recommendations();
  applied();
  notes();
}

}  // namespace

void print_explanation(const Explanation& explanation, bool all) { Printer(explanation, all).print(); }

}  // namespace tessera
