// SPDX-License-Identifier: Apache-2.0
#include "traces/chrome_trace.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "traces/roofline.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

// Whole nanoseconds: begins and lengths that are rounded apart would overlap.
struct Launch {
  int64_t begin_ns = 0, end_ns = 0;
  const KernelTime* kernel = nullptr;
};

int64_t nanoseconds(double us) { return std::llround(us * 1e3); }
double microseconds(int64_t ns) { return static_cast<double>(ns) / 1e3; }

std::vector<Launch> launches_of(const Profile& profile) {
  std::vector<Launch> all;
  for (const KernelTime& k : profile.kernels) {
    for (size_t i = 0; i < k.begin_us.size(); ++i)
      all.push_back({nanoseconds(k.begin_us[i]), std::max(nanoseconds(k.end_us[i]), nanoseconds(k.begin_us[i])), &k});
  }
  std::stable_sort(all.begin(), all.end(), [](const Launch& a, const Launch& b) { return a.begin_ns < b.begin_ns; });
  return all;
}

Json details(const KernelTime& k, const std::optional<Ceilings>& ceilings) {
  Json j = {{"kernel", k.name}, {"class", name_of(k.kernel_class)}};
  const auto add = [&](const char* key, const std::string& value) {
    if (!value.empty()) j[key] = value;
  };
  add("precision", k.precision);
  add("arithmetic", k.arithmetic);
  j["median us"] = k.us;
  if (k.flops) j["flops"] = *k.flops;
  if (k.bytes) j["bytes"] = *k.bytes;
  const Achieved a = achieved(k, ceilings.value_or(Ceilings{}));
  if (a.bytes_per_s) j["GB/s"] = *a.bytes_per_s / 1e9;
  if (a.flops_per_s) j["GFLOP/s"] = *a.flops_per_s / 1e9;
  if (a.bound) add("bound by", name_of(*a.bound));
  return j;
}

Json event(const char* phase, const std::string& name, size_t track) {
  return {{"ph", phase}, {"pid", 1}, {"tid", track}, {"name", name}};
}

Json named(const char* what, const std::string& name, size_t track) {
  Json j = event("M", what, track);
  j["args"] = {{"name", name}};
  return j;
}

}  // namespace

Result<std::string> chrome_trace(const Profile& profile) {
  const std::vector<Launch> launches = launches_of(profile);
  if (launches.empty()) return bad_input("the profile has no timeline: it does not tell when kernels ran");
  Json events = Json::array();
  events.push_back(named("process_name", cat(profile.model, " ", profile.precision, " on ", profile.machine), 0));
  int64_t end = 0;
  for (const Launch& l : launches) end = std::max(end, l.end_ns);
  Json run = event("X", cat("run of plan ", profile.plan), 0);
  run["cat"] = "run";
  run["ts"] = microseconds(launches.front().begin_ns);
  run["dur"] = microseconds(end - launches.front().begin_ns);
  events.push_back(std::move(run));
  std::vector<int64_t> free_at;  // per track
  for (const Launch& l : launches) {
    const size_t track = static_cast<size_t>(
        std::find_if(free_at.begin(), free_at.end(), [&](int64_t at) { return at <= l.begin_ns; }) - free_at.begin());
    if (track == free_at.size()) free_at.push_back(0);
    free_at[track] = l.end_ns;
    Json j = event("X", l.kernel->layer.empty() ? l.kernel->name : l.kernel->layer, track);
    j["cat"] = "kernel";
    j["ts"] = microseconds(l.begin_ns);
    j["dur"] = microseconds(l.end_ns - l.begin_ns);
    j["args"] = details(*l.kernel, profile.ceilings);
    events.push_back(std::move(j));
  }
  for (size_t t = 0; t < free_at.size(); ++t)
    events.push_back(named("thread_name", t == 0 ? "steps" : cat("steps that overlap, ", t), t));
  const Json all = {{kTimelineMark, 1}, {"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}};
  return all.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tessera
