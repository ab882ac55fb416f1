// SPDX-License-Identifier: Apache-2.0
// The parts of an explanation, a function each; explain.cc puts them together.
#pragma once

#include "explain/case.h"
#include "explain/explain.h"

namespace tessera {

// Of one profile without another to estimate from.
Coverage coverage_alone(const Sums& sums);
// Of B. Contract: sums, asked and rates of the case are there.
Coverage coverage_of(const Case& c);

std::vector<ClassTime> classes_of(const Case& c);
std::vector<GraphChange> graphs_of(const Case& c);
Changes changes_of(const Case& c);
std::optional<AttentionChange> attention_of(const Case& c);
GrownWork growth_of(const Case& c);
std::optional<Outside> outside_of(const Profile& profile);
// Fills what an explanation says of them.
void find_fallbacks(const Case& c, Explanation& e);
std::vector<Rung> ladder_of(const Case& c);
std::vector<Recommendation> recommend(const Case& c);
std::vector<Combination> combine(const Case& c, const std::vector<Recommendation>& recommendations);
// Which recommendations profile `made` shows as applied, and what they brought.
Applied applied_in(const Case& c, const std::vector<Recommendation>& recommendations, const Profile& made);
// In a sentence without its end; empty: both are of one model at one size, as far as they tell.
std::string why_other_model(const Case& c);
// Names of models, work or layers say that both are of one model; false: nothing says so, nor that they are not.
bool is_known_model(const Case& c);
std::string answer_of(const Case& c, const Explanation& e);
std::vector<std::string> notes_of(const Case& c, const Explanation& e);

// All products at the rate that those in the lowest precision reach; none where it is not known or no gain.
struct AtReachedRate {
  double us = 0;
  std::string arithmetic;  // "1.37 ms / 0.772"
};
std::optional<AtReachedRate> at_reached_rate(const Case& c);

// Of B's attention, else of A's products where it took as long as A's; empty: not known.
std::string attention_precision(const Case& c);

}  // namespace tessera
