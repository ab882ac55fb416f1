// SPDX-License-Identifier: Apache-2.0
// Notes and warnings of the library for Python's logging. The library hands a line over from whatever thread, without
// the GIL and inside a lock of its own: to ask for the GIL there could wait for ever. So lines wait in a list without
// a lock, which a fork finds whole as well, and the next call that has the GIL again hands them on.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace tessera::python {

namespace nb = nanobind;

class LogLines {
 public:
  // What lines are handed to: a function of (level, line).
  static nb::object& listener() {
    static auto* held = new nb::object();  // never destroyed: Python is gone by then
    return *held;
  }

  // For tess_set_log.
  static void take(int32_t level, const char* line, void*) {
    auto* const node = new Node{level, line, newest().load(std::memory_order_relaxed)};
    while (!newest().compare_exchange_weak(node->older, node, std::memory_order_release, std::memory_order_relaxed)) {
    }
  }

  // With the GIL. What the listener raises is no answer to the call that comes by here: it is reported as unraisable,
  // and a Ctrl-C comes again.
  static void deliver() {
    if (newest().load(std::memory_order_relaxed) == nullptr) return;
    const nb::error_scope kept;  // an exception that is on its way
    Node* in_order = nullptr;
    for (Node* n = newest().exchange(nullptr, std::memory_order_acquire); n != nullptr;) {
      Node* const older = n->older;
      n->older = in_order, in_order = n;
      n = older;
    }
    while (in_order != nullptr) {
      Node* const n = in_order;
      in_order = n->older;
      hand_on(*n);
      delete n;
    }
  }

 private:
  struct Node {
    int32_t level;
    std::string line;
    Node* older;
  };
  static std::atomic<Node*>& newest() {
    static std::atomic<Node*> first{nullptr};
    return first;
  }
  static void hand_on(const Node& n) {
    if (!listener().is_valid() || listener().is_none()) return;
    try {
      const auto bytes = static_cast<Py_ssize_t>(n.line.size());
      const nb::object line = nb::steal(PyUnicode_DecodeUTF8(n.line.data(), bytes, "replace"));
      if (!line.is_valid()) throw nb::python_error();
      listener()(n.level, line);
    } catch (nb::python_error& e) {
      if (e.matches(PyExc_KeyboardInterrupt)) {
        PyErr_SetInterrupt();
      } else {
        e.discard_as_unraisable("a log of tessera");
      }
    } catch (const std::exception&) {  // no memory for a line of the log
    }
  }
};

}  // namespace tessera::python
