// SPDX-License-Identifier: Apache-2.0
// Locks of a process that may be forked while another thread holds them. A plain mutex would stay locked in the child
// for ever: the thread that would unlock it is not there.
//   ShortLock   of short work that calls nobody: a fork waits until it is free, and the child finds the work whole
//   Turns       of long work, one at a time: a child begins anew, and does not wait for its parent's threads
#pragma once

#include <memory>
#include <mutex>

namespace tessera {

class ShortLock {  // for std::lock_guard
 public:
  ShortLock();
  ~ShortLock();
  ShortLock(const ShortLock&) = delete;
  ShortLock& operator=(const ShortLock&) = delete;
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

class Turns {
 public:
  // While it lives, it is somebody's turn.
  class Turn {
   public:
    explicit operator bool() const { return lock_.owns_lock(); }

   private:
    friend class Turns;
    std::shared_ptr<std::mutex> mutex_;
    std::unique_lock<std::mutex> lock_;
  };
  Turn take();      // waits
  Turn take_now();  // or is false

 private:
  std::shared_ptr<std::mutex> mutex_of_this_process();

  ShortLock short_;
  std::shared_ptr<std::mutex> mutex_;
  int64_t made_under_ = 0;  // forks()
};

}  // namespace tessera
