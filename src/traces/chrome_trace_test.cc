// SPDX-License-Identifier: Apache-2.0
#include "traces/chrome_trace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "io/json.h"

namespace tessera {
namespace {

KernelTime kernel(const std::string& layer, std::vector<double> begin, std::vector<double> end) {
  KernelTime k;
  k.name = "matmul/x", k.layer = layer, k.kernel_class = KernelClass::kGemm;
  k.us = 1, k.begin_us = std::move(begin), k.end_us = std::move(end);
  return k;
}

// Complete events, by track: either one lies inside the other or they share no time.
void expect_nested(const nlohmann::json& trace) {
  std::map<int, std::vector<std::pair<int64_t, int64_t>>> tracks;
  for (const auto& e : trace["traceEvents"]) {
    if (e["ph"] != "X") continue;
    const auto ns = [&](const char* key) { return std::llround(e[key].get<double>() * 1e3); };
    tracks[e["tid"].get<int>()].push_back({ns("ts"), ns("ts") + ns("dur")});
  }
  for (const auto& [track, events] : tracks) {
    for (const auto& a : events) {
      for (const auto& b : events) {
        const bool apart = a.second <= b.first || b.second <= a.first;
        const bool inside =
            (a.first <= b.first && b.second <= a.second) || (b.first <= a.first && a.second <= b.second);
        EXPECT_TRUE(apart || inside) << "track " << track << ": " << a.first << " to " << a.second << " and " << b.first
                                     << " to " << b.second;
      }
    }
  }
}

TEST(ChromeTrace, EventsNest) {
  Profile p;
  p.model = "m", p.plan = "batch1", p.machine = "x";
  // Kernels that overlap their neighbours by parts of a microsecond, as programmatic launches do.
  p.kernels = {kernel("a", {0, 20.1}, {10.0004, 30}), kernel("b", {9.5, 29.7}, {20.3, 40}),
               kernel("c", {39.9999}, {50})};
  const auto text = chrome_trace(p);
  ASSERT_TRUE(text.ok()) << text.status().message();
  const auto trace = parse_json(*text);
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  expect_nested(*trace);
  EXPECT_EQ(text->rfind(std::string("{\"") + kTimelineMark, 0), 0u) << "before any event";
  std::map<std::string, int> names;
  for (const auto& e : (*trace)["traceEvents"]) {
    if (e["ph"] == "X") ++names[e["name"].get<std::string>()];
  }
  EXPECT_EQ(names, (std::map<std::string, int>{{"a", 2}, {"b", 2}, {"c", 1}, {"run of plan batch1", 1}}));
}

TEST(ChromeTrace, NamesOfOthersAreText) {
  Profile p;
  p.kernels = {kernel("\"quoted\"\n\xff", {0}, {1})};
  const auto text = chrome_trace(p);
  ASSERT_TRUE(text.ok());
  EXPECT_TRUE(parse_json(*text).ok());
}

TEST(ChromeTrace, WithoutATimelineThereIsNone) {
  Profile p;
  p.kernels = {kernel("a", {}, {})};
  EXPECT_FALSE(chrome_trace(p).ok());
}

}  // namespace
}  // namespace tessera
