// SPDX-License-Identifier: Apache-2.0
#include "report/compare.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "base/status.h"

namespace tessera {
namespace {

bool is_known(const ComparedEngine& e) { return e.latency_ms && e.cosine && e.bytes; }

bool beats(const ComparedEngine& a, const ComparedEngine& b) {
  const bool no_worse = *a.cosine >= *b.cosine && *a.latency_ms <= *b.latency_ms && *a.bytes <= *b.bytes;
  return no_worse && (*a.cosine > *b.cosine || *a.latency_ms < *b.latency_ms || *a.bytes < *b.bytes);
}

}  // namespace

void mark_front(std::vector<ComparedEngine>& engines) {
  for (ComparedEngine& e : engines) {
    e.on_front = is_known(e) && std::none_of(engines.begin(), engines.end(), [&](const ComparedEngine& other) {
                   return is_known(other) && other.batch == e.batch && other.graph == e.graph && beats(other, e);
                 });
  }
}

std::vector<StepChange> changed_steps(const Profile& before, const Profile& after) {
  // A layer may have several kernels: the first of its class is held against the first, the second against the second.
  using Key = std::tuple<std::string, KernelClass, int>;
  std::map<Key, size_t> places;
  std::map<std::pair<std::string, KernelClass>, int> turns;
  std::vector<StepChange> steps;
  const auto name_of_layer = [](const KernelTime& k) { return k.layer.empty() ? k.name : k.layer; };
  for (const KernelTime& k : before.kernels) {
    const std::string layer = name_of_layer(k);
    places[{layer, k.kernel_class, turns[{layer, k.kernel_class}]++}] = steps.size();
    steps.push_back({.layer = layer, .kernel_before = k.name, .kernel_after = "", .us_before = k.us, .us_after = {}});
  }
  turns.clear();
  for (const KernelTime& k : after.kernels) {
    const std::string layer = name_of_layer(k);
    const auto found = places.find({layer, k.kernel_class, turns[{layer, k.kernel_class}]++});
    if (found == places.end()) {
      steps.push_back({.layer = layer, .kernel_before = "", .kernel_after = k.name, .us_before = {}, .us_after = k.us});
    } else {
      steps[found->second].kernel_after = k.name;
      steps[found->second].us_after = k.us;
    }
  }
  std::stable_sort(steps.begin(), steps.end(), [](const StepChange& a, const StepChange& b) {
    return std::fabs(a.change_us()) > std::fabs(b.change_us());
  });
  return steps;
}

std::string kernel_words(const VersionPair& versions) {
  const auto changed = std::count_if(versions.steps.begin(), versions.steps.end(),
                                     [](const StepChange& s) { return s.kernel_before != s.kernel_after; });
  if (changed == 0)
    return cat("every step has the same kernel",
               versions.same_program ? ", so that what differs is the noise of the machine" : "");
  return cat(changed, " of ", versions.steps.size(), changed == 1 ? " steps has" : " steps have", " another kernel");
}

std::string time_kind(const VersionPair& versions) { return versions.latency ? "latency" : "kernel time"; }

std::string verdict_words(const ComparedEngine& engine) {
  if (!engine.refused.empty()) return engine.bytes ? "not run" : "refused";
  return engine.on_front ? "front" : "";
}

}  // namespace tessera
