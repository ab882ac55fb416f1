// SPDX-License-Identifier: Apache-2.0
#include "traces/timeline.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include "traces/names.h"

namespace tessera {
namespace {

constexpr size_t kNameBytes = 16'384;    // templates make names of a few thousand characters
constexpr size_t kLaunches = 5'000'000;  // 40 bytes each
constexpr size_t kPlaced = 200'000;      // launches whose place in the run is kept for drawings
constexpr double kLongestUs = 1e12;      // eleven days: no kernel
constexpr double kLatestUs = 1e18;       // 30,000 years, though clocks begin in 1970

Status check_time(double us, std::string_view what) {
  if (std::isfinite(us) && us >= 0 && us <= kLongestUs) return {};
  return bad_input(cat(what, " takes ", us, " us, which no kernel does"));
}

// Time in [begin, end of the last] in which nothing ran, and in which more than one launch did.
struct Idle {
  double gap_us = 0, overlap_us = 0;
};
Idle idle_of(std::span<const Timeline::Launch> sorted) {
  Idle idle;
  double until = sorted.front().begin_us;    // something ran up to here
  double doubled = sorted.front().begin_us;  // time before here is counted in overlap where it is due
  for (const Timeline::Launch& l : sorted) {
    const double end = l.begin_us + l.us;
    if (l.begin_us > until) idle.gap_us += l.begin_us - until;
    const double from = std::max(l.begin_us, doubled), to = std::min(end, until);
    if (to > from) {
      idle.overlap_us += to - from;
      doubled = to;
    }
    until = std::max(until, end);
  }
  return idle;
}

}  // namespace

Result<Timeline::Text> Timeline::keep(std::string_view name) {
  name = name.substr(0, kNameBytes);
  if (name.empty()) return Text{0};
  if (const auto at = ids_.find(name); at != ids_.end()) return at->second;
  if (texts_.size() > kMostNames) return too_many_names();
  texts_.emplace_back(name);
  const Text id = static_cast<Text>(texts_.size() - 1);
  ids_.emplace(texts_.back(), id);
  return id;
}

Status Timeline::add(const Launch& launch, std::string_view what) {
  TS_TRY(check_time(launch.us, what));
  if (!(std::fabs(launch.begin_us) <= kLatestUs)) return bad_input(cat(what, " begins at ", launch.begin_us, " us"));
  if (launches_.size() >= kLaunches) return bad_input(cat("holds more than ", kLaunches, " kernels"));
  launches_.push_back(launch);
  return {};
}

Status Timeline::add_copy(Direction direction, double us, std::string_view what) {
  TS_TRY(check_time(us, what));
  const bool in = direction == Direction::kHostToDevice;
  (in ? host_to_device_us_ : device_to_host_us_) += us;
  (in ? copied_in_ : copied_out_) = true;
  return {};
}

// True where every kernel of every layer ran equally often in each run. Ranges that carry a counter do not.
bool Timeline::layers_repeat(int64_t runs) const {
  std::map<std::pair<Text, Text>, int64_t> calls;
  for (const Launch& l : launches_) ++calls[{l.name, l.layer}];
  return std::all_of(calls.begin(), calls.end(), [&](const auto& each) { return each.second % runs == 0; });
}

// Whether the launches, in order, are the same names `runs` times over.
bool Timeline::runs_alike(int64_t runs) const {
  const size_t count = launches_.size(), each = count / static_cast<size_t>(runs);
  if (each * static_cast<size_t>(runs) != count) return false;
  for (size_t i = each; i < count; ++i) {
    if (launches_[i].name != launches_[i - each].name) return false;
  }
  return true;
}

void Timeline::put_kernels(Profile& profile, bool placed, const Rules& rules) const {
  const double runs = static_cast<double>(profile.runs), begin = launches_.empty() ? 0 : launches_.front().begin_us;
  std::map<std::tuple<Text, Text, Text>, size_t> entries;  // name, layer, and the operator where it decides
  std::map<Text, Classified> known;
  const auto classified = [&](Text text) -> const Classified& {
    auto what = known.find(text);
    if (what == known.end()) what = known.emplace(text, classify(texts_[text], rules)).first;
    return what->second;
  };
  size_t by_operator = 0;
  std::vector<double> us;
  std::vector<int64_t> calls;
  for (const Launch& l : launches_) {
    const Classified& own = classified(l.name);
    const bool asks = own.kernel_class == KernelClass::kUnknown && l.op != 0 &&
                      classified(l.op).kernel_class != KernelClass::kUnknown;
    const Classified& what = asks ? classified(l.op) : own;
    const auto [at, is_new] = entries.emplace(std::tuple{l.name, l.layer, asks ? l.op : 0}, profile.kernels.size());
    if (is_new) {
      by_operator += asks;
      profile.kernels.push_back({.name = texts_[l.name],
                                 .layer = texts_[l.layer],
                                 .kernel_class = what.kernel_class,
                                 .precision = own.precision.empty() ? what.precision : own.precision});
      us.push_back(0);
      calls.push_back(0);
    }
    us[at->second] += l.us;
    ++calls[at->second];
    if (!placed) continue;
    profile.kernels[at->second].begin_us.push_back(l.begin_us - begin);
    profile.kernels[at->second].end_us.push_back(l.begin_us - begin + l.us);
  }
  if (by_operator > 0)
    profile.notes.push_back(cat("No rule knows the names of ", by_operator, " of ", profile.kernels.size(),
                                " kernels: they have the class of the operator that launched them."));
  size_t uneven = 0;
  for (size_t i = 0; i < profile.kernels.size(); ++i) {
    profile.kernels[i].us = us[i] / runs;
    profile.kernels[i].calls = std::max<int64_t>(1, std::llround(static_cast<double>(calls[i]) / runs));
    uneven += calls[i] % profile.runs != 0;
  }
  if (uneven > 0)
    profile.notes.push_back(cat(uneven, " of ", profile.kernels.size(),
                                " kernels did not run equally often in each of the ", profile.runs,
                                " runs: their calls are rounded, their times are averages."));
}

void Timeline::put_gaps(Profile& profile) const {
  std::set<int64_t> devices;
  for (const Launch& l : launches_) devices.insert(l.device);
  if (devices.size() > 1) {
    profile.notes.push_back(cat("Kernels of ", devices.size(), " GPUs are added up; gaps and overlap are not told."));
    return;
  }
  if (!runs_alike(profile.runs)) {
    profile.notes.push_back("The runs differ in their kernels, so gaps and overlap of one run are not told.");
    return;
  }
  const size_t each = launches_.size() / static_cast<size_t>(profile.runs);
  Idle sum;
  for (size_t i = 0; i < launches_.size(); i += each) {
    const Idle one = idle_of(std::span(launches_).subspan(i, each));
    sum.gap_us += one.gap_us;
    sum.overlap_us += one.overlap_us;
  }
  profile.gap_us = sum.gap_us / static_cast<double>(profile.runs);
  profile.overlap_us = sum.overlap_us / static_cast<double>(profile.runs);
}

void Timeline::put_into(Profile& profile, int64_t runs, const Rules& rules) {
  profile.runs = runs;
  std::stable_sort(launches_.begin(), launches_.end(),
                   [](const Launch& a, const Launch& b) { return a.begin_us < b.begin_us; });
  const bool layered = std::any_of(launches_.begin(), launches_.end(), [](const Launch& l) { return l.layer != 0; });
  if (layered && !layers_repeat(runs)) {
    for (Launch& l : launches_) l.layer = 0;
    profile.notes.push_back("The ranges around the kernels differ from run to run, so they are not taken as layers.");
  }
  put_kernels(profile, runs == 1 && launches_.size() <= kPlaced, rules);
  if (!launches_.empty()) put_gaps(profile);
  if (copied_in_) profile.host_to_device_us = host_to_device_us_ / static_cast<double>(runs);
  if (copied_out_) profile.device_to_host_us = device_to_host_us_ / static_cast<double>(runs);
}

int64_t settle_runs(int64_t asked, int64_t told, Profile& profile) {
  if (asked > 0) return asked;
  if (told > 0) return told;
  profile.notes.push_back("The file does not say how many runs it holds; it is taken as one.");
  return 1;
}

}  // namespace tessera
