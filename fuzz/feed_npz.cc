// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"
#include "fuzz/feeds.h"
#include "io/npz.h"

namespace tessera::fuzz {

void feed_npz(std::span<const uint8_t> input) {
  const auto arrays = parse_npz(input, "x", int64_t{64} << 20);
  if (!arrays.ok()) {
    TS_CHECK(!arrays.status().message().empty(), "an error without a sentence");
    return;
  }
  for (const Array& a : *arrays) {
    TS_CHECK(a.count() * dtype_bytes(a.dtype) == static_cast<int64_t>(a.data.size()), a.name);
    TS_CHECK(static_cast<int64_t>(numbers_of(a).size()) == a.count(), a.name);
  }
}

}  // namespace tessera::fuzz
