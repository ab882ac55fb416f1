// SPDX-License-Identifier: Apache-2.0
// Arrays of numpy's, read where they lie. The buffer protocol describes an array anew for each call, its type as text,
// which takes longer than the rest of a small call. The fields of an array have their order by numpy's binary
// interface: its macros read them in every module that was compiled for it. It is compared, once, with what the
// protocol says.
#pragma once

#include <nanobind/nanobind.h>
#include <tessera/tessera.h>

namespace tessera::python {

// In bytes; shape and strides live as long as nobody changes the array.
struct NumpyArray {
  void* data;
  int ndim;
  const Py_ssize_t *shape, *strides;
  tess_dtype dtype;
  bool dense;  // rows without gaps, the last dimension first
  bool writable;
};

// False: it is no array of numpy's, of a class of its own, or not of integers or floats in this machine's byte order.
bool read_numpy(PyObject* object, NumpyArray& out);

// Of a buffer; code 255: its format is no such type.
tess_dtype dtype_of(const Py_buffer& buffer);
inline constexpr uint8_t kNoDtype = 255;

}  // namespace tessera::python
