// SPDX-License-Identifier: Apache-2.0
#include "assemble/build_words.h"

#include <algorithm>
#include <filesystem>

#include "base/words/nearest_word.h"
#include "calibrate/calibrate.h"
#include "io/images_prepare.h"
#include "precision/quantize.h"
#include "precision/read_recipe.h"

namespace tessera {
namespace {

constexpr const char* kArchNames[] = {
#define TS_ARCH(name, parent, device, nvcc, elements, what) #name,
#include "archs/archs.inc"
#undef TS_ARCH
};

Result<Refinements> parse_refinements(const BuildFlags& flags) {
  Refinements what;
  for (size_t at = 0; !flags.refine.empty() && at <= flags.refine.size();) {
    const size_t end = std::min(flags.refine.find(',', at), flags.refine.size());
    const std::string word = flags.refine.substr(at, end - at);
    bool* const known = word == "smooth"       ? &what.smooth
                        : word == "awq"        ? &what.awq
                        : word == "clip"       ? &what.clip
                        : word == "compensate" ? &what.compensate
                                               : nullptr;
    if (known == nullptr)
      return usage_error(
          cat("--refine '", word, "' is unknown; accepted: smooth, awq, clip, compensate, with commas between"));
    *known = true;
    at = end + 1;
  }
  if (what.smooth && what.awq)
    return usage_error("--refine: smooth and awq both choose the scale of a channel: give one of them");
  if (flags.sparsity.empty()) {
    if (!flags.sparsity_by.empty()) return usage_error("--sparsity-by says how, --sparsity which: give both");
    return what;
  }
  TS_ASSIGN(what.sparsity, parse_sparsity(flags.sparsity, flags.sparsity_by.empty() ? "magnitude" : flags.sparsity_by));
  if (flags.sparsity_by.empty()) {
    TS_ASSIGN(what.sparsity.method, default_sparsity_method(flags.calib));
  }
  return what;
}

}  // namespace

Status check_calibration_flags(const CalibrationFlags& flags, const std::string& calib, const std::string& method_flag,
                               const std::string& samples_flag) {
  if (!flags.method.empty()) {
    if (const auto method = parse_range_method(flags.method); !method.ok()) return method.status().at(method_flag);
  }
  if (!flags.preprocess.empty()) {
    if (const auto preprocess = parse_preprocess(flags.preprocess); !preprocess.ok()) return preprocess.status();
  }
  std::error_code none;
  const bool folder = std::filesystem::is_directory(calib, none);
  if (!flags.preprocess.empty() && !folder)
    return usage_error("--preprocess is about a folder of images, which --calib does not give: leave it out");
  if (flags.samples == 0) return {};
  if (calib.empty()) return usage_error(cat(samples_flag, " counts samples of --calib, which is not given"));
  TS_ASSIGN(const bool ranges, is_ranges_file(calib));
  return ranges ? usage_error(cat(samples_flag, ": ", calib, " holds ranges and no samples; leave it out")) : Status();
}

Result<BuildOptions> build_options(const BuildFlags& flags, const std::string& model, std::vector<int64_t> batches,
                                   bool quiet) {
  TS_ASSIGN(const Arch target, parse_arch(flags.target));
  TS_TRY(check_calibration_flags(flags.calibration, flags.calib, "--calib-method", "--calib-samples"));
  BuildOptions o;
  o.model_path = model;
  o.family = flags.family;
  o.precision = flags.precision;
  o.attention = flags.attention;
  if (!flags.accumulate.empty() && flags.accumulate != "fast" && flags.accumulate != "promoted")
    return usage_error(cat("--accumulate ", flags.accumulate, ": accepted are fast and promoted"));
  o.promoted = flags.accumulate == "promoted";
  if (!flags.golden.empty() && flags.golden != "all" && flags.golden != "smallest")
    return usage_error(cat("--golden ", flags.golden, ": accepted are all and smallest"));
  if (!flags.golden.empty() && flags.no_verify)
    return usage_error("--golden says which golden values are made, --no-verify makes none: give one of the two");
  if (flags.golden == "smallest") o.golden_of = BuildOptions::GoldenOf::kSmallest;
  o.keep_norms = flags.keep_norms;
  o.chains = flags.chains;
  if (o.chains && target != Arch::sm90)
    return usage_error(cat("--chains: chains are made for sm90 alone, not for ", info(target).name, "; leave it out"));
  o.tuning = flags.tuning;
  o.tune = flags.tune;
  if (!flags.recipe.empty()) {
    TS_ASSIGN(o.recipe, read_recipe(flags.recipe));
  }
  TS_ASSIGN(o.refine, parse_refinements(flags));
  o.batches = std::move(batches);
  o.target = target;
  o.calib_path = flags.calib;
  o.calib_method = flags.calibration.method;
  if (flags.calibration.samples > 0) o.calib_samples = flags.calibration.samples;
  o.preprocess = flags.calibration.preprocess;
  SeveralNumbers several;
  TS_ASSIGN(LoadOptions load, load_options(flags, &several));
  o.buckets = std::move(several.buckets), o.ranges = std::move(several.ranges);
  o.shapes = std::move(load.shapes), o.states = std::move(load.states);
  o.ports = std::move(load.ports);
  o.sizes = std::move(load.sizes);
  o.random = load.random;
  TS_ASSIGN(o.graphs, parse_graphs(flags.graphs, flags.family));
  TS_ASSIGN(o.schedule, parse_schedule(flags.schedule, o.graphs));
  o.allow = flags.allow;
  o.golden = !flags.no_verify;
  o.quiet = quiet;
  return o;
}

Status take_golden_flags(const GoldenFlags& flags, BuildOptions& options) {
  const bool chooses = options.precision == kAuto;  // --min-cosine is of the choice, too
  const std::pair<bool, const char*> given[] = {{flags.samples.has_value(), "--golden-samples"},
                                                {flags.seed.has_value(), "--seed"},
                                                {!flags.inputs.empty(), "--golden-inputs"},
                                                {flags.min_cosine.has_value() && !chooses, "--min-cosine"}};
  for (const auto& [is_given, name] : given) {
    if (is_given && !options.golden)
      return usage_error(cat(name, " is about golden values, which --no-verify leaves out: give one of the two"));
  }
  if (!flags.inputs.empty() && flags.seed)
    return usage_error("--seed draws golden inputs, --golden-inputs brings them: give one of the two");
  if (flags.samples) options.golden_samples = *flags.samples;
  if (flags.seed) options.seed = *flags.seed;
  options.golden_inputs = flags.inputs;
  options.min_cosine = flags.min_cosine;
  return {};
}

Result<std::vector<int64_t>> parse_batches(const std::vector<std::string>& words) {
  std::vector<int64_t> all;
  for (const std::string& word : words) {
    const auto sizes = parse_numbers(word, kMostBatch);
    if (!sizes)
      return usage_error(cat("--batch ", word, ": wanted sizes from 1 to 1048576 with commas between them, as 1,8,64"));
    for (const int64_t size : *sizes) {
      if (std::find(all.begin(), all.end(), size) != all.end())
        return usage_error(cat("--batch ", word, ": ", size, " stands there twice"));
      all.push_back(size);
    }
  }
  return all;
}

std::vector<std::string> arch_names() { return {std::begin(kArchNames), std::end(kArchNames)}; }

Result<Arch> parse_arch(const std::string& name) {
  if (const auto arch = find_arch(name)) return *arch;
  std::string known;
  for (const char* k : kArchNames) known += cat(known.empty() ? "" : ", ", k);
  return usage_error(cat("arch '", name, "' is unknown; there are ", known, did_you_mean(name, arch_names())));
}

}  // namespace tessera
