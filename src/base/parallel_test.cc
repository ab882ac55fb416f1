// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <new>
#include <thread>
#include <vector>

#include "base/forks.h"

namespace tessera {
namespace {

TEST(ParallelFor, CoversEveryItemOnce) {
  set_threads(3);
  std::vector<std::atomic<int>> seen(1001);
  parallel_for(1001, 7, [&](int64_t begin, int64_t end) {
    EXPECT_LE(end - begin, 7);
    for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
  });
  for (const auto& s : seen) EXPECT_EQ(s, 1);
  set_threads(0);
}

TEST(ParallelFor, MemoryThatRunsOutInAPieceReachesTheCaller) {
  for (int threads : {1, 4}) {
    set_threads(threads);
    for (int64_t bad : {0, 50, 99}) {
      EXPECT_THROW(parallel_for(100, 1,
                                [&](int64_t begin, int64_t end) {
                                  if (begin <= bad && bad < end) throw std::bad_alloc();
                                }),
                   std::bad_alloc);
      std::atomic<int64_t> sum{0};
      parallel_for(100, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) sum += i;
      });
      EXPECT_EQ(sum, 4950) << "the pool works on";
    }
  }
  set_threads(0);
}

int64_t sum_to(int64_t n) {
  std::atomic<int64_t> sum{0};
  parallel_for(n, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) sum += i;
  });
  return sum;
}

TEST(ParallelFor, TakesThePoolThatTheThreadChose) {
  set_threads(2);
  const auto pool = make_pool(5);
  EXPECT_EQ(threads(), 2);
  {
    const UsePool use(pool.get());
    EXPECT_EQ(threads(), 5);
    {
      const UsePool none(nullptr);
      EXPECT_EQ(threads(), 5) << "null changes nothing";
    }
    std::thread([] { EXPECT_EQ(threads(), 2) << "the choice is of one thread"; }).join();
    EXPECT_EQ(sum_to(1000), 499500);
  }
  EXPECT_EQ(threads(), 2);
  EXPECT_EQ(threads_of_all_pools(), 7);
  set_threads(0);
}

// Each body waits until the other has begun: on one pool, which runs one job at a time, neither would end.
TEST(ParallelFor, TwoPoolsDoNotWaitForEachOther) {
  std::atomic<int> begun{0};
  std::atomic<bool> met{true};
  const auto meet = [&] {
    const auto pool = make_pool(2);
    const UsePool use(pool.get());
    std::atomic<bool> first{true};
    parallel_for(2, 1, [&](int64_t, int64_t) {
      if (!first.exchange(false)) return;
      ++begun;
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (begun < 2 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
      if (begun < 2) met = false;
    });
  };
  std::thread other(meet);
  meet();
  other.join();
  EXPECT_TRUE(met);
}

TEST(ParallelFor, AJobGoesOnWhenThePoolIsReplaced) {
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::thread other([&] {
    while (!stop) wrong += sum_to(100) != 4950;
  });
  for (int i = 0; i < 50; ++i) set_threads(1 + i % 4);
  stop = true;
  other.join();
  EXPECT_EQ(wrong, 0);
  set_threads(0);
}

#ifndef __SANITIZE_THREAD__  // which ends a child that makes threads
// What `child` returns in a forked process; -1 where it does not end.
template <class F>
int in_child(F child) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);  // ends a child that hangs
    _exit(child());
  }
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

TEST(ParallelFor, AChildMakesThreadsOfItsOwn) {
  set_threads(3);
  const auto pool = make_pool(4);
  const UsePool use(pool.get());
  EXPECT_EQ(sum_to(1000), 499500);
  const int64_t before = forks();
  const int answer = in_child([&] {
    if (forks() != before + 1 || threads() != 4 || sum_to(1000) != 499500) return 1;
    set_threads(2);
    bool shared_too = false;
    std::thread([&] { shared_too = threads() == 2 && sum_to(1000) == 499500; }).join();
    return shared_too ? 0 : 2;
  });
  EXPECT_EQ(answer, 0);
  EXPECT_EQ(forks(), before);
  EXPECT_EQ(sum_to(1000), 499500) << "the parent goes on";
  set_threads(0);
}

// Forks at any moment of another thread's work: whatever was locked then is not locked in the child.
TEST(ParallelFor, AChildOfABusyParentDoesNotHang) {
  set_threads(3);
  std::atomic<bool> stop{false};
  std::vector<std::thread> busy;
  for (int t = 0; t < 2; ++t) {
    busy.emplace_back([&] {
      while (!stop) {
        (void)sum_to(20);
        (void)make_pool(2);
      }
    });
  }
  for (int i = 0; i < 50; ++i) ASSERT_EQ(in_child([] { return sum_to(100) == 4950 ? 0 : 1; }), 0) << "fork " << i;
  stop = true;
  for (std::thread& t : busy) t.join();
  set_threads(0);
}
#endif

}  // namespace
}  // namespace tessera
