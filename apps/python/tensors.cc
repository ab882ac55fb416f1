// SPDX-License-Identifier: Apache-2.0
#include "python/tensors.h"

#include <utility>

#include "python/numpy_arrays.h"

namespace tessera::python {
namespace {

// The table of a type, which takes longer to look up than the rest of a call.
struct Known {
  nb::object type;  // held: no other type comes to lie at its address while it is remembered
  const Exchange* exchange = nullptr;
  nb::object is_negated;  // torch's Tensor.is_neg, where the type has it
};

const Exchange* look_up(PyTypeObject* type) {
  nb::object capsule = nb::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), kExchangeName));
  if (!capsule.is_valid()) {
    PyErr_Clear();
    return nullptr;
  }
  if (PyCapsule_IsValid(capsule.ptr(), kExchangeCapsule) == 0) return nullptr;
  const auto* exchange = static_cast<const Exchange*>(PyCapsule_GetPointer(capsule.ptr(), kExchangeCapsule));
  while (exchange != nullptr && exchange->major > kExchangeMajor) exchange = exchange->older;
  return exchange != nullptr && exchange->major == kExchangeMajor ? exchange : nullptr;
}

// Types that were seen last.
std::array<Known, 16>& seen_types() {
  static auto& known = *new std::array<Known, 16>;  // never destroyed: Python is gone by then
  return known;
}

// Null: not seen lately. It stands until code of Python's runs, which may have others remembered.
const Known* find_known(PyTypeObject* type) {
  for (const Known& k : seen_types()) {
    if (k.type.ptr() == reinterpret_cast<PyObject*>(type)) return &k;
  }
  return nullptr;
}

Known known_of(PyTypeObject* type) {
  static size_t next = 0;
  if (const Known* const k = find_known(type)) return *k;
  Known found = {nb::borrow(reinterpret_cast<PyObject*>(type)), look_up(type), {}};
  if (found.exchange != nullptr) {
    found.is_negated = nb::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "is_neg"));
    PyErr_Clear();
  }
  auto& seen = seen_types();
  const Known forgotten = std::exchange(seen[next++ % seen.size()], found);  // it goes when all is in order again
  return found;
}

// A view of torch's that stands for the numbers in its memory times -1 says so nowhere else.
void refuse_negated(nb::handle object) {
  const nb::object is_negated = known_of(Py_TYPE(object.ptr())).is_negated;
  if (!is_negated.is_valid()) return;
  const nb::object said = nb::steal(PyObject_CallFunctionObjArgs(is_negated.ptr(), object.ptr(), nullptr));
  if (!said.is_valid()) throw nb::python_error();
  if (said.ptr() == Py_True)
    throw nb::value_error("a tensor is a negated view of other memory: resolve_neg() makes it a plain one");
}

void raise(void*, const char* kind, const char* message) { PyErr_Format(PyExc_RuntimeError, "%s: %s", kind, message); }

}  // namespace

const Exchange* exchange_of(nb::handle object) {
  const Known* const k = find_known(Py_TYPE(object.ptr()));
  return k != nullptr ? k->exchange : known_of(Py_TYPE(object.ptr())).exchange;
}

Borrowed::~Borrowed() {
  if (buffered_) PyBuffer_Release(&buffer_);
  if (managed_ != nullptr && managed_->deleter != nullptr) managed_->deleter(managed_);
}

void Borrowed::take(nb::handle object, bool written) {
  const Exchange* exchange = exchange_of(object);
  if (exchange == nullptr) {
    if (!take_numpy(object, written) && !take_buffer(object, written)) take_array(object, written);
    return;
  }
  refuse_negated(object);
  if (exchange->view_of != nullptr) {
    if (exchange->view_of(object.ptr(), &tensor_) != 0) throw nb::python_error();
    return;
  }
  if (exchange->managed_of(object.ptr(), &managed_) != 0) throw nb::python_error();
  tensor_ = managed_->tensor;
}

// The way of most calls.
bool Borrowed::take_numpy(nb::handle object, bool written) {
  NumpyArray array;
  if (!read_numpy(object.ptr(), array) || array.ndim > static_cast<int>(kMostDimensions)) return false;
  if (written && !array.writable) return false;  // who comes next says it
  const int64_t bytes = array.dtype.bits / 8;
  for (int i = 0; i < array.ndim; ++i) shape_[static_cast<size_t>(i)] = array.shape[i];
  for (int i = 0; !array.dense && i < array.ndim; ++i) {
    if (array.strides[i] % bytes != 0) return false;
    strides_[static_cast<size_t>(i)] = array.strides[i] / bytes;
  }
  int64_t* const strides = array.dense ? nullptr : strides_.data();
  tensor_ = {array.data, {TESS_CPU, 0}, array.ndim, array.dtype, shape_.data(), strides, 0};
  return true;
}

// nanobind's way takes everything that is an array, and longer.
bool Borrowed::take_buffer(nb::handle object, bool written) {
  if (PyObject_CheckBuffer(object.ptr()) == 0) return false;
  if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_FORMAT | PyBUF_STRIDES | (written ? PyBUF_WRITABLE : 0)) != 0) {
    PyErr_Clear();  // who comes next says it
    return false;
  }
  buffered_ = true;
  const tess_dtype type = dtype_of(buffer_);
  bool usual =
      type.code != kNoDtype && buffer_.ndim <= static_cast<int>(kMostDimensions) && buffer_.suboffsets == nullptr;
  for (int i = 0; usual && i < buffer_.ndim; ++i) {
    usual = buffer_.strides[i] % buffer_.itemsize == 0;
    shape_[static_cast<size_t>(i)] = buffer_.shape[i];
    strides_[static_cast<size_t>(i)] = buffer_.strides[i] / buffer_.itemsize;
  }
  if (!usual) {
    PyBuffer_Release(&buffer_);
    buffered_ = false;
    return false;
  }
  tensor_ = {buffer_.buf, {TESS_CPU, 0}, buffer_.ndim, type, shape_.data(), strides_.data(), 0};
  return true;
}

void Borrowed::take_array(nb::handle object, bool written) {
  if (written) {
    nb::ndarray<> array;
    if (!nb::try_cast(object, array))
      throw nb::type_error("out= is no array of numbers that can be written (numpy, DLPack)");
    array_.emplace(array);
  } else {
    nb::ndarray<nb::ro> array;
    if (!nb::try_cast(object, array))
      throw nb::type_error("an input is no array of numbers in this machine's byte order (numpy, DLPack)");
    array_.emplace(std::move(array));
  }
  if (array_->ndim() > kMostDimensions) throw nb::value_error("an array has more than 16 dimensions");
  for (size_t i = 0; i < array_->ndim(); ++i) shape_[i] = array_->shape(i), strides_[i] = array_->stride(i);
  const nb::dlpack::dtype type = array_->dtype();
  tensor_ = {const_cast<void*>(static_cast<const void*>(array_->data())),
             {array_->device_type(), array_->device_id()},
             static_cast<int32_t>(array_->ndim()),
             {static_cast<uint8_t>(type.code), type.bits, type.lanes},
             shape_.data(),
             strides_.data(),
             0};
}

nb::object allocate(const Exchange& exchange, const tess_tensor& prototype) {
  tess_tensor asked = prototype;
  ManagedTensor* managed = nullptr;
  if (exchange.allocate(&asked, &managed, nullptr, &raise) != 0) throw nb::python_error();
  void* object = nullptr;
  if (exchange.object_of(managed, &object) != 0) throw nb::python_error();
  return nb::steal(static_cast<PyObject*>(object));
}

}  // namespace tessera::python
