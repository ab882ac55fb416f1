// SPDX-License-Identifier: Apache-2.0
#include "base/memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <new>

namespace tessera {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
// Below this the system is not asked: a few reads of files cost about as much as touching a megabyte.
constexpr int64_t kSmallBytes = int64_t{16} << 20;

// First number of a file; nothing there or "max": unlimited.
int64_t number_in(const char* path) {
  std::ifstream in(path);
  int64_t n = 0;
  return in >> n ? n : kUnlimited;
}

int64_t free_on_machine() {
  std::ifstream in("/proc/meminfo");
  std::string key, unit;
  for (int64_t kib = 0; in >> key >> kib; std::getline(in, unit)) {
    if (key == "MemAvailable:") return kib * 1024;
  }
  return kUnlimited;
}

int64_t free_in_group() {
  const int64_t most = number_in("/sys/fs/cgroup/memory.max");
  if (most == kUnlimited) return kUnlimited;
  // Pages of files count as used, but go when memory is wanted.
  int64_t cached = 0;
  std::ifstream in("/sys/fs/cgroup/memory.stat");
  std::string key;
  for (int64_t n = 0; in >> key >> n;) {
    if (key == "inactive_file" || key == "active_file") cached += n;
  }
  const int64_t used = number_in("/sys/fs/cgroup/memory.current");
  return used == kUnlimited ? most : std::max<int64_t>(0, most - used + cached);
}

int64_t own_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  const int64_t pages = number_in("/proc/self/statm");
  constexpr int64_t kPage = 4096;  // a guess on the small side, where pages are larger
  return std::max<int64_t>(0, static_cast<int64_t>(limit.rlim_cur) - (pages == kUnlimited ? 0 : pages * kPage));
}

}  // namespace

int64_t available_memory() { return std::min({free_on_machine(), free_in_group(), own_limit()}); }

Status check_memory(int64_t bytes, const std::string& what) {
  if (bytes <= kSmallBytes) return {};
  const int64_t have = available_memory();
  if (bytes <= have) return {};
  return machine_error(cat("no memory for ", what, ": ", bytes, " bytes are wanted, ", have, " are free"));
}

Result<Buffer> allocate(int64_t bytes, const std::string& what) {
  TS_TRY(check_memory(bytes, what));
  try {
    return Buffer(static_cast<size_t>(bytes));
  } catch (const std::bad_alloc&) {  // taken by somebody else in the meantime
    return machine_error(cat("no memory for ", what, ": ", bytes, " bytes are wanted"));
  }
}

}  // namespace tessera
