// SPDX-License-Identifier: Apache-2.0
#include "tiles/cpu/scratch.h"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "base/status.h"

namespace tessera {
namespace {

struct Blocks {
  std::mutex mutex;
  std::vector<Buffer> free;  // each of `bytes` at least
  int64_t bytes = 0;
};

Blocks& blocks() {
  static Blocks all;
  return all;
}

// A fork happens only while the mutex is free, so that the child finds it so.
void before_fork() { blocks().mutex.lock(); }
void after_fork() { blocks().mutex.unlock(); }
[[maybe_unused]] const int registered = pthread_atfork(before_fork, after_fork, after_fork);

}  // namespace

Scratch::Scratch(int64_t bytes) {
  Blocks& all = blocks();
  {
    std::lock_guard lock(all.mutex);
    if (bytes <= all.bytes && !all.free.empty()) {
      block_ = std::move(all.free.back());
      all.free.pop_back();
      return;
    }
    bytes = std::max(bytes, all.bytes);
  }
  block_ = Buffer(static_cast<size_t>(bytes));
}

Scratch::~Scratch() {
  Blocks& all = blocks();
  std::lock_guard lock(all.mutex);
  // One that became too small meanwhile, or more than any number of threads needs, is let go.
  if (static_cast<int64_t>(block_.size()) >= all.bytes && all.free.size() < all.free.capacity())
    all.free.push_back(std::move(block_));
}

float* Scratch::floats(int64_t n) {
  float* p = reinterpret_cast<float*>(block_.data() + used_);
  used_ += bytes_of(n);
  TS_CHECK(used_ <= static_cast<int64_t>(block_.size()), "scratch of ", block_.size(), " bytes, asked for ", used_);
  return p;
}

void Scratch::reserve(int64_t bytes) {
  const size_t wanted = static_cast<size_t>(threads_of_all_pools());
  Blocks& all = blocks();
  std::lock_guard lock(all.mutex);
  if (bytes > all.bytes) {
    all.free.clear();
    all.bytes = bytes;
  }
  all.free.reserve(2 * wanted);
  while (all.free.size() < wanted) all.free.emplace_back(static_cast<size_t>(all.bytes));
}

}  // namespace tessera
