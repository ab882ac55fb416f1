// SPDX-License-Identifier: Apache-2.0
// The answer in one sentence, the reasons that cost most first, and what the numbers do not tell.
#include <algorithm>
#include <cmath>

#include "explain/numbers.h"
#include "explain/parts.h"

namespace tessera {
namespace {

constexpr double kSame = 0.01;  // of the time
constexpr double kManyUnclassified = 0.05;
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

// Why a lower precision brought less than its ratio of rates.
std::vector<std::string> reasons_of(const Case& c, const Explanation& e) {
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
  if (e.attention && e.attention->unchanged) {
    reasons.push_back({c.in_b.attention / 2, "attention did not change (" + c.time(e.attention->a_us) + " and " +
                                                 c.time(e.attention->b_us) + ")"});
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
  std::string text = c.time(c.in_b.kernels) + " of kernel time: " + joined(words);
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

std::string head_of(const Case& c, const Explanation& e) {
  std::string text = times(*e.speedup) + " on kernel time" + (e.per_sample ? " per sample" : "");
  if (e.latency_speedup) text += ", " + times(*e.latency_speedup) + " on latency" + (e.per_sample ? " per sample" : "");
  return text + " (kernels " + c.time(c.in_a.kernels) + " -> " + c.time(c.in_b.kernels) + ")";
}

}  // namespace

std::string answer_of(const Case& c, const Explanation& e) {
  if (!c.compared) return of_alone(c, e);
  if (!e.speedup) return "One of the profiles has no kernel times, so there is no speedup to explain.";
  const std::string head = head_of(c, e);
  if (e.per_sample) return head + "; batch sizes differ, so the parts are not compared.";
  const std::optional<Ratio> promised = c.rates.ratio(c.in_a.main_precision(), c.low);
  const bool lower = c.lowered() && promised && promised->value > 1;
  if (lower && *e.speedup < 0.95 * promised->value) {
    const std::vector<std::string> reasons = reasons_of(c, e);
    std::string text = head + ", not " + ratio_text(promised->value) + "x";
    if (!reasons.empty()) text += ": " + joined(reasons);
    if (!e.ladder.empty() && e.ladder[0].base == 'A')
      text += "; with all " + c.products_word() + " at " + ratio_text(promised->value) +
              "x and the rest as in A it would be " + times(e.ladder[0].speedup);
    return text + ".";
  }
  if (std::fabs(*e.speedup - 1) <= kSame) return head + ": no difference beyond 1 %.";
  if (*e.speedup < 1) return head + ": B is slower" + most_slowed(e) + ".";
  return head + (lower ? ", about what " + c.low + " promises." : ".");
}

std::vector<std::string> notes_of(const Case& c, const Explanation& e) {
  std::vector<std::string> notes;
  const auto both_told = [](const auto& x, const auto& y) {
    return x != decltype(x){} && y != decltype(y){} && x != y;
  };
  if (e.per_sample)
    notes.push_back(cat("A has batch ", c.a.batch, " and B ", c.b.batch,
                        ": tables are of one run, speedups per sample, and there is no ladder"));
  if (both_told(c.a.machine, c.b.machine))
    notes.push_back("A ran on " + c.a.machine + " and B on " + c.b.machine +
                    ": the speedup is of both, model and machine");
  if (both_told(c.a.model, c.b.model)) notes.push_back("A is of model " + c.a.model + " and B of " + c.b.model);
  for (const Profile* p : {&c.a, &c.b}) {
    if (p == &c.b && !c.compared) break;
    const std::string name = !c.compared ? "" : p == &c.a ? "A: " : "B: ";
    const ProfileFacts& facts = p == &c.a ? e.a : e.b;
    if (facts.unclassified_share > kManyUnclassified)
      notes.push_back(name + percent(facts.unclassified_share) +
                      " of the time is in kernels that no rule knows; they count as work outside " + c.products_word() +
                      " (--rules FILE adds names)");
    for (const std::string& note : p->notes) notes.push_back(name + note);
  }
  if (c.lowered() && !at_reached_rate(c)) {
    const auto share = c.b_coverage.flops.of(c.low);
    if (share && *share > 0 && *share < 1)
      notes.push_back(c.low +
                      " GEMMs run no faster here than those in a higher precision: quantizing more would not help");
  }
  const bool nominal = std::any_of(e.ladder.begin(), e.ladder.end(), [](const Rung& r) { return r.nominal; });
  if (nominal) notes.push_back("the chip's rates are nominal: fp16 and bf16 1, fp8 and int8 2, fp4 4");
  if (runs_on_cpu(c.b))
    notes.push_back(
        "a CPU stores codes and multiplies in bf16, int8 or fp32: asked precisions are not held against its "
        "arithmetic");
  return notes;
}

}  // namespace tessera
