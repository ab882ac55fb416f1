// SPDX-License-Identifier: Apache-2.0
// What the feeds of profiles share: whatever is read is a profile that the rest of the program can work with.
#pragma once

#include <cmath>
#include <span>

#include "base/status.h"
#include "traces/format.h"

namespace tessera::fuzz {

inline void feed_profile(const Source& main, std::span<const Source> beside) {
  static const Rules kRules = with_built_in({});
  for (const int64_t runs : {int64_t{0}, int64_t{3}}) {
    const ReadOptions options{.runs = runs};
    auto profile = read_sources({.main = main, .beside = beside, .rules = kRules, .options = options});
    if (!profile.ok()) {
      const std::string& said = profile.status().message();
      TS_CHECK(!said.empty(), "an error without a sentence");
      TS_CHECK(said.find("unable to open") == std::string::npos, "nothing was read: ", said);
      return;
    }
    TS_CHECK(profile->runs >= 1 && !profile->kernels.empty() && profile->kernel_us() > 0, profile->runs);
    for (const KernelTime& k : profile->kernels) {
      TS_CHECK(k.calls >= 1 && std::isfinite(k.us) && k.us >= 0, k.name);
      TS_CHECK(k.begin_us.size() == k.end_us.size(), k.name);
      for (size_t i = 0; i < k.begin_us.size(); ++i)
        TS_CHECK(k.begin_us[i] >= 0 && k.end_us[i] >= k.begin_us[i], k.name);
      TS_CHECK(k.flops.value_or(1) > 0 && k.bytes.value_or(1) > 0, k.name);
    }
    TS_CHECK(profile->gap_us.value_or(0) >= 0 && profile->overlap_us.value_or(0) >= 0, profile->source);
    // What was read is written so that it is read again as the same.
    const std::string text = profile_json(*profile);
    const auto again = parse_profile(text);
    TS_CHECK(again.ok(), again.status().message());
    TS_CHECK(profile_json(*again) == text, text);
  }
}

}  // namespace tessera::fuzz
