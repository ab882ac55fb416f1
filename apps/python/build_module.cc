// SPDX-License-Identifier: Apache-2.0
// tessera._tessera_build: tess_build for Python. tessera/_build.py makes it comfortable.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <tessera/tessera_build.h>

#include <deque>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/tensors.h"

namespace tessera::python {
namespace {

using Text = std::optional<std::string>;
const char* word(const Text& text) { return text ? text->c_str() : nullptr; }

// The caller's functions, and what they raised: an exception ends the build, and is raised again behind it.
struct Listeners {
  nb::object progress, log;
  std::exception_ptr raised;

  template <class F>
  bool call(const F& body) {
    const nb::gil_scoped_acquire held;
    try {
      if (raised == nullptr && PyErr_CheckSignals() != 0) throw nb::python_error();  // Ctrl-C
      if (raised == nullptr) body();
    } catch (...) {
      raised = std::current_exception();
    }
    return raised == nullptr;
  }
};

int32_t on_progress(const char* what, int64_t done, int64_t total, void* user) {
  auto& l = *static_cast<Listeners*>(user);
  return l.call([&] {
    if (!l.progress.is_none()) l.progress(what, done, total);
  })
             ? 0
             : 1;
}
void on_log(int32_t level, const char* line, void* user) {
  auto& l = *static_cast<Listeners*>(user);
  l.call([&] {
    if (!l.log.is_none()) l.log(level, line);
  });
}

// (0, "") or the code and sentence of the status.
std::pair<int, std::string> build(const std::string& model, const std::string& output, const Text& precision,
                                  const Text& attention, const Text& recipe, const Text& target,
                                  const std::vector<int64_t>& batches, const Text& calib,
                                  const std::vector<std::pair<std::string, nb::object>>& arrays,
                                  const Text& calib_method, int64_t calib_samples,
                                  const std::vector<std::string>& allow, bool verify, nb::object progress,
                                  nb::object log) {
  Listeners listeners{std::move(progress), std::move(log), nullptr};
  std::deque<Borrowed> borrowed;
  std::vector<tess_array> named;
  for (const auto& [name, array] : arrays) {
    borrowed.emplace_back().take(array, false);
    named.push_back({name.c_str(), &borrowed.back().tensor()});
  }
  std::vector<const char*> allowed;
  for (const std::string& a : allow) allowed.push_back(a.c_str());
  tess_build_options o{};
  o.size = sizeof(o);
  o.precision = word(precision), o.attention = word(attention), o.recipe = word(recipe), o.target = word(target);
  o.batches = batches.data(), o.batch_count = batches.size();
  o.calib = word(calib), o.calib_arrays = named.data(), o.calib_array_count = named.size();
  o.calib_method = word(calib_method), o.calib_samples = calib_samples;
  o.allow = allowed.data(), o.allow_count = allowed.size(), o.no_verify = verify ? 0 : 1;
  o.progress = &on_progress, o.log = &on_log, o.user = &listeners;
  tess_status* status = nullptr;
  {
    const nb::gil_scoped_release released;
    status = tess_build(model.c_str(), output.c_str(), &o);
  }
  std::pair<int, std::string> said(tess_status_code(status), tess_status_message(status));
  tess_status_free(status);
  if (listeners.raised != nullptr) std::rethrow_exception(listeners.raised);
  return said;
}

}  // namespace
}  // namespace tessera::python

NB_MODULE(_tessera_build, m) {
  using namespace nanobind::literals;
  namespace nb = nanobind;
  m.def("build", &tessera::python::build, "model"_a, "output"_a, "precision"_a.none(), "attention"_a.none(),
        "recipe"_a.none(), "target"_a.none(), "batches"_a, "calib"_a.none(), "arrays"_a, "calib_method"_a.none(),
        "calib_samples"_a, "allow"_a, "verify"_a, "progress"_a.none(), "log"_a.none());
}
