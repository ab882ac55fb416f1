// SPDX-License-Identifier: Apache-2.0
#include "explain/explain.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "explain/numbers.h"
#include "explain/parts.h"

namespace tessera {
namespace {

ProfileFacts facts_of(const Profile& p, const Sums& s) {
  const std::optional<Outside> outside = outside_of(p);
  ProfileFacts facts{.name = std::filesystem::path(p.path).filename().string(),
                     .path = p.path,
                     .source = p.source,
                     .model = p.model,
                     .machine = p.machine,
                     .precision = p.precision,
                     .batch = p.batch,
                     .kernel_ms = s.kernels / 1000,
                     .latency_ms = {},
                     .products_ms = s.products / 1000,
                     .attention_ms = s.attention / 1000,
                     .rest_ms = s.rest / 1000};
  if (outside) facts.latency_ms = outside->latency_ms;
  if (s.kernels > 0) facts.unclassified_share = s.by_class[static_cast<size_t>(KernelClass::kUnknown)] / s.kernels;
  return facts;
}

Sizes sizes_of(const Profile& p) { return {p.engine_bytes, p.weight_bytes, p.arena_bytes}; }

void compare(const Case& c, Explanation& e) {
  e.b = facts_of(c.b, c.in_b);
  e.b_coverage = c.b_coverage;
  e.b_outside = outside_of(c.b);
  e.b_sizes = sizes_of(c.b);
  e.other_model = !c.other_model.empty();
  e.no_speedup = e.other_model ? c.other_model : c.has_times() ? "" : "one of the profiles has no kernel times";
  if (e.other_model) return;
  e.per_sample = !c.same_work;
  const double samples = e.per_sample ? static_cast<double>(c.b.batch) / static_cast<double>(c.a.batch) : 1;
  if (c.has_times()) e.speedup = c.in_a.kernels / c.in_b.kernels * samples;
  if (e.a_outside && e.b_outside) e.latency_speedup = e.a_outside->latency_ms / e.b_outside->latency_ms * samples;
}

Explanation explain_case(const Case& c) {
  Explanation e;
  e.compared = c.compared;
  e.a = facts_of(c.a, c.in_a);
  e.a_coverage = c.a_coverage;
  e.a_outside = outside_of(c.a);
  e.a_sizes = sizes_of(c.a);
  if (c.compared) compare(c, e);
  if (!c.compared) e.no_speedup = "one profile alone has nothing to be compared with";
  e.classes = classes_of(c);
  e.graphs = graphs_of(c);
  // Times of runs of other work say nothing layer by layer.
  if (!e.other_model && !e.per_sample) {
    e.changes = changes_of(c);
    e.attention = attention_of(c);
    e.growth = growth_of(c);
  }
  e.asked = c.asked.precision;
  e.asked_how = c.asked.how;
  find_fallbacks(c, e);
  e.ladder = ladder_of(c);
  e.recommendations = recommend(c);
  e.combinations = combine(c, e.recommendations);
  e.notes = notes_of(c, e);
  e.answer = answer_of(c, e);
  return e;
}

}  // namespace

const char* name_of(Confidence confidence) {
  switch (confidence) {
    case Confidence::kLow:
      return "low";
    case Confidence::kMedium:
      return "medium";
    case Confidence::kHigh:
      break;
  }
  return "high";
}

std::string layer_pattern(const std::string& layer) {
  const auto is_word = [&](size_t i) { return i < layer.size() && std::isalnum(static_cast<unsigned char>(layer[i])); };
  std::string out;
  for (size_t at = 0; at < layer.size();) {
    const size_t end = std::min(layer.find_first_not_of("0123456789", at), layer.size());
    const bool number = end > at && !(at > 0 && is_word(at - 1)) && !is_word(end);
    const size_t next = std::max(end, at + 1);
    out += number ? "*" : layer.substr(at, next - at);
    at = next;
  }
  return out;
}

std::string short_kernel(const std::string& name) {
  constexpr size_t kLongest = 64;
  std::string text = name.starts_with("void ") ? name.substr(5) : name;
  const std::string anonymous = "(anonymous namespace)::";
  for (size_t at; (at = text.find(anonymous)) != text.npos;) text.erase(at, anonymous.size());
  text = text.substr(0, text.find('('));
  if (text.size() > kLongest) text = text.substr(0, kLongest - 2) + "..";
  return text.empty() ? name : text;
}

std::string duration(double ms, double scale_ms) {
  if (scale_ms < 0.2) return fixed(ms * 1000, 1) + " us";
  return fixed(ms, scale_ms >= 1000 ? 1 : scale_ms >= 2 ? 2 : 3) + " ms";
}

Explanation explain(const Profile& a, const ExplainOptions& options) {
  return explain_case(Case(a, a, options, false));
}

Explanation explain(const Profile& a, const Profile& b, const ExplainOptions& options) {
  return explain_case(Case(a, b, options, true));
}

Explanation explain(const Profile& a, const Profile& b, const Profile& c, const ExplainOptions& options) {
  const Case both(a, b, options, true);
  Explanation e = explain_case(both);
  e.applied = applied_in(both, e.recommendations, c);
  e.applied->c = facts_of(c, sums_of(c));
  return e;
}

}  // namespace tessera
