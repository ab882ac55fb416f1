// SPDX-License-Identifier: Apache-2.0
// The answer in one sentence, the reasons that cost most first.
#include <algorithm>
#include <cmath>

#include "explain/numbers.h"
#include "explain/parts.h"

namespace tessera {
namespace {

constexpr double kSame = 0.01;   // of the time
constexpr double kBeyond = 1.1;  // a speedup beyond its ceiling by more has another cause
constexpr size_t kReasons = 3;

struct Reason {
  double lost_us;
  std::string text;
};

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) text += (i == 0 ? "" : i + 1 == words.size() ? ", and " : ", ") + words[i];
  return text;
}

// How many times as fast the GEMMs in the lowest precision are as A's; none: not known.
std::optional<double> reached_ratio(const Case& c) {
  const std::optional<double> share = c.b_coverage.flops.of(c.low);
  double low_us = 0;
  for (const PrecisionSum& p : c.in_b.covered_precisions) {
    if (p.precision == c.low) low_us = p.us;
  }
  if (!share || low_us <= 0 || c.in_a.covered <= 0) return {};
  return c.in_a.covered * *share / low_us;
}

// Why a lower precision brought less than its ratio of rates, what costs most first.
std::vector<std::string> reasons_of(const Case& c, const Explanation& e, double promised) {
  std::vector<Reason> reasons;
  const double grown = c.in_b.rest - c.in_a.rest;
  if (grown > kSame * c.in_b.kernels) {
    reasons.push_back({grown, "work outside " + c.products_word() + " grew from " + c.time(e.growth.a_ms * 1000) +
                                  " to " + c.time(e.growth.b_ms * 1000)});
  }
  for (const PrecisionSum& p : c.in_b.precisions) {
    const std::optional<Ratio> ratio = c.rates.ratio(p.precision, c.low);
    if (!is_lower(c.low, p.precision) || p.us < kSame * c.in_b.kernels) continue;
    reasons.push_back(
        {p.us - p.us / (ratio ? ratio->value : 1),
         percent(p.us / c.in_b.kernels) + " of the time is still " + p.precision + " " + c.products_word()});
  }
  if (const auto reached = reached_ratio(c); reached && *reached < 0.9 * promised) {
    const double us = c.in_a.covered * *c.b_coverage.flops.of(c.low);
    std::string text = c.low + " " + c.covered_word() + " are " + times(*reached) + " as fast as A's " +
                       c.in_a.main_precision() + " ones";
    for (const PrecisionSum& p : c.in_b.covered_precisions) {
      if (p.precision == c.low && p.memory_us > 0.5 * p.us)
        text += ", as memory bounds " + percent(p.memory_us / p.us) + " of their time";
    }
    reasons.push_back({us / *reached - us / promised, text});
  }
  if (e.attention && e.attention->unchanged) {
    reasons.push_back({c.in_b.attention / 2, "attention did not change (" + fixed(e.attention->a_us, 0) + " and " +
                                                 fixed(e.attention->b_us, 0) + " us)"});
  }
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const Reason& x, const Reason& y) { return x.lost_us > y.lost_us; });
  std::vector<std::string> words;
  for (size_t i = 0; i < std::min(kReasons, reasons.size()); ++i) words.push_back(reasons[i].text);
  return words;
}

std::string of_alone(const Case& c, const Explanation& e) {
  if (c.in_b.kernels <= 0) return "The profile has no kernel times, so nothing can be said about it.";
  std::vector<const ClassTime*> largest;
  for (const ClassTime& t : e.classes) largest.push_back(&t);
  std::stable_sort(largest.begin(), largest.end(), [](auto* x, auto* y) { return x->a_ms > y->a_ms; });
  std::vector<std::string> words;
  for (size_t i = 0; i < std::min(kReasons, largest.size()); ++i)
    words.push_back(percent(largest[i]->a_share) + " " + largest[i]->name);
  std::string text =
      c.time(c.in_b.kernels) + " of kernel time" + (c.b.predicted ? " (predicted)" : "") + ": " + joined(words);
  if (!e.fallbacks.empty()) {
    double share = 0;
    for (const Fallback& f : e.fallbacks) share += f.share;
    text += "; asked " + e.asked + ", but " + percent(share) + " of the time is in a higher precision";
  }
  for (const Rung& r : e.ladder) {
    if (r.speedup > 1.005) return text + "; next rung: " + r.name + ", " + times(r.speedup) + ".";
  }
  return text + ".";
}

// The class whose time changed most, for a B that is slower.
std::string most_slowed(const Explanation& e) {
  const ClassTime* most = nullptr;
  for (const ClassTime& t : e.classes) {
    if (most == nullptr || t.b_ms - t.a_ms > most->b_ms - most->a_ms) most = &t;
  }
  const double scale = std::max(e.a.kernel_ms, e.b.kernel_ms);
  return most == nullptr || most->b_ms <= most->a_ms
             ? ""
             : ", most of it in class " + most->name + " (" + duration(most->a_ms, scale) + " -> " +
                   duration(most->b_ms, scale) + ")";
}

// " (B predicted)": a time of a chip's data against a measured one says less than two of a kind.
std::string predicted_words(const Case& c) {
  if (!c.a.predicted && !c.b.predicted) return "";
  return c.a.predicted && c.b.predicted ? " (both predicted)" : c.b.predicted ? " (B predicted)" : " (A predicted)";
}

// Where the slower runs of one profile are further from its median than the two medians from each other.
std::string spread_words(const Case& c, const Explanation& e) {
  if (!e.latency_speedup || !c.a.latency || !c.b.latency) return "";
  const auto spread_of = [](const Latency& l) { return l.median_ms > 0 ? l.p90_ms / l.median_ms - 1 : 0; };
  const double spread = std::max(spread_of(*c.a.latency), spread_of(*c.b.latency));
  const double apart = std::max(*e.latency_speedup, 1 / *e.latency_speedup) - 1;
  if (apart >= spread || spread <= kSame) return "";
  return ", within what runs differ by here (p90 is " + percent(spread) + " above the median)";
}

std::string head_of(const Case& c, const Explanation& e) {
  std::string text = times(*e.speedup) + " on kernel time" + (e.per_sample ? " per sample" : "") + predicted_words(c);
  if (e.latency_speedup) text += ", " + times(*e.latency_speedup) + " on latency" + (e.per_sample ? " per sample" : "");
  return text + " (kernels " + c.time(c.in_a.kernels) + " -> " + c.time(c.in_b.kernels) + ")" + spread_words(c, e);
}

// Of a speedup that reaches the ratio of the chip's rates.
std::string promised_words(const Case& c, const Explanation& e, double promised) {
  const double most = !e.ladder.empty() && e.ladder[0].base == 'A' ? e.ladder[0].speedup : promised;
  if (*e.speedup > kBeyond * most)
    return ", more than " + c.low + " " + c.products_word() + " alone can give (" + times(most) +
           "): other work changed too" + (is_known_model(c) ? "" : ", or these are two models");
  return is_known_model(c) ? ", about what " + c.low + " promises" : "";
}

}  // namespace

std::string answer_of(const Case& c, const Explanation& e) {
  if (!c.compared) return of_alone(c, e);
  if (e.other_model) return e.no_speedup + ".";
  if (!e.speedup) return "One of the profiles has no kernel times, so there is no speedup to explain.";
  const std::string head = head_of(c, e);
  if (e.per_sample) return head + "; batch sizes differ, so the parts are not compared.";
  const std::optional<Ratio> promised = c.rates.ratio(c.in_a.main_precision(), c.low);
  const bool lower = c.lowered() && promised && promised->value > 1;
  if (lower && *e.speedup < 0.95 * promised->value) {
    const std::vector<std::string> reasons = reasons_of(c, e, promised->value);
    std::string text = head + ", not " + ratio_text(promised->value) + "x";
    if (!reasons.empty()) text += ": " + joined(reasons);
    if (!e.ladder.empty() && e.ladder[0].base == 'A')
      text += "; " + c.products_word() + " are " + percent(c.in_a.products / c.in_a.kernels) + " of A, so " +
              times(e.ladder[0].speedup) + " is the most that they alone can give";
    return text + ".";
  }
  if (std::fabs(*e.speedup - 1) <= kSame) return head + ": no difference beyond 1 %.";
  if (*e.speedup < 1) return head + ": B is slower" + most_slowed(e) + ".";
  return head + (lower ? promised_words(c, e, promised->value) : "") + ".";
}

}  // namespace tessera
