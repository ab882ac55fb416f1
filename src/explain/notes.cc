// SPDX-License-Identifier: Apache-2.0
// What the numbers of an explanation do not tell, a sentence each.
#include <algorithm>

#include "archs/chip.h"
#include "explain/numbers.h"
#include "explain/parts.h"

namespace tessera {
namespace {

constexpr double kManyUnclassified = 0.05;
constexpr double kManyGaps = 0.05;  // of the time from the first kernel to the last

void add_of_profile(std::vector<std::string>& notes, const std::string& name, const Profile& p,
                    const ProfileFacts& facts) {
  if (facts.unclassified_share > kManyUnclassified)
    notes.push_back(name + percent(facts.unclassified_share) +
                    " of the time is in kernels that no rule knows: it counts as work outside GEMMs (--rules FILE adds "
                    "names)");
  if (p.predicted) notes.push_back(name + "times are predicted from a chip's data, not measured");
  for (const std::string& note : p.notes) notes.push_back(name + note);
}

bool told_and_different(const std::string& x, const std::string& y) { return !x.empty() && !y.empty() && x != y; }

// A run without a latency still has its gaps: time from the first kernel to the last, in which none ran.
std::string gap_words(const Case& c) {
  if (c.a.latency || c.b.latency || !c.a.gap_us || !c.b.gap_us || !c.same_work) return "";
  const auto span = [](const Profile& p, const Sums& s) { return s.kernels - p.overlap_us.value_or(0) + *p.gap_us; };
  const double a = span(c.a, c.in_a), b = span(c.b, c.in_b);
  if (b <= 0 || (*c.a.gap_us < kManyGaps * a && *c.b.gap_us < kManyGaps * b)) return "";
  return "no kernel ran for " + c.time(*c.a.gap_us) + " of A's " + c.time(a) +
         " from its first kernel to its last, and " + c.time(*c.b.gap_us) + " of B's " + c.time(b) + ": " +
         times(a / b) + " with these gaps, which a CUDA graph closes";
}

void add_of_both(std::vector<std::string>& notes, const Case& c) {
  if (!c.same_work && c.other_model.empty())
    notes.push_back(cat("A has batch ", c.a.batch, " and B ", c.b.batch,
                        ": tables are of one run, speedups per sample, and there is no ladder"));
  if (told_and_different(c.a.machine, c.b.machine) && c.other_model.empty())
    notes.push_back("A ran on " + c.a.machine + " and B on " + c.b.machine + ": the speedup is of both changes");
  if (told_and_different(c.a.model, c.b.model) && c.other_model.empty())
    notes.push_back("A is of the model " + c.a.model + " and B of " + c.b.model);
  if (c.other_model.empty() && !is_known_model(c))
    notes.push_back("nothing in the files says that A and B are runs of one model: neither names, work nor layers");
  if (const std::string words = gap_words(c); !words.empty() && c.other_model.empty()) notes.push_back(words);
  const std::optional<double> share = c.b_coverage.flops.of(c.low);
  if (c.lowered() && !at_reached_rate(c) && share && *share > 0 && *share < 1)
    notes.push_back(c.low +
                    " GEMMs run no faster here than those in a higher precision: quantizing more would not help");
}

}  // namespace

std::vector<std::string> notes_of(const Case& c, const Explanation& e) {
  std::vector<std::string> notes;
  if (c.compared) add_of_both(notes, c);
  add_of_profile(notes, c.compared ? "A: " : "", c.a, e.a);
  if (c.compared) add_of_profile(notes, "B: ", c.b, e.b);
  if (std::any_of(e.ladder.begin(), e.ladder.end(), [](const Rung& r) { return r.nominal; }))
    notes.push_back("the chip's rates are nominal: fp16 and bf16 1, fp8 and int8 2, fp4 4");
  if (c.b.source != "tessera" && !c.b.machine.empty() && find_chip(c.b.machine) == nullptr)
    notes.push_back("Tessera has no data of " + c.b.machine + ": its build lines are for its own targets");
  if (!e.fallbacks_not_sought.empty()) notes.push_back(e.fallbacks_not_sought);
  // Where everything fell back, the lowest precision is the one that it fell back to.
  if (c.asked.how.starts_with("not told") && e.fallbacks_not_sought.empty())
    notes.push_back(std::string(c.compared ? "B" : "the profile") + " does not say which precision was asked for; " +
                    c.asked.precision + " is taken, and if all of it fell back, that does not show: pass --asked");
  return notes;
}

}  // namespace tessera
