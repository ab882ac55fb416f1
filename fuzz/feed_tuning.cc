// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"
#include "fuzz/feeds.h"
#include "plan/tune_cache.h"

namespace tessera::fuzz {

void feed_tuning(std::span<const uint8_t> input) {
  const auto table = parse_tuning({reinterpret_cast<const char*>(input.data()), input.size()});
  if (!table.ok()) {
    TS_CHECK(!table.status().message().empty(), "an error without a sentence");
    return;
  }
  // What was accepted is written so that it is read again as the same text.
  const std::string text = print_tuning(*table);
  const auto again = parse_tuning(text);
  TS_CHECK(again.ok(), again.status().message());
  TS_CHECK(print_tuning(*again) == text, text);
}

}  // namespace tessera::fuzz
