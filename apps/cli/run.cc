// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <set>

#include "base/log.h"
#include "base/wildcard.h"
#include "cli/batches.h"
#include "cli/build_flags.h"
#include "cli/command.h"
#include "cli/open_engine.h"
#include "cli/output.h"
#include "cli/plan_summary.h"
#include "compile/compile.h"
#include "import/onnx/open_axes.h"
#include "plan/engine_file.h"

namespace tessera {
namespace {

constexpr int64_t kLargestBatch = 64;  // of a model built in memory: more samples run in chunks

struct Options {
  std::string model, inputs, outputs;
  int64_t batch = 0;
  bool verbose = false;
  BuildFlags flags;
  const OptionList* options = nullptr;
};

// Lines that follow `column` characters of their own on stderr ("tessera: ", "tessera: warning: ").
std::string after(size_t column, const std::string& line) { return wrap(printable(line), column, 2).substr(column); }

// The first option on the command line that says how to build; empty where there is none.
std::string build_option(const Options& o) {
  for (const char* name :
       {"--precision", "--recipe",       "--attention",     "--accumulate", "--sparsity", "--sparsity-by",
        "--refine",    "--calib-method", "--calib-samples", "--preprocess", "--family",   "--target",
        "--calib",     "--allow",        "--shape",         "--state",      "--size",     "--schedule",
        "--batch",     "--io",           "--keep-norms",    "--chains",     "--tune"}) {
    if (o.options->given(name)) return name;
  }
  return "";
}

// What the arrays of --inputs say of a model that is built in memory.
struct FromInputs {
  int64_t samples = 1;
  std::map<std::string, Shape> shapes;  // of inputs whose axes the model leaves open
};

// Arrays of bytes that --io says are images.
std::set<std::string> images_in_bytes(const std::vector<Array>& arrays, const std::vector<PortType>& ports) {
  std::set<std::string> names;
  for (const Array& a : arrays) {
    for (const PortType& p : ports) {
      if (p.element == Element::u8 && a.dtype == "|u1" && matches(p.name.c_str(), a.name.c_str())) names.insert(a.name);
    }
  }
  return names;
}

// The first input's array counts the samples. A model of a family leaves no axis open but the batch.
Result<FromInputs> read_sizes(const Options& o, const std::map<std::string, Shape>& given,
                              const std::vector<PortType>& ports) {
  TS_ASSIGN(const std::vector<Array> arrays, read_npz(o.inputs));
  if (arrays.empty()) return bad_input(cat(o.inputs, ": holds no arrays"));
  std::map<std::string, Shape> shapes;
  for (const Array& a : arrays) shapes[a.name] = a.shape;
  FromInputs out;
  std::string first;
  // One first size for all arrays is the number of samples, whatever the inputs are called.
  const bool same_first = std::all_of(arrays.begin(), arrays.end(), [&](const Array& a) {
    return !a.shape.empty() && !arrays[0].shape.empty() && a.shape[0] == arrays[0].shape[0];
  });
  if (o.flags.family.empty()) {
    const std::set<std::string> bytes = images_in_bytes(arrays, ports);
    TS_ASSIGN(ClosedAxes closed, close_axes(o.model, o.inputs, shapes, given, bytes));
    // A .npy has no name but the file's: for a model with one input it is that input.
    if (arrays.size() == 1 && o.inputs.ends_with(".npy") && !shapes.contains(closed.first_input)) {
      shapes = {{closed.first_input, arrays[0].shape}};
      const bool image = arrays[0].dtype == "|u1" && !ports.empty();
      TS_ASSIGN(closed, close_axes(o.model, o.inputs, shapes, given,
                                   image ? std::set{closed.first_input} : std::set<std::string>()));
    }
    first = closed.first_input;
    out.shapes = std::move(closed.shapes);
  } else if (!same_first) {
    TS_ASSIGN(const Graph graph, load_model(o.model, 1, {.exact = false, .shapes = {}, .family = o.flags.family}));
    if (!graph.inputs.empty()) first = graph.at(graph.inputs[0]).name;
  }
  if (same_first) {
    out.samples = arrays[0].shape[0];
    return out;
  }
  // An array that is missing is told by who reads the samples.
  if (const auto it = shapes.find(first); it != shapes.end() && !it->second.empty()) out.samples = it->second[0];
  return out;
}

Result<Engine> engine_of(const Options& o, const Common& common, double* load_seconds) {
  TS_ASSIGN(const bool engine_file, is_engine_file(o.model, o.flags.family));
  if (engine_file) {
    // An engine is what it was built as: an option that would change it must not be ignored.
    if (const std::string option = build_option(o); !option.empty()) {
      return usage_error(cat(o.model, " is an engine, already built: ", option, " is for ONNX models"));
    }
    return open_engine(o.model, load_seconds);
  }
  if (!o.flags.graphs.empty())
    return usage_error(cat("--graph: ", o.model,
                           " is a model; build an engine of several graphs with tessera build, "
                           "and name the one that runs here"));
  TS_ASSIGN(BuildOptions options, build_options(o.flags, o.model, {}, common.quiet || common.json));
  if (!options.ranges.empty())
    return usage_error(
        "--shape: an axis has several numbers; a model that is built here takes the lengths of the arrays");
  auto from_inputs = read_sizes(o, options.shapes, options.ports);
  if (!from_inputs.ok()) return from_inputs.status();
  const int64_t samples = options.shapes.empty() ? from_inputs->samples : 1;
  options.batches = {o.batch != 0 ? o.batch : std::clamp<int64_t>(samples, 1, kLargestBatch)};
  options.shapes.merge(from_inputs->shapes);
  options.exact_batches = o.batch != 0;  // samples go through a model's own batch in chunks
  TS_ASSIGN(Built built, build_engine(options));
  const BuildTimes& times = built.times;
  *load_seconds = times.import_s + times.calibrate_s + times.compile_s + times.golden_s;
  if (!built.engine.calibration.empty()) note(after(9, cat("scales: ", built.engine.calibration)));
  return std::move(built.engine);
}

// The plans that the arrays of a file run through.
Result<Fit> fit_of_file(const Engine& engine, const std::string& graph, const std::string& path) {
  TS_ASSIGN(Fit largest, largest_fit(engine, graph));
  if (engine.lengths.none()) return largest;
  TS_ASSIGN(const std::vector<Shape> shapes, read_shapes(*largest.plans[0], path));
  auto fit = fit_lengths(engine, graph, shapes);
  return fit.ok() ? std::move(fit) : Result<Fit>(fit.status().at(path));
}

// What is wrong with outputs of sound inputs, in a sentence. `largest`: where saturated results end; 0: not looked for.
std::string faulty_outputs(const std::vector<Array>& outputs, double largest) {
  for (const Array& a : outputs) {
    if (a.shape.empty() || a.shape[0] == 0) continue;
    const std::vector<double> numbers = numbers_of(a);
    const size_t one = numbers.size() / static_cast<size_t>(a.shape[0]);
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (!std::isfinite(numbers[i])) return cat("output '", a.name, "' holds NaN or Inf, first in sample ", i / one);
      if (largest > 0 && std::fabs(numbers[i]) == largest)
        return cat("output '", a.name, "' holds ", largest, ", where f16 ends, first in sample ", i / one);
    }
  }
  return "";
}

bool carries_f16(const Plan& plan) {
  return std::any_of(plan.tensors.begin(), plan.tensors.end(), [](const PlanTensor& t) {
    return t.storage != Storage::kConstant && t.desc.type == QuantType(Element::f16);
  });
}

bool writes_f16(const Plan& plan) {
  return std::any_of(plan.outputs.begin(), plan.outputs.end(), [&](const Port& p) {
    return plan.tensors[static_cast<size_t>(p.tensor)].desc.type == QuantType(Element::f16);
  });
}

Status run(const Options& o, const Common& common) {
  std::error_code none;
  if (o.outputs.ends_with(".npy"))
    return usage_error(cat("--outputs ", o.outputs, ": outputs are written as npz, an array per output; name it so"));
  TS_TRY(refuse_overwrite(o.outputs, {o.model, o.inputs}));
  if (o.flags.graphs.size() > 1) return usage_error("--graph: one graph runs at a time; give one");
  double load_seconds = 0;
  TS_ASSIGN(const Engine engine, engine_of(o, common, &load_seconds));
  const auto graph = pick_graph(engine, o.flags.graphs.empty() ? "" : o.flags.graphs[0]);
  if (!graph.ok()) return graph.status().at(o.model);
  auto fit = fit_of_file(engine, *graph, o.inputs);
  if (!fit.ok()) return fit.status();
  const std::vector<const Plan*> plans = fit->plans;
  TS_ASSIGN(const Samples samples, read_samples(*plans[0], o.inputs, {.lengths = &engine.lengths}));
  if (const std::string misfit = misfit_lengths(*plans[0], samples); !misfit.empty())
    return bad_input(cat(o.inputs, ": ", misfit));
  if (!samples.unread.empty()) warn(after(18, cat(o.inputs, ": ", samples.unread)));
  const std::string not_finite = non_finite_inputs(*plans[0], samples);
  if (!not_finite.empty())
    warn(after(18, cat(o.inputs, ": ", not_finite, "; what comes out means nothing for such samples")));
  const std::string clamped = clamped_inputs(*plans[0], samples);
  if (!clamped.empty()) {
    const char* wider = samples.clamped.empty() ? "; bf16 and fp32 hold them" : "";  // else the port itself is narrow
    warn(after(18, cat(o.inputs, ": ", clamped, wider)));
  }
  if (engine.golden.forms.empty() && !o.flags.no_verify) warn(kNoGoldenValues);
  TS_ASSIGN(BatchedRun done, run_batched(engine, samples, !o.flags.no_verify, *std::move(fit)));
  for (Array& a : done.outputs) {  // as the model has them, too
    if (samples.bare) a.shape.erase(a.shape.begin());
  }
  const bool sound = not_finite.empty() && clamped.empty();
  const double largest = carries_f16(*plans[0]) ? info(Element::f16).max : 0;
  const std::string lost = sound ? faulty_outputs(done.outputs, largest) : "";
  if (!lost.empty())
    warn(after(18, cat(lost, " though the inputs are finite; ",
                       writes_f16(*plans[0]) ? "an output of fp16 holds no more (--io NAME=bf16 or fp32)"
                                             : "a --precision with more range (bf16, fp32) may hold them")));
  if (!o.outputs.empty()) TS_TRY(write_npz(o.outputs, done.outputs));
  Json outputs = Json::array(), used = Json::array();
  std::string listed, names;
  for (const Array& a : done.outputs) {
    outputs.push_back({{"name", a.name}, {"shape", a.shape}, {"dtype", a.dtype}});
    listed += fmt::format("{}{} {}", listed.empty() ? "" : ", ", printable(a.name), to_string(a.shape));
  }
  for (const Plan* p : done.used) {
    used.push_back(p->name);
    names += (names.empty() ? "" : ", ") + p->name;
  }
  if (common.json) {
    print_json(
        {{"samples", samples.count},
         {"runs", done.times.runs},
         {"plans", used},
         {"milliseconds", 1e3 * done.times.run_seconds},
         {"machine", done.machine},
         {"precision", engine.precision},
         {"outputs", outputs},
         {"file", o.outputs},
         {"warning", !not_finite.empty() ? not_finite
                     : !clamped.empty()  ? clamped
                                         : lost},
         {"seconds", {{"load", load_seconds}, {"golden", done.times.admit_seconds}, {"bind", done.times.bind_seconds}}},
         {"peak_memory_bytes", peak_memory_bytes()}});
    return {};
  }
  const auto say = [](const std::string& line) { fmt::print("{}\n", wrap(printable(line), 0, 2)); };
  say(fmt::format("{} in {}, {} through plan {}: {:.1f} ms on {}", plural(samples.count, "sample"), engine.precision,
                  plural(done.times.runs, "run"), names, 1e3 * done.times.run_seconds, done.machine));
  say(cat(o.outputs.empty() ? "not written (no --outputs)" : o.outputs, ": ", listed));
  if (o.verbose) {
    say(
        fmt::format("loaded in {:.3f} s, golden values checked in {:.3f} s, bound in {:.3f} s; at most {} of memory, "
                    "files mapped included",
                    load_seconds, done.times.admit_seconds, done.times.bind_seconds, megabytes(peak_memory_bytes())));
  }
  return {};
}

Runner add(OptionList& options, const Common& common) {
  auto o = std::make_shared<Options>();
  options.add("model", o->model, "FILE", "an engine (.tess), or an ONNX model that is built in memory first").required =
      true;
  options.group("Data");
  options
      .add("-i,--inputs", o->inputs, "FILE", "npz with an array per input, named like it: [samples, ...]; or one .npy")
      .required = true;
  options.add("-o,--outputs", o->outputs, "FILE", "npz to write, an array per output (default: none is written)");
  options.add("-v,--verbose", o->verbose,
              "also the time to load, to check golden values and to bind, and the peak memory");
  options.group("Precision and target");
  options.add("--batch", o->batch, "N", "of a model built in memory (default: the model's, or the inputs', up to 64)")
      .check = within(1, 1 << 20);
  add_build_flags(options, o->flags);
  o->options = &options;
  return [o, &common] { return run(*o, common); };
}

}  // namespace

const Command run_command{
    "run",
    "run an engine or a model on arrays from an npz file",
    "Any number of samples: they go through the engine's plans in chunks of their batch sizes, and a last chunk that "
    "is not full is filled up and cut off again. Of an engine with lengths (build --shape x=1,16:512) the smallest "
    "plans "
    "that hold the arrays run; where padding changes nothing shorter arrays are padded and results cut, else arrays "
    "have "
    "exactly a plan's length. An "
    "engine first reproduces its golden values here (--no-verify skips that). An ONNX model is built in memory first, "
    "with axes that it leaves open as the arrays have them; options about precision and target are for "
    "that case, and refused with an engine. NaN or Inf in the inputs draws a warning, and so do numbers that the "
    "engine's type clamps, and either in the outputs of sound inputs.",
    "  tessera run vit.tess --inputs in.npz --outputs out.npz\n"
    "  tessera run vit.tess --inputs in.npz --verbose\n"
    "  tessera run vit.onnx --precision fp8 --calib calib.npz --inputs in.npz --outputs out.npz\n",
    "Files:\n"
    "  *.npz  numpy arrays (.npy: for one input); numbers are converted to the input's type\n",
    true,
    add};

}  // namespace tessera
