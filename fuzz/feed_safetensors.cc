// SPDX-License-Identifier: Apache-2.0
// A safetensors file, or the index of a sharded one where the input begins as JSON does.
#include <algorithm>

#include "base/status.h"
#include "fuzz/feeds.h"
#include "io/safetensors.h"

namespace tessera::fuzz {

void feed_safetensors(std::span<const uint8_t> input) {
  if (!input.empty() && input[0] == '{') {
    const auto index =
        parse_safetensors_index({reinterpret_cast<const char*>(input.data()), input.size()}, "model/index.json");
    if (!index.ok()) return;
    for (const auto& [tensor, path] : *index)
      TS_CHECK(path.starts_with("model/") && path.find("/../") == std::string::npos, path);
    return;
  }
  Buffer buffer(input.size());
  std::copy(input.begin(), input.end(), buffer.data());
  const auto file = parse_safetensors(Bytes::own(std::move(buffer)));
  if (!file.ok()) {
    TS_CHECK(!file.status().message().empty(), "an error without a sentence");
    return;
  }
  uint64_t sum = 0;
  size_t bytes = 0;
  for (const SafetensorsEntry& t : file->tensors) {
    for (const uint8_t b : t.data.span()) sum += b;
    bytes += t.data.size();
    TS_CHECK(file->find(t.name) == &t, t.name);
  }
  TS_CHECK(bytes <= input.size() && sum <= 255 * input.size(), "more bytes than were given");
}

}  // namespace tessera::fuzz
