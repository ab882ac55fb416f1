// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/feed_profile.h"
#include "fuzz/feeds.h"

namespace tessera::fuzz {

// SQLite reads files, so that the bytes become one without a name.
void feed_nsight(std::span<const uint8_t> input) {
  static const int kFile = memfd_create("nsight", MFD_CLOEXEC);
  TS_CHECK(kFile >= 0 && ftruncate(kFile, 0) == 0, "no file in memory");
  TS_CHECK(pwrite(kFile, input.data(), input.size(), 0) == static_cast<ssize_t>(input.size()), input.size());
  const Source file = make_source(cat("/proc/self/fd/", kFile), Bytes({}, input.data(), input.size()));
  feed_profile(file, {});
}

}  // namespace tessera::fuzz
