// SPDX-License-Identifier: Apache-2.0
// tessera._tessera_build: tessera_build.h for Python. tessera/_build.py and _reports.py make it comfortable.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <tessera/tessera_build.h>
#include <tessera/tessera.hpp>

#include <deque>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/gil.h"
#include "python/tensors.h"

namespace tessera::python {
namespace {

using Text = std::optional<std::string>;
const char* word(const Text& text) { return text ? text->c_str() : nullptr; }

// The caller's functions, and what they raised: an exception ends the work, and is raised again behind it.
struct Listeners {
  nb::object progress, log;
  std::exception_ptr raised;

  template <class F>
  bool call(const F& body) {
    const WithGil held;
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

// (0, "", []) or the code, sentence and refused layers of the status, which is freed.
nb::tuple said(tess_status* given) {
  const Status status(given);
  nb::list layers;
  for (const RefusedLayer& l : status.layers()) {
    nb::list refusals;
    for (const Refusal& r : l.refusals) refusals.append(nb::make_tuple(r.kernel, r.reason));
    layers.append(nb::make_tuple(l.layer, l.op, l.asked, refusals));
  }
  return nb::make_tuple(status.code(), status.message(), layers);
}

// Arrays of the caller's for the length of a call.
class NamedArrays {
 public:
  explicit NamedArrays(const std::vector<std::pair<std::string, nb::object>>& arrays) {
    for (const auto& [name, array] : arrays) {
      borrowed_.emplace_back().take(array, false);
      named_.push_back({name.c_str(), &borrowed_.back().tensor()});
    }
  }
  const tess_array* data() const { return named_.data(); }
  size_t size() const { return named_.size(); }

 private:
  std::deque<Borrowed> borrowed_;
  std::vector<tess_array> named_;
};
using Arrays = std::vector<std::pair<std::string, nb::object>>;

// What it returns, or what the caller's functions have raised.
template <class F>
nb::tuple watched(Listeners& listeners, const F& call) {
  tess_status* status = nullptr;
  {
    const WithoutGil released;
    status = call();
  }
  nb::tuple found = said(status);
  if (listeners.raised != nullptr) std::rethrow_exception(listeners.raised);
  return found;
}
template <class Options>
void set_listeners(Options& o, Listeners& listeners) {
  o.progress = &on_progress, o.log = &on_log, o.user = &listeners;
}

using Words = std::vector<std::string>;
// Pointers to words that live elsewhere.
std::vector<const char*> pointers(const Words& words) {
  std::vector<const char*> all;
  for (const std::string& w : words) all.push_back(w.c_str());
  return all;
}

// What a build is asked for, field by field: _build.py sets what its caller gives.
struct BuildAsked {
  Text precision, attention, recipe, target, calib, calib_method, preprocess, family, schedule, accumulate, sparsity,
      sparsity_by, refine, tuning, golden, golden_inputs;
  Words allow, shapes, states, io, sizes, graphs;
  std::vector<int64_t> batches;
  int64_t calib_samples = 0, golden_samples = 0;
  std::optional<int64_t> random, seed;
  std::optional<double> min_cosine;
  bool verify = true, tune = false, chains = false, keep_norms = false;
};

nb::tuple build(const std::string& model, const std::string& output, const BuildAsked& asked, const Arrays& arrays,
                nb::object progress, nb::object log) {
  Listeners listeners{std::move(progress), std::move(log), nullptr};
  const NamedArrays named(arrays);
  const auto allow = pointers(asked.allow), shapes = pointers(asked.shapes), states = pointers(asked.states),
             io = pointers(asked.io), sizes = pointers(asked.sizes), graphs = pointers(asked.graphs);
  tess_build_options o{};
  o.size = sizeof(o);
  o.precision = word(asked.precision), o.attention = word(asked.attention), o.recipe = word(asked.recipe);
  o.target = word(asked.target), o.batches = asked.batches.data(), o.batch_count = asked.batches.size();
  o.calib = word(asked.calib), o.calib_arrays = named.data(), o.calib_array_count = named.size();
  o.calib_method = word(asked.calib_method), o.calib_samples = asked.calib_samples;
  o.allow = allow.data(), o.allow_count = allow.size(), o.no_verify = asked.verify ? 0 : 1;
  o.family = word(asked.family), o.schedule = word(asked.schedule), o.accumulate = word(asked.accumulate);
  o.shapes = shapes.data(), o.shape_count = shapes.size();
  o.states = states.data(), o.state_count = states.size();
  o.io = io.data(), o.io_count = io.size();
  o.sizes = sizes.data(), o.size_count = sizes.size();
  o.graphs = graphs.data(), o.graph_count = graphs.size();
  o.sparsity = word(asked.sparsity), o.sparsity_by = word(asked.sparsity_by), o.refine = word(asked.refine);
  o.preprocess = word(asked.preprocess), o.tuning = word(asked.tuning);
  o.golden = word(asked.golden), o.golden_inputs = word(asked.golden_inputs), o.golden_samples = asked.golden_samples;
  o.random = asked.random ? &*asked.random : nullptr, o.seed = asked.seed ? &*asked.seed : nullptr;
  o.min_cosine = asked.min_cosine ? &*asked.min_cosine : nullptr;
  o.tune = asked.tune, o.chains = asked.chains, o.keep_norms = asked.keep_norms;
  set_listeners(o, listeners);
  return watched(listeners, [&] { return tess_build(model.c_str(), output.c_str(), &o); });
}

// The status as `build` has it, and the report's JSON; empty where there is none.
template <class F>
nb::tuple reported(Listeners& listeners, const F& call) {
  struct Held {
    ~Held() { tess_report_free(report); }
    tess_report* report = nullptr;
  } held;
  nb::tuple found = watched(listeners, [&] { return call(&held.report); });
  return nb::make_tuple(found, nb::str(tess_report_json(held.report)));
}

nb::tuple verify(const std::string& engine, const Text& inputs, const Arrays& arrays, const Text& kinds,
                 const Text& model, const Text& family, const Text& plan, double min_cosine, int64_t samples,
                 int64_t seed, bool layers, nb::object progress, nb::object log) {
  Listeners listeners{std::move(progress), std::move(log), nullptr};
  const NamedArrays named(arrays);
  tess_verify_options o{};
  o.size = sizeof(o);
  o.inputs = word(inputs), o.input_arrays = named.data(), o.input_array_count = named.size();
  o.kinds = word(kinds), o.model = word(model), o.family = word(family), o.plan = word(plan);
  o.min_cosine = min_cosine, o.samples = samples, o.seed = seed, o.outputs_only = layers ? 0 : 1;
  set_listeners(o, listeners);
  return reported(listeners, [&](tess_report** out) { return tess_verify(engine.c_str(), &o, out); });
}

// Of `asked` what sensitivity has.
nb::tuple sensitivity(const std::string& model, const BuildAsked& asked, const Arrays& arrays, nb::object progress,
                      nb::object log) {
  Listeners listeners{std::move(progress), std::move(log), nullptr};
  const NamedArrays named(arrays);
  const auto shapes = pointers(asked.shapes), states = pointers(asked.states), io = pointers(asked.io),
             sizes = pointers(asked.sizes);
  tess_sensitivity_options o{};
  o.size = sizeof(o);
  o.precision = word(asked.precision), o.attention = word(asked.attention);
  o.calib = word(asked.calib), o.calib_arrays = named.data(), o.calib_array_count = named.size();
  o.calib_method = word(asked.calib_method), o.calib_samples = asked.calib_samples;
  o.preprocess = word(asked.preprocess), o.family = word(asked.family);
  o.shapes = shapes.data(), o.shape_count = shapes.size();
  o.states = states.data(), o.state_count = states.size();
  o.io = io.data(), o.io_count = io.size();
  o.sizes = sizes.data(), o.size_count = sizes.size();
  o.random = asked.random ? &*asked.random : nullptr;
  set_listeners(o, listeners);
  return reported(listeners, [&](tess_report** out) { return tess_sensitivity(model.c_str(), &o, out); });
}

void bind_asked(nb::module_& m) {
  nb::class_<BuildAsked>(m, "BuildAsked")
      .def(nb::init<>())
      .def_rw("precision", &BuildAsked::precision)
      .def_rw("attention", &BuildAsked::attention)
      .def_rw("recipe", &BuildAsked::recipe)
      .def_rw("target", &BuildAsked::target)
      .def_rw("calib", &BuildAsked::calib)
      .def_rw("calib_method", &BuildAsked::calib_method)
      .def_rw("preprocess", &BuildAsked::preprocess)
      .def_rw("family", &BuildAsked::family)
      .def_rw("schedule", &BuildAsked::schedule)
      .def_rw("accumulate", &BuildAsked::accumulate)
      .def_rw("sparsity", &BuildAsked::sparsity)
      .def_rw("sparsity_by", &BuildAsked::sparsity_by)
      .def_rw("refine", &BuildAsked::refine)
      .def_rw("tuning", &BuildAsked::tuning)
      .def_rw("golden", &BuildAsked::golden)
      .def_rw("golden_inputs", &BuildAsked::golden_inputs)
      .def_rw("allow", &BuildAsked::allow)
      .def_rw("shapes", &BuildAsked::shapes)
      .def_rw("states", &BuildAsked::states)
      .def_rw("io", &BuildAsked::io)
      .def_rw("sizes", &BuildAsked::sizes)
      .def_rw("graphs", &BuildAsked::graphs)
      .def_rw("batches", &BuildAsked::batches)
      .def_rw("calib_samples", &BuildAsked::calib_samples)
      .def_rw("golden_samples", &BuildAsked::golden_samples)
      .def_rw("random", &BuildAsked::random)
      .def_rw("seed", &BuildAsked::seed)
      .def_rw("min_cosine", &BuildAsked::min_cosine)
      .def_rw("verify", &BuildAsked::verify)
      .def_rw("tune", &BuildAsked::tune)
      .def_rw("chains", &BuildAsked::chains)
      .def_rw("keep_norms", &BuildAsked::keep_norms);
}

}  // namespace
}  // namespace tessera::python

NB_MODULE(_tessera_build, m) {
  using namespace nanobind::literals;
  namespace nb = nanobind;
  nb::set_leak_warnings(false);  // a thread that Python ends with keeps what it holds
  tessera::python::bind_asked(m);
  m.def("build", &tessera::python::build, "model"_a, "output"_a, "asked"_a, "arrays"_a, "progress"_a.none(),
        "log"_a.none());
  m.def("verify", &tessera::python::verify, "engine"_a, "inputs"_a.none(), "arrays"_a, "kinds"_a.none(),
        "model"_a.none(), "family"_a.none(), "plan"_a.none(), "min_cosine"_a, "samples"_a, "seed"_a, "layers"_a,
        "progress"_a.none(), "log"_a.none());
  m.def("sensitivity", &tessera::python::sensitivity, "model"_a, "asked"_a, "arrays"_a, "progress"_a.none(),
        "log"_a.none());
}
