// SPDX-License-Identifier: Apache-2.0
#include "base/fork_locks.h"

#include <pthread.h>

#include <algorithm>
#include <vector>

#include "base/forks.h"

namespace tessera {
namespace {

struct Locks {
  std::mutex mutex;
  std::vector<ShortLock*> all;
};
// Never destroyed: locks may outlive static objects.
Locks& locks() {
  static Locks& one = *new Locks;
  return one;
}

void before_fork() {
  locks().mutex.lock();
  for (ShortLock* l : locks().all) l->lock();
}
void after_fork() {
  for (ShortLock* l : locks().all) l->unlock();
  locks().mutex.unlock();
}
[[maybe_unused]] const int registered = pthread_atfork(before_fork, after_fork, after_fork);

}  // namespace

ShortLock::ShortLock() {
  const std::lock_guard lock(locks().mutex);
  locks().all.push_back(this);
}
ShortLock::~ShortLock() {
  const std::lock_guard lock(locks().mutex);
  std::erase(locks().all, this);
}

// The mutex of a parent's thread that holds it is left alone: its share of it is never given back here.
std::shared_ptr<std::mutex> Turns::mutex_of_this_process() {
  const std::lock_guard lock(short_);
  if (mutex_ == nullptr || made_under_ != forks()) {
    mutex_ = std::make_shared<std::mutex>();
    made_under_ = forks();
  }
  return mutex_;
}

Turns::Turn Turns::take() {
  Turn turn;
  turn.mutex_ = mutex_of_this_process();
  turn.lock_ = std::unique_lock(*turn.mutex_);
  return turn;
}

Turns::Turn Turns::take_now() {
  Turn turn;
  turn.mutex_ = mutex_of_this_process();
  turn.lock_ = std::unique_lock(*turn.mutex_, std::try_to_lock);
  return turn;
}

}  // namespace tessera
