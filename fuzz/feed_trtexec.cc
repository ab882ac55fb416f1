// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "fuzz/feed_profile.h"
#include "fuzz/feeds.h"

namespace tessera::fuzz {

// Up to three files, with a zero byte between them: profile, layer information and times in any order.
void feed_trtexec(std::span<const uint8_t> input) {
  std::vector<Source> files;
  while (files.size() < 3) {
    const auto end = files.size() == 2 ? input.end() : std::find(input.begin(), input.end(), uint8_t{0});
    const auto size = static_cast<size_t>(end - input.begin());
    files.push_back(make_source("x", Bytes({}, input.data(), size)));
    if (size == input.size()) break;
    input = input.subspan(size + 1);
  }
  if (looks_like_trtexec(files[0].opening)) feed_profile(files[0], std::span(files).subspan(1));
}

}  // namespace tessera::fuzz
