// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"
#include "fuzz/feeds.h"
#include "ir/text.h"
#include "ops/builder.h"

namespace tessera::fuzz {

void feed_ir_text(std::span<const uint8_t> input) {
  const auto graphs = parse_graphs({reinterpret_cast<const char*>(input.data()), input.size()});
  if (!graphs.ok()) {
    TS_CHECK(!graphs.status().message().empty(), "an error without a sentence");
    return;
  }
  for (const Graph& g : *graphs) {
    (void)check_ops(g);
    int64_t bytes = 0;
    for (const Value& v : g.values) bytes += static_cast<int64_t>(v.data.size());
    if (bytes > 1 << 16) continue;
    // What was read prints as text that reads back as the same text.
    const std::string text = print_graph(g, /*with_data=*/true);
    const auto again = parse_graph(text);
    TS_CHECK(again.ok(), again.status().message(), "\n", text);
    TS_CHECK(print_graph(*again, /*with_data=*/true) == text, text);
  }
}

}  // namespace tessera::fuzz
