// SPDX-License-Identifier: Apache-2.0
#include "python/numpy_arrays.h"

#include <nanobind/stl/string.h>

#include <array>
#include <cstring>
#include <string>

namespace tessera::python {
namespace {

namespace nb = nanobind;

// numpy's PyArrayObject and PyArray_Descr, as far as both of its binary interfaces (1.x, 2.x) agree.
struct Descr {
  PyObject head;
  PyTypeObject* scalar;
  char kind, letter, byte_order, flags;
  int number;
};
struct Array {
  PyObject head;
  void* data;
  int ndim;
  Py_ssize_t *shape, *strides;
  PyObject* base;
  Descr* descr;
  int flags;
};
constexpr int kDense = 0x1, kWritable = 0x400;  // of Array::flags

tess_dtype of(int code, size_t bytes) { return {static_cast<uint8_t>(code), static_cast<uint8_t>(8 * bytes), 1}; }

// Of numpy's numbers of types, which are the C types in their order.
tess_dtype dtype_of_number(int number) {
  constexpr int kByte = 1, kLongLong = 9, kFloat = 11, kDouble = 12, kHalf = 23;
  static constexpr std::array<size_t, 5> kBytes = {1, sizeof(short), sizeof(int), sizeof(long), sizeof(long long)};
  if (number >= kByte && number <= kLongLong + 1) {
    const int place = number - kByte;  // signed and unsigned take turns
    return of(place % 2 == 0 ? TESS_INT : TESS_UINT, kBytes[static_cast<size_t>(place / 2)]);
  }
  if (number == kFloat) return of(TESS_FLOAT, sizeof(float));
  if (number == kDouble) return of(TESS_FLOAT, sizeof(double));
  if (number == kHalf) return of(TESS_FLOAT, 2);
  return of(kNoDtype, 0);
}

bool read(PyObject* object, NumpyArray& out) {
  const auto& a = *reinterpret_cast<const Array*>(object);
  if (a.descr->byte_order != '=' && a.descr->byte_order != '|') return false;
  const tess_dtype dtype = dtype_of_number(a.descr->number);
  if (dtype.code == kNoDtype) return false;
  out = {a.data, a.ndim, a.shape, a.strides, dtype, (a.flags & kDense) != 0, (a.flags & kWritable) != 0};
  return true;
}

// Whether the fields of this array of three dimensions are where they are thought to be. What a pointer points to is
// looked at when the pointer has shown itself to be right.
bool is_as_known(nb::handle array, bool usual) {
  const auto& a = *reinterpret_cast<const Array*>(array.ptr());
  Py_buffer buffer;
  if (PyObject_GetBuffer(array.ptr(), &buffer, PyBUF_FORMAT | PyBUF_STRIDES) != 0) throw nb::python_error();
  const nb::object descr = array.attr("dtype");
  bool same = a.data == buffer.buf && a.ndim == buffer.ndim && reinterpret_cast<PyObject*>(a.descr) == descr.ptr();
  const size_t bytes = static_cast<size_t>(buffer.ndim) * sizeof(Py_ssize_t);
  same = same && std::memcmp(a.shape, buffer.shape, bytes) == 0 && std::memcmp(a.strides, buffer.strides, bytes) == 0;
  same = same && ((a.flags & kWritable) == 0) == (buffer.readonly != 0);
  same = same && ((a.flags & kDense) != 0) == (PyBuffer_IsContiguous(&buffer, 'C') != 0);
  NumpyArray seen;
  const tess_dtype want = dtype_of(buffer);
  same = same && read(array.ptr(), seen) == usual;
  same = same && (!usual || (seen.dtype.code == want.code && seen.dtype.bits == want.bits));
  PyBuffer_Release(&buffer);
  return same;
}

// numpy's array type where its arrays are as known, else null.
PyTypeObject* look_at(PyTypeObject* type) {
  try {
    const nb::handle t(reinterpret_cast<PyObject*>(type));
    if (nb::cast<std::string>(t.attr("__module__")) != "numpy") return nullptr;
    const nb::object numpy = nb::module_::import_("numpy");
    if (!numpy.attr("ndarray").is(t)) return nullptr;
    for (const char* name : {"f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", ">f4", ">i8"}) {
      const bool usual = name[0] != '?' && name[0] != '>';
      const nb::object dense = numpy.attr("zeros")(nb::make_tuple(2, 3, 5), name);
      const nb::object turned = dense.attr("transpose")(2, 0, 1);
      dense.attr("setflags")(nb::arg("write") = false);
      if (!is_as_known(dense, usual) || !is_as_known(turned, usual)) return nullptr;
    }
    return type;
  } catch (const std::exception&) {
    PyErr_Clear();
    return nullptr;  // the protocol serves
  }
}

}  // namespace

bool read_numpy(PyObject* object, NumpyArray& out) {
  static PyTypeObject *known = nullptr, *other = nullptr;  // (under the GIL) numpy's type; the last one that is not
  PyTypeObject* const type = Py_TYPE(object);
  if (type != known) {
    if (known != nullptr || type == other) return false;
    known = look_at(type);
    if (known == nullptr) {
      Py_INCREF(reinterpret_cast<PyObject*>(type));  // one that is remembered is not replaced by another at its address
      Py_XDECREF(reinterpret_cast<PyObject*>(other));
      other = type;
      return false;
    }
    Py_INCREF(reinterpret_cast<PyObject*>(type));
  }
  return read(object, out);
}

tess_dtype dtype_of(const Py_buffer& b) {
  if (b.format == nullptr || b.format[0] == '\0' || b.format[1] != '\0') return of(kNoDtype, 0);
  const auto bytes = static_cast<size_t>(b.itemsize);
  switch (b.format[0]) {
    case 'e':
    case 'f':
    case 'd':
      return of(TESS_FLOAT, bytes);
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
      return of(TESS_INT, bytes);
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
      return of(TESS_UINT, bytes);
    default:
      return of(kNoDtype, 0);
  }
}

}  // namespace tessera::python
