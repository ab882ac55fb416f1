// SPDX-License-Identifier: Apache-2.0
#include "sensitivity/rank_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/log.h"
#include "cli/build_flags.h"
#include "cli/command.h"
#include "cli/output.h"

namespace tessera {
namespace {

constexpr size_t kShown = 20;

struct Options {
  std::string model, calib, precision, attention;
  ModelFlags load;
  CalibrationFlags flags;
  bool all = false;
};

void print(const Options& o, const Sensitivity& s) {
  fmt::print(
      "{}\n",
      wrap(fmt::format(
               "outputs against fp32 over {}: every layer in {}: mean cosine {:.6f}, relative L2 {:.2e}; none of "
               "them (the carrier alone): {:.6f}, {:.2e}",
               plural(s.samples, "sample"), o.precision, s.all.cosine_mean, s.all.relative_l2, s.carrier.cosine_mean,
               s.carrier.relative_l2),
           0, 2));
  Table table({">rank", "layer", ">cosine alone", ">L2 alone", ">cosine all but it", ">L2 all but it", ">saves"});
  const size_t shown = o.all ? s.layers.size() : std::min(kShown, s.layers.size());
  for (size_t i = 0; i < shown; ++i) {
    const LayerCost& l = s.layers[i];
    const bool measured = l.refused.empty();
    const auto number = [&](const char* format, double x) {
      return measured ? fmt::format(fmt::runtime(format), x) : std::string("refused");
    };
    table.add({std::to_string(i + 1), l.layer.name, number("{:.6f}", l.alone.cosine_mean),
               number("{:.2e}", l.alone.relative_l2), number("{:.6f}", l.without.cosine_mean),
               number("{:.2e}", l.without.relative_l2),
               l.bytes_saved > 0 ? megabytes(std::llround(l.bytes_saved)) : ""});
  }
  fmt::print("\n{}", table.text());
  if (shown < s.layers.size()) fmt::print("and {} that cost less (--all: each)\n", s.layers.size() - shown);
  for (const LayerCost& l : s.layers) {
    if (!l.refused.empty()) fmt::print("{}\n", wrap(printable(cat(l.layer.name, ": ", l.refused)), 0, 2));
  }
}

Status sensitivity(const Options& o, const Common& common) {
  if (o.all && common.json) return usage_error("--json holds every layer: leave --all out");
  TS_TRY(check_calibration_flags(o.flags, o.calib, "--method", "--samples"));
  TS_ASSIGN(const bool engine_file, is_engine_file(o.model, o.load.family));
  if (engine_file)
    return usage_error(cat(o.model, " is an engine, whose precisions are chosen; sensitivity takes an ONNX model"));
  RankOptions how{.model = o.model,
                  .precision = o.precision,
                  .attention = o.attention,
                  .load = {},
                  .calibration = {.path = o.calib,
                                  .samples = o.flags.samples > 0 ? o.flags.samples : kRankSamples,
                                  .method = {},
                                  .preprocess = o.flags.preprocess,
                                  .quiet = common.quiet || common.json}};
  TS_ASSIGN(how.load, load_options(o.load));
  if (!o.flags.method.empty()) {
    TS_ASSIGN(how.calibration.method, parse_range_method(o.flags.method));
  }
  TS_ASSIGN(const Ranking ranking, rank_layers(how));
  if (common.json) {
    fmt::print("{}\n", ranking_json(how, ranking));
    return {};
  }
  for (const std::string& fault : all_warnings(ranking.ranges)) warn(cat("calibration: ", fault));
  print(o, ranking.costs);
  return {};
}

Runner add(OptionList& options, const Common& common) {
  auto o = std::make_shared<Options>();
  options.add("model", o->model, "FILE", "an ONNX model").required = true;
  options.add("--precision", o->precision, "NAME", "of the layers that are tried: one with scales, as fp8 or nvfp4")
      .required = true;
  options
      .add("--calib", o->calib, "FILE|DIR",
           "npz with an array per input, named like it, [samples, ...], or a folder of images")
      .required = true;
  options.add("--attention", o->attention, "NAME", "fp8: rank attention in fp8 too");
  options.group("Samples");
  add_calibration_flags(options, o->flags, "--method", "--samples", kRankSamples);
  options.group(kPlainGroup);
  options.add("--all", o->all, "show every layer (default: the 20 costliest)");
  add_model_flags(options, o->load);
  return [o, &common] { return sensitivity(*o, common); };
}

}  // namespace

const Command sensitivity_command{
    "sensitivity",
    "rank layers by what their low precision costs",
    "Quantizes the linear layers of the blocks one at a time, and all but one, runs each trial on the CPU and compares "
    "the "
    "outputs with the fp32 model's: mean cosine and relative L2 over the samples. The costliest layer alone comes "
    "first. Layers that "
    "cost much and save little are those to keep in fp16, by --allow or a recipe.",
    "  tessera sensitivity vit.onnx --precision nvfp4 --calib images.npz\n"
    "  tessera sensitivity vit.onnx --precision fp8 --attention fp8 --calib images.npz --samples 128\n"
    "  tessera sensitivity vit.onnx --precision nvfp4 --calib images.npz --json | jq '.layers[0]'\n",
    "",
    true,
    add};

}  // namespace tessera
