// SPDX-License-Identifier: Apache-2.0
// The GIL given away and taken back. While Python ends, a thread that asks for it never gets it: before 3.14 Python
// ends the thread instead, through frames of ours that may not be left so, which ends the process. Here such a thread
// waits for the end of the process, as it does from 3.14 on.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

namespace tessera::python {

template <class F>
auto take_gil(const F& ask) noexcept {
  try {
    return ask();
  } catch (...) {  // what ends a thread passes here as something like an exception
    for (;;) pause();
  }
}

class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    take_gil([this] { PyEval_RestoreThread(state_); });
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const state_;
};

class WithGil {
 public:
  WithGil() : state_(take_gil([] { return PyGILState_Ensure(); })) {}
  ~WithGil() { PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  const PyGILState_STATE state_;
};

}  // namespace tessera::python
