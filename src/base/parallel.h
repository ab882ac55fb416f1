// SPDX-License-Identifier: Apache-2.0
// parallel_for hands out [begin, end) pieces to a pool of threads: the one that the process shares, or the one that the
// calling thread chose (UsePool). Which thread takes a piece is free, so the body's result may not depend on it. Nested
// calls run in the calling thread. A pool runs one parallel_for at a time: callers in two threads that must not wait
// for each other have a pool each. After a fork the child's pools make new threads when they are first used.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace tessera {

class ThreadPool;

// Threads of the pool that the process shares, the caller included. 0 = every core the process may use.
void set_threads(int threads);
// Threads that parallel_for uses when it is called here.
int threads();
// A pool of its own; `threads` as above.
std::shared_ptr<ThreadPool> make_pool(int threads);
// Threads that could be at work at once: those of every pool there is.
int threads_of_all_pools();

// While it lives, parallel_for and threads() of this thread use `pool`; null changes nothing.
class UsePool {
 public:
  explicit UsePool(ThreadPool* pool);
  ~UsePool();
  UsePool(const UsePool&) = delete;
  UsePool& operator=(const UsePool&) = delete;

 private:
  ThreadPool* const before_;
};

// A callable by reference: handing it over allocates nothing. Contract: used only while the callable lives.
class PieceBody {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, PieceBody>) PieceBody(const F& f)  // NOLINT: a lambda is meant
      : object_(std::addressof(f)),
        call_([](const void* object, int64_t begin, int64_t end) { (*static_cast<const F*>(object))(begin, end); }) {}
  void operator()(int64_t begin, int64_t end) const { call_(object_, begin, end); }

 private:
  const void* object_;
  void (*call_)(const void*, int64_t, int64_t);
};

// Calls body(begin, end) for pieces of [0, n) of at most `grain` items.
void parallel_for(int64_t n, int64_t grain, PieceBody body);

}  // namespace tessera
