// SPDX-License-Identifier: Apache-2.0
// What a context and a session have in common: ports, and a call with tensors. A small engine runs in a microsecond, so
// a call makes nothing that it does not hand out: no list, no text, no memory for a few tensors.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <atomic>
#include <ctime>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "python/errors.h"
#include "python/gil.h"
#include "python/log_lines.h"
#include "python/tensors.h"

namespace tessera::python {

// The tensors of one side of a call. A few take no memory.
class Tensors {
 public:
  explicit Tensors(size_t count) {
    if (count <= kFew) return;
    more_ = std::make_unique<Borrowed[]>(count);
    more_pointers_.resize(count, nullptr);
  }
  void take(size_t i, nb::handle object, bool written) {
    Borrowed& b = more_ != nullptr ? more_[i] : few_[i];
    b.take(object, written);
    data()[i] = &b.tensor();
  }
  tess_tensor** data() { return more_ != nullptr ? more_pointers_.data() : few_pointers_.data(); }

 private:
  static constexpr size_t kFew = 3;
  std::array<Borrowed, kFew> few_;
  std::array<tess_tensor*, kFew> few_pointers_{};
  std::unique_ptr<Borrowed[]> more_;
  std::vector<tess_tensor*> more_pointers_;
};

// Lets Ctrl-C, and whatever else a signal calls, end a run that the main thread waits for.
class Signals {
 public:
  // Of a call, also of one that is turned away while another thread's is asked: what is due stays due.
  void begin() {
    if (const int64_t now = now_ns(); now >= next_ns_) next_ns_ = now + kPeriodNs;
  }
  // For tess_context_watch and tess_session_watch. It takes the GIL now and then only: another thread may keep it for
  // milliseconds.
  static int32_t go_on(void* user) {
    auto& s = *static_cast<Signals*>(user);
    const int64_t now = now_ns();
    if (now < s.next_ns_) return 1;
    s.next_ns_ = now + kPeriodNs;
    const WithGil held;
    return PyErr_CheckSignals() == 0 ? 1 : 0;
  }

 private:
  static constexpr int64_t kPeriodNs = 20'000'000;
  static int64_t now_ns() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);  // a tick of milliseconds will do, and costs nothing
    return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
  }
  std::atomic<int64_t> next_ns_{0};
};
// What a signal has raised goes before the status of the run that it ended.
inline void check_run(tess_status* status) {
  LogLines::deliver();
  if (status != nullptr && PyErr_Occurred() != nullptr) {
    tess_status_free(status);
    throw nb::python_error();
  }
  check(status);
}

// The tensors of a call's inputs or outputs.
template <class T>
struct Side {
  T* const* tensors;
  size_t count;
};

template <class Handle>
class Callable {
 public:
  Callable(Handle handle, std::vector<Port> inputs, std::vector<Port> outputs, bool on_cuda, int device)
      : handle_(std::move(handle)),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)),
        on_cuda_(on_cuda),
        device_(device) {
    count_ports();
    watch();
  }

  const std::vector<Port>& inputs() const { return inputs_; }
  const std::vector<Port>& outputs() const { return outputs_; }
  Handle& handle() { return handle_; }
  Signals& signals() { return signals_; }

  // `change` returns other inputs and outputs. No call may be going on, which has the old ones in its hands.
  template <class F>
  void change_ports(const F& change) {
    const Turn turn(*this, true);
    std::tie(inputs_, outputs_) = change();
    count_ports();
  }

  // `inputs`: a tuple with a tensor per input that lies in no state. `out`: none, a tensor, or several.
  nb::object call(nb::handle inputs, nb::handle out, nb::handle stream) {
    const Turn turn(*this, false);
    const size_t in_count = inputs_.size(), out_count = outputs_.size();
    Tensors in(in_count), results(out_count);
    const auto given = static_cast<size_t>(PyTuple_Size(inputs.ptr()));
    if (given != wanted_) {
      const std::string said = std::to_string(given) + " inputs were given where there are " + std::to_string(wanted_);
      throw nb::type_error(said.c_str());
    }
    Py_ssize_t next = 0;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!inputs_[i].is_state) in.take(i, PyTuple_GetItem(inputs.ptr(), next++), false);
    }
    const Exchange* framework = given > 0 ? exchange_of(PyTuple_GetItem(inputs.ptr(), 0)) : nullptr;
    void* const on = stream_of(stream, framework, out.is_none());
    nb::object result = take_outputs(out, framework, results);
    tess_status* status = nullptr;
    {
      const WithoutGil released;
      signals_.begin();
      status = run({in.data(), in_count}, {results.data(), out_count}, on);
    }
    check_run(status);
    return result;
  }

 private:
  tess_status* run(const Side<const tess_tensor>& in, const Side<tess_tensor>& out, void* stream);
  void watch();

  // The ports are read by calls, and changed by one that is alone. (The GIL is held here, and given away in between.)
  class Turn {
   public:
    Turn(Callable& of, bool alone) : calls_(of.calls_), alone_(alone) {
      if (calls_ < 0 || (alone && calls_ > 0))
        raise(
            Status(TESS_BUSY, "this session is in use in another thread; make one per thread, they share the weights"));
      calls_ += alone ? -1 : 1;
    }
    ~Turn() { calls_ -= alone_ ? -1 : 1; }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    int& calls_;
    const bool alone_;
  };

  void count_ports() {
    wanted_ = 0;
    for (const Port& p : inputs_) wanted_ += p.is_state ? 0 : 1;
    numpy_arguments_.assign(outputs_.size(), nb::object());
  }

  // What the call returns: the caller's tensors, or new ones; a tuple where there are several.
  nb::object take_outputs(nb::handle out, const Exchange* framework, Tensors& tensors) const {
    const bool several = nb::isinstance<nb::tuple>(out) || nb::isinstance<nb::list>(out);
    const size_t given = several ? nb::len(out) : 1;
    nb::object first;
    std::vector<nb::object> others;
    size_t taken = 0;
    for (size_t o = 0; o < outputs_.size(); ++o) {
      if (outputs_[o].is_state) continue;
      nb::object tensor;
      if (out.is_none()) {
        tensor = new_output(o, framework, tensors);
      } else {
        if (taken >= given) throw nb::type_error("out= has fewer tensors than there are outputs");
        tensor = several ? nb::object(out[taken]) : nb::borrow(out);
        tensors.take(o, tensor, true);
      }
      if (++taken == 1) {
        first = std::move(tensor);
      } else {
        others.push_back(std::move(tensor));
      }
    }
    if (!out.is_none() && taken != given) throw nb::type_error("out= has more tensors than there are outputs");
    if (taken == 1) return first;
    nb::list all;
    if (taken > 0) all.append(first);
    for (nb::object& o : others) all.append(o);
    return nb::tuple(all);
  }

  // Of the inputs' framework, where they lie; of numpy where it has no table.
  nb::object new_output(size_t o, const Exchange* framework, Tensors& tensors) const {
    const Port& port = outputs_[o];
    if (framework == nullptr) {
      if (on_cuda_) throw nb::type_error("give out=: only PyTorch 2.10 or newer makes results on a GPU by itself");
      nb::object array = numpy_array(o);
      tensors.take(o, array, true);
      return array;
    }
    std::vector<int64_t> shape = port.shape;
    const tess_tensor prototype = {nullptr,
                                   {on_cuda_ ? TESS_CUDA : TESS_CPU, on_cuda_ ? device_ : 0},
                                   static_cast<int32_t>(shape.size()),
                                   port.dtype,
                                   shape.data(),
                                   nullptr,
                                   0};
    nb::object object = allocate(*framework, prototype);
    tensors.take(o, object, true);
    return object;
  }

  // Of numpy.empty: what it is called with for an output, made once.
  nb::object numpy_array(size_t o) const {
    static auto* const numpy = new nb::object(nb::module_::import_("numpy"));
    static auto* const empty = new nb::object(numpy->attr("empty"));
    nb::object& arguments = numpy_arguments_[o];
    if (!arguments.is_valid()) {
      const Port& port = outputs_[o];
      nb::list shape;
      for (const int64_t d : port.shape) shape.append(d);
      const char kind = port.dtype.code == TESS_FLOAT ? 'f' : port.dtype.code == TESS_INT ? 'i' : 'u';
      if (port.dtype.code > TESS_FLOAT || port.dtype.bits % 8 != 0)
        throw nb::type_error(("numpy has no " + port.element + ": give torch tensors, or out=").c_str());
      const std::string name = std::string(1, kind) + std::to_string(port.dtype.bits / 8);
      arguments = nb::make_tuple(nb::tuple(shape), numpy->attr("dtype")(name));
    }
    nb::object array = nb::steal(PyObject_CallObject(empty->ptr(), arguments.ptr()));
    if (!array.is_valid()) throw nb::python_error();
    return array;
  }

  // `allocates`: results are the framework's to make, on its own current stream, and torch would give their memory to
  // others in the order of that one.
  void* stream_of(nb::handle stream, const Exchange* framework, bool allocates) const {
    if (!on_cuda_) return nullptr;
    void* current = nullptr;
    const bool knows = framework != nullptr && framework->current_stream != nullptr;
    if (knows && framework->current_stream(TESS_CUDA, device_, &current) != 0) throw nb::python_error();
    if (stream.is_none()) return current;
    // An address, or an object that has one (torch.cuda.Stream).
    const nb::object address =
        nb::hasattr(stream, "cuda_stream") ? nb::object(stream.attr("cuda_stream")) : nb::borrow(stream);
    auto* const asked = reinterpret_cast<void*>(nb::cast<uintptr_t>(address));
    if (knows && allocates && asked != current)
      throw nb::value_error(
          "stream= is not torch's current stream, on which the results would be allocated: call inside "
          "`with torch.cuda.stream(s)`, or give out= tensors that live until the stream has passed the call");
    return asked;
  }

  Handle handle_;
  std::vector<Port> inputs_, outputs_;
  size_t wanted_ = 0;  // inputs that lie in no state
  const bool on_cuda_;
  const int device_;
  Signals signals_;
  int calls_ = 0;  // that are going on; -1: the ports are being changed
  mutable std::vector<nb::object> numpy_arguments_;
};

// The keywords of a call.
struct CallWords {
  explicit CallWords(PyObject* words) : out(Py_None), stream(Py_None) {
    static PyObject* const kOut = PyUnicode_InternFromString("out");
    static PyObject* const kStream = PyUnicode_InternFromString("stream");
    if (words == nullptr) return;
    const Py_ssize_t known = take(words, kOut, out) + take(words, kStream, stream);
    if (PyDict_Size(words) != known)
      throw nb::type_error("a call takes tensors in the order of the inputs, and the keywords out and stream");
  }
  nb::handle out, stream;

 private:
  static Py_ssize_t take(PyObject* words, PyObject* name, nb::handle& value) {
    PyObject* const found = PyDict_GetItemWithError(words, name);
    if (found != nullptr) value = found;
    return found != nullptr ? 1 : 0;
  }
};

inline PyObject* python_type(nb::exception_type type) {
  return type == nb::exception_type::type_error    ? PyExc_TypeError
         : type == nb::exception_type::value_error ? PyExc_ValueError
                                                   : PyExc_RuntimeError;
}

// tp_call of a Callable's type. nanobind's own way of a call, with its overloads, takes as long as the rest of it.
template <class T>
PyObject* call_slot(PyObject* self, PyObject* inputs, PyObject* words) noexcept {
  try {
    if (!nb::inst_ready(self)) throw nb::type_error("an object that was made by no engine cannot be called");
    const CallWords with(words);
    return nb::inst_ptr<T>(self)->call(inputs, with.out, with.stream).release().ptr();
  } catch (nb::python_error& e) {
    e.restore();
  } catch (const nb::builtin_exception& e) {
    PyErr_SetString(python_type(e.type()), e.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
  return nullptr;
}

}  // namespace tessera::python
