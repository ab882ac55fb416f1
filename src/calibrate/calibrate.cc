// SPDX-License-Identifier: Apache-2.0
#include "calibrate/calibrate.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "base/log.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "base/progress_sink.h"
#include "calibrate/magnitudes.h"
#include "calibrate/ranges_file.h"
#include "compile/compile.h"
#include "compile/weights_checksum.h"
#include "inputs/image_samples.h"
#include "inputs/sample_faults.h"
#include "io/mmap.h"
#include "lower/fold_norms.h"
#include "op/reference.h"
#include "runtime/executor.h"

namespace tessera {
namespace {

std::string file_name(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  const std::string trimmed = end == std::string::npos ? path : path.substr(0, end + 1);
  return trimmed.substr(trimmed.rfind('/') + 1);
}

// Adds up what the values of one run were.
class Recorder {
 public:
  explicit Recorder(const Graph& graph) {
    for (const std::string& name : ranged_values(graph)) values_[name];
    for (const std::string& norm : norms_between_layers(graph)) values_[plain_value(norm)];
    for (const std::string& norm : modulated_norms(graph)) values_[gained_value(norm)];
  }

  // A norm's result before gain and shift, which plans that have these in the next layers' weights round instead.
  void add_plain(const PlanStep& step, const std::string& name, const TensorView& x, int64_t batch, int64_t counted,
                 int64_t first) {
    if (step.op != "norm" || !values_.contains(plain_value(name))) return;
    const Dense in = decode(x);
    if (in.v.empty()) return;
    const size_t cols = static_cast<size_t>(in.shape.back());
    const bool rms = step.attrs.word("kind", "layer") == "rms";
    std::vector<float> plain(in.v.size());
    parallel_for(static_cast<int64_t>(in.v.size() / cols), 16, [&](int64_t begin, int64_t end) {
      for (size_t at = static_cast<size_t>(begin) * cols; at < static_cast<size_t>(end) * cols; at += cols) {
        double mean = 0, var = 0;
        for (size_t c = 0; c < cols && !rms; ++c) mean += in.v[at + c] / static_cast<double>(cols);
        for (size_t c = 0; c < cols; ++c) var += (in.v[at + c] - mean) * (in.v[at + c] - mean);
        const double deviation = std::sqrt(var / static_cast<double>(cols) + step.attrs.number("eps"));
        for (size_t c = 0; c < cols; ++c) plain[at + c] = static_cast<float>((in.v[at + c] - mean) / deviation);
      }
    });
    const Operand desc = dense_operand(in.shape, Element::f32);
    add(plain_value(name), {.desc = &desc, .data = plain.data()}, batch, counted, first);
  }

  // What plans round that fold a norm whose gain changes with time.
  void add_gained(const PlanStep& step, const std::string& name, std::span<const TensorView> in, int64_t batch,
                  int64_t counted, int64_t first) {
    if (step.op != "norm" || !values_.contains(gained_value(name))) return;
    const Dense x = decode(in[0]), gain = decode(in[1]);
    std::vector<float> gained(x.v.size());
    for (size_t i = 0; i < gained.size(); ++i) gained[i] = static_cast<float>(x.v[i] * gain.v[i % gain.v.size()]);
    const Operand desc = dense_operand(x.shape, Element::f32);
    add(gained_value(name), {.desc = &desc, .data = gained.data()}, batch, counted, first);
  }

  // Of the `batch` samples that the tensor holds, the first `counted`; they are samples first, first + 1, ... of all.
  void add(const std::string& name, const TensorView& tensor, int64_t batch, int64_t counted, int64_t first) {
    const auto found = values_.find(name);
    if (found == values_.end()) return;
    const Operand& desc = *tensor.desc;
    const int64_t n = elements(desc.shape);
    if (n == 0) return;
    const bool by_sample = !desc.shape.empty() && desc.shape[0] % batch == 0;
    const int64_t one = by_sample ? n / batch : n, taken = by_sample ? one * counted : n;
    const int64_t cols = desc.shape.empty() ? 1 : desc.shape.back();
    const float* numbers = static_cast<const float*>(tensor.data);
    std::vector<float> decoded;
    if (desc.type != QuantType(Element::f32) || desc.layout != Layout::kRows || !desc.dense()) {
      const Dense wide = decode(tensor);
      decoded.assign(wide.v.begin(), wide.v.end());
      numbers = decoded.data();
    }
    // A value of one number per sample and row ([batch]) has no rows to divide by its last axis.
    const int64_t across = taken % cols == 0 ? cols : 1;
    found->second.add(numbers, taken / across, across, first * one);
  }

  std::map<std::string, ValueRange> ranges(double percentile) const {
    std::map<std::string, ValueRange> out;
    for (const auto& [name, magnitudes] : values_) {
      if (magnitudes.count() > 0 || magnitudes.amax() != 0) out[name] = magnitudes.range(percentile);
    }
    return out;
  }

 private:
  std::map<std::string, Magnitudes> values_;
};

Result<Ranges> read_ranges_file(const Graph& graph, const CalibrateOptions& options) {
  TS_ASSIGN(const Bytes file, map_file(options.path));
  auto parsed = parse_ranges({reinterpret_cast<const char*>(file.data()), file.size()});
  if (!parsed.ok()) return parsed.status().at(options.path);
  Ranges ranges = std::move(parsed).value();
  if (options.method) use_method(ranges, *options.method);
  TS_TRY(check_ranges(ranges, graph).at(options.path));
  const auto by_hand = std::count_if(ranges.values.begin(), ranges.values.end(),
                                     [](const auto& entry) { return entry.second.by_hand.has_value(); });
  ranges.how += cat(" (", file_name(options.path),
                    by_hand > 0 ? cat(", ", by_hand, by_hand == 1 ? " clip" : " clips", " set by hand") : "", ")");
  return ranges;
}

// Values of the model that the samples leave at zero have no range to speak of: their scale is 1. The engine keeps the
// sentence, so those that layers read are named, as far as they are few.
void warn_of_zeros(const Graph& graph, Ranges& ranges) {
  constexpr size_t kNamed = 8;
  std::string readers;
  size_t zeros = 0, layers = 0;
  const auto is_zero = [&](const std::string& name) {
    const auto it = ranges.values.find(name);
    return it != ranges.values.end() && it->second.amax == 0;
  };
  for (const std::string& name : ranged_values(graph)) zeros += is_zero(name);
  const std::vector<int> producers = graph.producers();
  for (const Node& n : graph.nodes) {
    if (n.op != "matmul" || !is_zero(graph.at(placement_of(graph, producers, n.inputs[0]).base).name)) continue;
    if (layers++ < kNamed) readers += cat(readers.empty() ? "" : ", ", n.name);
  }
  if (zeros == 0) return;
  std::string text = cat(zeros, " of the model's values stay zero on these samples");
  if (layers > kNamed) readers = cat(layers, " layers, ", readers, " ...");
  if (layers > 0) text += cat(", the input of ", readers, " among them");
  ranges.warnings.push_back(text);
}

}  // namespace

Result<CalibrationSamples> samples_of(const Graph& graph, const CalibrateOptions& options) {
  Engine engine;
  ConstantPool pool(engine.constants);
  TS_ASSIGN(const Plan plan, lower_in_f32(graph, pool));
  return read_calibration_samples(plan, options);
}

Result<CalibrationSamples> read_calibration_samples(const Plan& plan, const CalibrateOptions& options) {
  std::error_code none;
  CalibrationSamples source;
  if (options.path.empty()) {
    const int64_t count = std::min<int64_t>(options.samples, 8);
    source.samples = random_samples(plan, count, /*seed=*/77);
    source.what = cat(count, " seeded random inputs, not data: give --calib for real scales");
  } else if (std::filesystem::is_directory(options.path, none)) {
    TS_ASSIGN(ImageSamples images,
              read_image_samples(plan, options.path, options.preprocess, options.samples, options.quiet));
    source.what = cat(images.samples.count, images.found > images.samples.count ? cat(" of ", images.found) : "",
                      images.found == 1 ? " image of " : " images of ", file_name(options.path));
    source.samples = std::move(images.samples);
    source.preprocess = std::move(images.preprocess);
  } else {
    TS_ASSIGN(source.samples, read_samples(plan, options.path));
    const int64_t used = std::min(source.samples.count, options.samples);
    source.unread = source.samples.unread;
    source.samples = source.samples.part(0, used);
    source.what = cat(used, used == 1 ? " sample of " : " samples of ", file_name(options.path));
    const std::string faulty = non_finite_inputs(plan, source.samples);
    if (!faulty.empty()) return bad_input(cat(options.path, ": ", faulty, "; calibration data must be finite"));
  }
  return source;
}

Result<bool> is_ranges_file(const std::string& path) {
  std::error_code none;
  if (path.empty() || std::filesystem::is_directory(path, none)) return false;
  TS_ASSIGN(const Bytes file, map_file(path));
  return is_ranges_text({reinterpret_cast<const char*>(file.data()), std::min<size_t>(file.size(), 4096)});
}

Result<Ranges> calibrate(const Graph& graph, const CalibrateOptions& options) {
  TS_ASSIGN(const bool ranges_given, is_ranges_file(options.path));
  if (ranges_given) return read_ranges_file(graph, options);
  Engine engine;
  ConstantPool pool(engine.constants);
  TS_ASSIGN(const Plan plan, lower_in_f32(graph, pool));
  TS_ASSIGN(const CalibrationSamples source, read_calibration_samples(plan, options));
  Ranges ranges;
  ranges.method = options.method.value_or(RangeMethod{});
  ranges.how = cat(to_string(ranges.method), " over ", source.what);
  ranges.preprocess = source.preprocess;
  ranges.model = graph.name;
  ranges.weights = weights_checksum(graph);
  ranges.samples = source.samples.count;
  if (!options.path.empty()) ranges.warnings = sample_faults(plan, source.samples);
  ranges.unread = source.unread;

  Recorder recorder(graph);
  int64_t first = 0, counted = 0;
  ExecutorOptions observing;
  observing.observe = [&](const PlanStep& step, std::span<const TensorView> in, std::span<const TensorView> out) {
    const auto name = [&](size_t i) { return plan.tensors[static_cast<size_t>(step.out[i])].name; };
    for (size_t i = 0; i < out.size(); ++i) recorder.add(name(i), out[i], plan.batch, counted, first);
    recorder.add_plain(step, name(0), in[0], plan.batch, counted, first);
    recorder.add_gained(step, name(0), in, plan.batch, counted, first);
  };
  TS_ASSIGN(const std::unique_ptr<Executor> executor, bind(engine, plan, observing));
  std::optional<Progress> progress;
  if (!options.quiet) progress.emplace("calibrating", source.samples.count);
  Outputs outputs = make_outputs(plan);
  for (; first < source.samples.count; first += plan.batch) {
    counted = std::min(plan.batch, source.samples.count - first);
    const Filled inputs = fill_inputs(plan, source.samples, first);
    for (size_t i = 0; i < plan.inputs.size(); ++i) {
      const Operand& desc = plan.tensors[static_cast<size_t>(plan.inputs[i].tensor)].desc;
      recorder.add(plan.inputs[i].name, {.desc = &desc, .data = const_cast<void*>(inputs.pointers[i])}, plan.batch,
                   counted, first);
    }
    TS_TRY(executor->run(inputs.pointers, outputs.pointers));
    if (progress) progress->advance(counted);
    TS_TRY(check_cancelled());
  }
  ranges.values =
      recorder.ranges(ranges.method.kind == RangeMethod::kPercentile ? ranges.method.percent : kPercentiles[0]);
  warn_of_zeros(graph, ranges);
  return ranges;
}

}  // namespace tessera
