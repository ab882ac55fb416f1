// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.h"

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

namespace tessera {
namespace {

int cores_allowed() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

thread_local bool inside_pool = false;

class Pool {
 public:
  explicit Pool(int threads) {
    try {
      for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
    } catch (const std::exception&) {
      // The system makes no more threads (memory, a limit): those that there are do the work.
    }
  }
  ~Pool() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& t : workers_) t.join();
  }
  int size() const { return static_cast<int>(workers_.size()) + 1; }

  void run(int64_t n, int64_t grain, const PieceBody& body) {
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

std::mutex pool_mutex;
std::unique_ptr<Pool> pool;

Pool& the_pool() {
  std::lock_guard lock(pool_mutex);
  if (!pool) pool = std::make_unique<Pool>(cores_allowed());
  return *pool;
}

}  // namespace

void set_threads(int threads) {
  std::lock_guard lock(pool_mutex);
  pool = std::make_unique<Pool>(threads > 0 ? threads : cores_allowed());
}

int threads() { return the_pool().size(); }

void parallel_for(int64_t n, int64_t grain, PieceBody body) {
  if (n <= 0) return;
  grain = std::max<int64_t>(1, grain);
  if (inside_pool || n <= grain) return body(0, n);
  Pool& p = the_pool();
  if (p.size() == 1) return body(0, n);
  p.run(n, grain, body);
}

}  // namespace tessera
