// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/forks.h"
#include "base/status.h"

namespace tessera {
namespace {

int cores_allowed() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

thread_local bool inside_pool = false;

// The threads of a pool and the job that they are at.
class Crew {
 public:
  explicit Crew(int threads) {
    try {
      for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
    } catch (const std::exception&) {
      // The system makes no more threads (memory, a limit): those that there are do the work.
    }
  }
  ~Crew() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& t : workers_) t.join();
  }
  int size() const { return static_cast<int>(workers_.size()) + 1; }

  void run(int64_t n, int64_t grain, const PieceBody& body) {
    const int64_t process = forks();
    std::lock_guard one_job(job_mutex_);
    {
      std::lock_guard lock(mutex_);
      body_ = &body, n_ = n, grain_ = grain;
      next_.store(0, std::memory_order_relaxed);
      busy_ = static_cast<int>(workers_.size());
      ++generation_;
    }
    wake_.notify_all();
    inside_pool = true;
    take_pieces();
    inside_pool = false;
    TS_CHECK(process == forks(), "a child process goes on inside parallel work that its parent began");
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  // Memory may run out in a piece: the others are dropped, and the caller gets the exception once every thread is done
  // with the body.
  void take_pieces() {
    try {
      for (;;) {
        const int64_t begin = next_.fetch_add(grain_, std::memory_order_relaxed);
        if (begin >= n_) return;
        (*body_)(begin, std::min(n_, begin + grain_));
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      next_.store(n_, std::memory_order_relaxed);
    }
  }
  void work() {
    inside_pool = true;
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return stop_ || generation_ != seen; });
      if (stop_) return;
      seen = generation_;
      lock.unlock();
      take_pieces();
      lock.lock();
      if (--busy_ == 0) done_.notify_one();
    }
  }

  std::vector<std::thread> workers_;
  std::mutex job_mutex_, mutex_;
  std::condition_variable wake_, done_;
  const PieceBody* body_ = nullptr;
  std::atomic<int64_t> next_{0};
  int64_t n_ = 0, grain_ = 1;
  uint64_t generation_ = 0;
  std::exception_ptr failure_;
  int busy_ = 0;
  bool stop_ = false;
};

// Every pool there is. A fork happens only while its mutex is free, so that the child finds it sound.
struct Pools {
  std::mutex mutex;
  std::vector<ThreadPool*> all;
  std::shared_ptr<ThreadPool> shared;
};
// Never destroyed: a thread may still be at work while static objects go.
Pools& pools() {
  static Pools& all = *new Pools;
  return all;
}

}  // namespace

class ThreadPool {
 public:
  explicit ThreadPool(int threads) : threads_(threads > 0 ? threads : cores_allowed()) {}
  ~ThreadPool() {
    {
      std::lock_guard lock(pools().mutex);
      std::erase(pools().all, this);
    }
    delete crew_.load();
  }

  // Made when first asked for, in this process: a fork copies no threads.
  Crew& crew() {
    Crew* c = crew_.load(std::memory_order_acquire);
    if (c != nullptr) return *c;
    std::lock_guard lock(pools().mutex);
    c = crew_.load(std::memory_order_relaxed);
    if (c == nullptr) {
      c = new Crew(threads_);
      crew_.store(c, std::memory_order_release);
    }
    return *c;
  }
  // In a child: its parent's threads are not here, and whatever they had locked stays locked.
  void forget_crew() { crew_.store(nullptr, std::memory_order_relaxed); }
  int threads() const { return threads_; }

 private:
  const int threads_;
  std::atomic<Crew*> crew_{nullptr};
};

namespace {

thread_local ThreadPool* chosen = nullptr;

void before_fork() { pools().mutex.lock(); }
void after_fork() { pools().mutex.unlock(); }
void in_child() {
  for (ThreadPool* p : pools().all) p->forget_crew();
  pools().mutex.unlock();
}
[[maybe_unused]] const int registered = pthread_atfork(before_fork, after_fork, in_child);

// Threads end before the code that they run is unmapped.
struct AtExit {
  ~AtExit() {
    std::shared_ptr<ThreadPool> last;
    std::lock_guard lock(pools().mutex);
    last.swap(pools().shared);
  }
};
const AtExit at_exit;

// The pool that the process shares; who holds it may go on when set_threads puts another in its place.
std::shared_ptr<ThreadPool> shared_pool() {
  {
    std::lock_guard lock(pools().mutex);
    if (pools().shared) return pools().shared;
  }
  auto made = make_pool(0);
  std::lock_guard lock(pools().mutex);
  if (!pools().shared) pools().shared = made;
  return pools().shared;
}

}  // namespace

std::shared_ptr<ThreadPool> make_pool(int threads) {
  auto pool = std::make_shared<ThreadPool>(threads);
  std::lock_guard lock(pools().mutex);
  pools().all.push_back(pool.get());
  return pool;
}

void set_threads(int threads) {
  auto pool = make_pool(threads);
  std::lock_guard lock(pools().mutex);
  pools().shared.swap(pool);  // the old one ends after the lock, with the last call that uses it
}

int threads() { return (chosen != nullptr ? chosen : shared_pool().get())->crew().size(); }

int threads_of_all_pools() {
  (void)shared_pool();
  std::lock_guard lock(pools().mutex);
  int sum = 0;
  for (const ThreadPool* p : pools().all) sum += p->threads();
  return sum;
}

UsePool::UsePool(ThreadPool* pool) : before_(chosen) {
  if (pool != nullptr) chosen = pool;
}
UsePool::~UsePool() { chosen = before_; }

void parallel_for(int64_t n, int64_t grain, PieceBody body) {
  if (n <= 0) return;
  grain = std::max<int64_t>(1, grain);
  if (inside_pool || n <= grain) return body(0, n);
  const std::shared_ptr<ThreadPool> kept = chosen != nullptr ? nullptr : shared_pool();
  Crew& crew = (chosen != nullptr ? chosen : kept.get())->crew();
  if (crew.size() == 1) return body(0, n);
  crew.run(n, grain, body);
}

}  // namespace tessera
