// SPDX-License-Identifier: Apache-2.0
// One pool of threads for the whole process. parallel_for hands out [begin, end) pieces; which thread takes a piece is
// free, so the body's result may not depend on it. Nested calls run in the calling thread.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace tessera {

// Threads used by parallel_for, the caller included. 0 = every core the process may use.
void set_threads(int threads);
int threads();

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
