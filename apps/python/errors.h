// SPDX-License-Identifier: Apache-2.0
// Statuses as exceptions of Python's.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "tessera/tessera.hpp"

namespace tessera::python {

namespace nb = nanobind;

// tessera.Error and what derives from it are made in Python; this calls the function that raises them.
inline nb::object& raiser() {
  static auto* held = new nb::object();  // never destroyed: Python is gone by then
  return *held;
}

[[noreturn]] inline void raise(const Status& status) {
  raiser()(status.code(), status.message());
  throw nb::python_error();  // (the call above raised already)
}
inline void check(tess_status* status) {
  if (status != nullptr) raise(Status(status));
}
template <class T>
T got(Result<T> result) {
  if (!result.ok()) raise(result.status());
  return std::move(result).value();
}

}  // namespace tessera::python
