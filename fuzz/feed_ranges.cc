// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"
#include "calibrate/ranges_file.h"
#include "fuzz/feeds.h"

namespace tessera::fuzz {

void feed_ranges(std::span<const uint8_t> input) {
  const auto ranges = parse_ranges({reinterpret_cast<const char*>(input.data()), input.size()});
  if (!ranges.ok()) {
    TS_CHECK(!ranges.status().message().empty(), "an error without a sentence");
    return;
  }
  // What was accepted is written so that it is read again as the same text.
  const std::string text = print_ranges(*ranges);
  const auto again = parse_ranges(text);
  TS_CHECK(again.ok(), again.status().message());
  TS_CHECK(print_ranges(*again) == text, text);
}

}  // namespace tessera::fuzz
