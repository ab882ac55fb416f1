// SPDX-License-Identifier: Apache-2.0
#include "base/fork_locks.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace tessera {
namespace {

// The child's exit code; -1: it hung, and was ended.
template <class F>
int in_child(const F& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);
    _exit(body());
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#ifndef __SANITIZE_THREAD__
TEST(ForkLocks, AChildDoesNotWaitForATurnOfItsParents) {
  Turns turns;
  std::atomic<bool> mine{false}, end{false};
  std::thread holder([&] {
    const Turns::Turn turn = turns.take();
    mine = true;
    while (!end) std::this_thread::yield();
  });
  while (!mine) std::this_thread::yield();
  EXPECT_FALSE(turns.take_now()) << "it is the other thread's turn";
  EXPECT_EQ(in_child([&] {
              const Turns::Turn turn = turns.take();
              return turn && !turns.take_now() ? 7 : 1;  // and there, too, one at a time
            }),
            7);
  end = true;
  holder.join();
  EXPECT_TRUE(turns.take_now());
}

// What a ShortLock guards is whole in every child: two numbers that are always changed together.
TEST(ForkLocks, AChildFindsShortWorkWhole) {
  ShortLock lock;
  int64_t a = 0, b = 0;
  std::atomic<bool> end{false};
  std::thread worker([&] {
    while (!end) {
      const std::lock_guard held(lock);
      ++a;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      ++b;
    }
  });
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(in_child([&] {
                const std::lock_guard held(lock);
                return a == b ? 7 : 1;
              }),
              7)
        << "fork " << i;
  }
  end = true;
  worker.join();
}
#endif

}  // namespace
}  // namespace tessera
