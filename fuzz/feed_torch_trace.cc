// SPDX-License-Identifier: Apache-2.0
#include "fuzz/feed_profile.h"
#include "fuzz/feeds.h"

namespace tessera::fuzz {

void feed_torch_trace(std::span<const uint8_t> input) {
  const Source file = make_source("x", Bytes({}, input.data(), input.size()));
  if (looks_like_torch_trace(file.opening)) feed_profile(file, {});
}

}  // namespace tessera::fuzz
