// SPDX-License-Identifier: Apache-2.0
// The project's own profiles, one or two with a zero byte between: what is read is explained, and every number of the
// explanation is one.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "explain/explain.h"
#include "fuzz/feeds.h"
#include "io/json.h"
#include "traces/profile.h"

namespace tessera::fuzz {
namespace {

void check(const Explanation& e) {
  TS_CHECK(!e.answer.empty(), "no answer");
  for (const std::optional<double>& speedup : {e.speedup, e.latency_speedup})
    TS_CHECK(std::isfinite(speedup.value_or(0)), "a speedup");
  for (const Rung& r : e.ladder) TS_CHECK(std::isfinite(r.speedup) && r.ms > 0, r.name, ": ", r.arithmetic);
  for (const Recommendation& r : e.recommendations)
    TS_CHECK(std::isfinite(r.predicted) && r.predicted > 0 && r.gain_ms > 0 && !r.flag.empty(), r.id, r.arithmetic);
  for (const Fallback& f : e.fallbacks) TS_CHECK(f.share >= 0 && f.share <= 1 + 1e-9, f.kernel);
  const double unknown = e.fallbacks_unknown_share.value_or(0);
  TS_CHECK(unknown >= 0 && unknown <= 1 + 1e-9, unknown);
  TS_CHECK(parse_json(explanation_json(e)).ok(), "its JSON");
}

}  // namespace

void feed_profile_json(std::span<const uint8_t> input) {
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  const size_t zero = std::min(text.find('\0'), text.size());
  const auto a = parse_profile(text.substr(0, zero));
  if (!a.ok()) {
    TS_CHECK(!a.status().message().empty(), "an error without a sentence");
    return;
  }
  const std::string written = profile_json(*a);
  const auto again = parse_profile(written);
  TS_CHECK(again.ok(), again.status().message());
  TS_CHECK(profile_json(*again) == written, written);
  check(explain(*a));
  check(explain(*a, ExplainOptions{.asked = "nvfp4"}));
  const auto b = zero < text.size() ? parse_profile(text.substr(zero + 1)) : again;
  if (!b.ok()) return;
  check(explain(*a, *b));
  check(explain(*b, *a, *b));
}

}  // namespace tessera::fuzz
