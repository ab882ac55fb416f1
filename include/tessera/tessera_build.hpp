// SPDX-License-Identifier: Apache-2.0
// tessera_build.h for C++17 and newer: what `tessera build`, `verify` and `sensitivity` do, with strings, vectors and
// functions of C++. A header alone, to be linked with tessera::build. Empty texts and lists are not given.
#ifndef TESSERA_TESSERA_BUILD_HPP
#define TESSERA_TESSERA_BUILD_HPP

#include <tessera/tessera.hpp>
#include <tessera/tessera_build.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera {
inline namespace v1 {

// Samples of an input, in host memory: [samples, ...].
struct Samples {
  std::string name;
  View view;
};
// Called from any thread, one call at a time; they must not call the library, nor throw. False ends the work with
// TESS_CANCELLED.
using ProgressFunction = std::function<bool(const std::string& what, int64_t done, int64_t total)>;

// The options of `tessera build` by the same names and in the same words.
struct BuildOptions {
  std::string precision, attention, recipe, target, accumulate, sparsity, sparsity_by, refine;
  std::vector<int64_t> batch;
  std::string calib;  // npz, folder of images, file of ranges; or:
  std::vector<Samples> calib_arrays;
  std::string calib_method, preprocess;
  int64_t calib_samples = 0;
  std::vector<std::string> allow, shape, state, io, size, graph;
  std::string schedule, family, tuning, golden, golden_inputs;
  std::optional<int64_t> random, seed;
  std::optional<double> min_cosine;
  int64_t golden_samples = 0;
  bool verify = true, tune = false, chains = false, keep_norms = false;
  ProgressFunction progress = {};
  LogFunction log = {};
};

// The options of `tessera verify` by the same names.
struct VerifyOptions {
  std::string inputs;  // npz with samples; or:
  std::vector<Samples> input_arrays;
  std::string kinds, model, family, plan;
  double min_cosine = 0;
  int64_t samples = 0, seed = 0;
  bool outputs_only = false;
  ProgressFunction progress = {};
  LogFunction log = {};
};

// The options of `tessera sensitivity` by the same names.
struct SensitivityOptions {
  std::string precision, attention;
  std::string calib;  // npz or folder of images; or:
  std::vector<Samples> calib_arrays;
  std::string calib_method, preprocess;
  int64_t calib_samples = 0;
  ProgressFunction progress = {};
  LogFunction log = {};
  // How the model is read.
  std::string family;
  std::vector<std::string> shape, state, io, size;
  std::optional<int64_t> random;
};

// What a command prints with --json. An engine that strays has both, a report and TESS_VERIFY_FAILED.
struct Report {
  Status status;
  std::string json;
};

namespace detail {

inline const char* text(const std::string& given) { return given.empty() ? nullptr : given.c_str(); }

inline std::vector<const char*> pointers(const std::vector<std::string>& words) {
  std::vector<const char*> all;
  for (const std::string& w : words) all.push_back(w.c_str());
  return all;
}

// Arrays for the length of a call.
class Arrays {
 public:
  explicit Arrays(const std::vector<Samples>& given) : views_(given) {
    for (Samples& s : views_) arrays_.push_back({s.name.c_str(), s.view.c()});
  }
  const tess_array* data() const { return arrays_.data(); }
  size_t size() const { return arrays_.size(); }

 private:
  std::vector<Samples> views_;  // copies, whose C structs stay where they are
  std::vector<tess_array> arrays_;
};

// Both functions of the caller, behind the one pointer that the C functions have.
struct Listeners {
  const ProgressFunction& progress;
  const LogFunction& log;

  template <class Options>
  void listen(Options& o) {
    o.user = this;
    if (progress)
      o.progress = [](const char* what, int64_t done, int64_t total, void* user) noexcept -> int32_t {
        return static_cast<Listeners*>(user)->progress(what, done, total) ? 0 : 1;
      };
    if (log)
      o.log = [](int32_t level, const char* line, void* user) noexcept {
        static_cast<Listeners*>(user)->log(level, line);
      };
  }
};

inline Report report_of(tess_status* status, tess_report* report) {
  Report found{Status(status), tess_report_json(report)};
  tess_report_free(report);
  return found;
}

}  // namespace detail

// Builds `model`, an ONNX file or with a family a checkpoint's folder, into the engine file `output`.
inline Status build(const std::string& model, const std::string& output, const BuildOptions& options = {}) {
  const detail::Arrays arrays(options.calib_arrays);
  const auto allow = detail::pointers(options.allow), shapes = detail::pointers(options.shape),
             states = detail::pointers(options.state), io = detail::pointers(options.io),
             sizes = detail::pointers(options.size), graphs = detail::pointers(options.graph);
  tess_build_options o{};
  o.size = sizeof(o);
  o.precision = detail::text(options.precision), o.attention = detail::text(options.attention);
  o.recipe = detail::text(options.recipe), o.target = detail::text(options.target);
  o.batches = options.batch.data(), o.batch_count = options.batch.size();
  o.calib = detail::text(options.calib), o.calib_arrays = arrays.data(), o.calib_array_count = arrays.size();
  o.calib_method = detail::text(options.calib_method), o.calib_samples = options.calib_samples;
  o.preprocess = detail::text(options.preprocess), o.no_verify = options.verify ? 0 : 1;
  o.allow = allow.data(), o.allow_count = allow.size();
  o.shapes = shapes.data(), o.shape_count = shapes.size();
  o.states = states.data(), o.state_count = states.size();
  o.io = io.data(), o.io_count = io.size();
  o.sizes = sizes.data(), o.size_count = sizes.size();
  o.graphs = graphs.data(), o.graph_count = graphs.size();
  o.family = detail::text(options.family), o.schedule = detail::text(options.schedule);
  o.accumulate = detail::text(options.accumulate), o.sparsity = detail::text(options.sparsity);
  o.sparsity_by = detail::text(options.sparsity_by), o.refine = detail::text(options.refine);
  o.tuning = detail::text(options.tuning), o.golden = detail::text(options.golden);
  o.golden_inputs = detail::text(options.golden_inputs), o.golden_samples = options.golden_samples;
  o.random = options.random ? &*options.random : nullptr, o.seed = options.seed ? &*options.seed : nullptr;
  o.min_cosine = options.min_cosine ? &*options.min_cosine : nullptr;
  o.tune = options.tune ? 1 : 0, o.chains = options.chains ? 1 : 0, o.keep_norms = options.keep_norms ? 1 : 0;
  detail::Listeners listeners{options.progress, options.log};
  listeners.listen(o);
  return Status(tess_build(model.c_str(), output.c_str(), &o));
}

// Compares an engine file with its golden values, its golden plan and its model.
inline Report verify(const std::string& engine, const VerifyOptions& options = {}) {
  const detail::Arrays arrays(options.input_arrays);
  tess_verify_options o{};
  o.size = sizeof(o);
  o.inputs = detail::text(options.inputs), o.input_arrays = arrays.data(), o.input_array_count = arrays.size();
  o.kinds = detail::text(options.kinds), o.model = detail::text(options.model);
  o.family = detail::text(options.family), o.plan = detail::text(options.plan);
  o.min_cosine = options.min_cosine, o.samples = options.samples, o.seed = options.seed;
  o.outputs_only = options.outputs_only ? 1 : 0;
  detail::Listeners listeners{options.progress, options.log};
  listeners.listen(o);
  tess_report* report = nullptr;
  tess_status* const status = tess_verify(engine.c_str(), &o, &report);
  return detail::report_of(status, report);
}

// Ranks the layers of an ONNX file, or with a family of a checkpoint's folder, by what their low precision costs.
inline Report sensitivity(const std::string& model, const SensitivityOptions& options) {
  const detail::Arrays arrays(options.calib_arrays);
  const auto shapes = detail::pointers(options.shape), states = detail::pointers(options.state),
             io = detail::pointers(options.io), sizes = detail::pointers(options.size);
  tess_sensitivity_options o{};
  o.size = sizeof(o);
  o.precision = detail::text(options.precision), o.attention = detail::text(options.attention);
  o.calib = detail::text(options.calib), o.calib_arrays = arrays.data(), o.calib_array_count = arrays.size();
  o.calib_method = detail::text(options.calib_method), o.calib_samples = options.calib_samples;
  o.preprocess = detail::text(options.preprocess), o.family = detail::text(options.family);
  o.shapes = shapes.data(), o.shape_count = shapes.size();
  o.states = states.data(), o.state_count = states.size();
  o.io = io.data(), o.io_count = io.size();
  o.sizes = sizes.data(), o.size_count = sizes.size();
  o.random = options.random ? &*options.random : nullptr;
  detail::Listeners listeners{options.progress, options.log};
  listeners.listen(o);
  tess_report* report = nullptr;
  tess_status* const status = tess_sensitivity(model.c_str(), &o, &report);
  return detail::report_of(status, report);
}

}  // namespace v1
}  // namespace tessera

#endif
