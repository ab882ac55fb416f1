// SPDX-License-Identifier: Apache-2.0
// Tensors of Python's array libraries as the C ABI takes them, without a copy: by the exchange table of their type
// where it has one, else by DLPack or the buffer protocol.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <optional>

#include "python/exchange.h"

namespace tessera::python {

namespace nb = nanobind;

// Null where the type has none. Tables live as long as the process.
const Exchange* exchange_of(nb::handle object);

// A tensor for the length of a call. The object must live as long.
class Borrowed {
 public:
  Borrowed() = default;
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  ~Borrowed();
  // Raises TypeError where the object is no tensor. `written`: it has to be one that may be written.
  void take(nb::handle object, bool written);
  tess_tensor& tensor() { return tensor_; }

 private:
  static constexpr size_t kMostDimensions = 16;
  bool take_numpy(nb::handle object, bool written);   // false: it is none of numpy's, or not usual
  bool take_buffer(nb::handle object, bool written);  // of usual types; false: it has none
  void take_array(nb::handle object, bool written);

  tess_tensor tensor_{};
  ManagedTensor* managed_ = nullptr;
  Py_buffer buffer_;  // where buffered_
  bool buffered_ = false;
  std::optional<nb::ndarray<nb::ro>> array_;
  std::array<int64_t, kMostDimensions> shape_, strides_;  // of either
};

// A new tensor of the framework that `exchange` belongs to.
nb::object allocate(const Exchange& exchange, const tess_tensor& prototype);

}  // namespace tessera::python
