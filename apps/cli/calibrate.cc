// SPDX-License-Identifier: Apache-2.0
#include "calibrate/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include "base/log.h"
#include "calibrate/ranges_file.h"
#include "cli/build_flags.h"
#include "cli/command.h"
#include "cli/output.h"
#include "compile/compile.h"
#include "io/atomic_file.h"

namespace tessera {
namespace {

constexpr size_t kShown = 8;

struct Options {
  std::string model, calib, output;
  ModelFlags load;
  CalibrationFlags flags;
};

Status check_output(const std::string& path) {
  std::error_code none;
  if (std::filesystem::is_regular_file(path, none) && std::filesystem::file_size(path, none) > 0) {
    TS_ASSIGN(const bool ranges, is_ranges_file(path));  // whatever else it is, it is not ours to overwrite
    if (!ranges) return usage_error(cat("-o ", path, ": holds no ranges and would be overwritten; give another name"));
  }
  if (const auto folder = std::filesystem::path(path).parent_path();
      !folder.empty() && !std::filesystem::is_directory(folder, none))
    return usage_error(cat("-o ", path, ": there is no folder ", folder.string(), "; make it first"));
  return {};
}

// A file that was written elsewhere may lack some of them.
template <typename Key, typename Value>
std::string cell(const std::map<Key, Value>& numbers, Key key) {
  const auto it = numbers.find(key);
  return it == numbers.end() ? std::string("-") : fmt::format("{:.4g}", it->second);
}

// Where clipping would matter most: the values whose numbers are farthest below their largest.
void print_widest(const Ranges& ranges) {
  std::vector<std::pair<double, std::string>> widest;
  for (const auto& [name, range] : ranges.values) {
    const auto most = range.percentiles.find(99.9);
    if (most != range.percentiles.end() && most->second > 0) widest.emplace_back(range.amax / most->second, name);
  }
  std::stable_sort(widest.begin(), widest.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  if (widest.size() > kShown) widest.resize(kShown);
  Table table({"value", ">amax", ">99.9 %", ">99.99 %", ">mse e4m3", ">mse i8", ">amax / 99.9 %"});
  for (const auto& [ratio, name] : widest) {
    const ValueRange& r = ranges.values.at(name);
    table.add({name, fmt::format("{:.4g}", r.amax), cell(r.percentiles, 99.9), cell(r.percentiles, 99.99),
               cell(r.mse, Element::e4m3), cell(r.mse, Element::i8), fmt::format("{:.1f}", ratio)});
  }
  fmt::print("\nthe {} with the rarest large numbers\n{}", widest.size(), table.text());
}

Status run_calibrate(const Options& o, const Common& common) {
  TS_TRY(check_calibration_flags(o.flags, o.calib, "--method", "--samples"));
  const std::string path = o.output.empty() ? model_stem(o.model, o.load.family) + ".ranges.json" : o.output;
  TS_ASSIGN(const bool engine_file, is_engine_file(o.model, o.load.family));
  if (engine_file)
    return usage_error(cat(o.model, " is an engine, whose scales are made; calibrate takes an ONNX model"));
  TS_TRY(check_output(path));
  TS_ASSIGN(const LoadOptions load, load_options(o.load));
  CalibrateOptions options{.path = o.calib,
                           .samples = o.flags.samples > 0 ? o.flags.samples : 512,
                           .method = {},
                           .preprocess = o.flags.preprocess,
                           .quiet = common.quiet || common.json};
  if (!o.flags.method.empty()) {
    TS_ASSIGN(options.method, parse_range_method(o.flags.method));
  }
  // As many samples at once as build takes, which changes no number: shapes that are given whole have their own.
  TS_ASSIGN(const Graph graph, load_model(o.model, load.shapes.empty() ? 16 : 1, load));
  TS_ASSIGN(const Ranges ranges, calibrate(graph, options));
  TS_TRY(write_file(path, print_ranges(ranges)));
  if (common.json) {
    print_json({{"file", path},
                {"model", ranges.model},
                {"weights", ranges.weights},
                {"method", to_string(ranges.method)},
                {"how", ranges.how},
                {"samples", ranges.samples},
                {"preprocess", ranges.preprocess},
                {"warnings", all_warnings(ranges)},
                {"values", ranges.values.size()}});
    return {};
  }
  for (const std::string& fault : all_warnings(ranges)) warn(cat("calibration: ", fault));
  fmt::print("{}\n",
             wrap(printable(cat(path, ": ranges of ", plural(static_cast<int64_t>(ranges.values.size()), "value"),
                                " of ", ranges.model, ", ", ranges.how)),
                  0, 2));
  if (!ranges.preprocess.empty()) fmt::print("{}\n", wrap("images: " + ranges.preprocess, 2, 4));
  print_widest(ranges);
  return {};
}

Runner add(OptionList& options, const Common& common) {
  auto o = std::make_shared<Options>();
  options.add("model", o->model, "MODEL", "an ONNX model, or with --family a folder").required = true;
  options
      .add("--calib", o->calib, "FILE|DIR",
           "npz with an array per input, named like it, [samples, ...]; a folder of JPEG and PNG images; or a "
           "ranges.json, to choose another method")
      .required = true;
  options.add("-o,--output", o->output, "FILE", "the file to write (default: MODEL.ranges.json in the working folder)");
  options.group("Ranges");
  add_calibration_flags(options, o->flags, "--method", "--samples");
  add_model_flags(options, o->load);
  return [o, &common] { return run_calibrate(*o, common); };
}

}  // namespace

const Command calibrate_command{
    "calibrate",
    "record how large a model's values become, as a file that build --calib takes",
    "Runs the model in fp32 on the CPU over the samples and records for every value its largest magnitude, some "
    "percentiles, and the clip with the least squared error for each element that activations may have. All of them "
    "are in the file, whatever the "
    "method; the method says which one becomes the scale. The file is JSON, one value per line: a \"clip\" that is "
    "written beside a value's \"amax\" goes before any method, and build refuses a file that is not of its model. "
    "The same samples give the same file on any number of threads.",
    "  tessera calibrate vit.onnx --calib images.npz -o ranges.json\n"
    "  tessera calibrate vit.onnx --calib photos/ --preprocess size=224,mean=0.5,std=0.5 --method mse\n"
    "  tessera build vit.onnx --precision fp8 --calib ranges.json --calib-method percentile=99.9\n",
    "Images (--preprocess, parts with commas between them):\n"
    "  size=224 or size=HEIGHTxWIDTH   of the model's input; must be given\n"
    "  mean=M or mean=R:G:B            input = (pixel / 255 - mean) / std; default 0\n"
    "  std=S or std=R:G:B              default 1\n"
    "  layout=nchw or nhwc             default nchw\n"
    "  fit=crop or stretch             crop (default): the shorter side is resized, the middle cut out\n"
    "  resize=256                      with fit=crop: the shorter side before the cut (default: as size)\n"
    "  filter=bilinear or bicubic      antialiased, the same pixels as Pillow's resize; default bilinear\n"
    "  Grey becomes RGB, alpha is dropped, 16 bits become 8; CMYK, damaged and huge images are refused.\n",
    true,
    add};

}  // namespace tessera
