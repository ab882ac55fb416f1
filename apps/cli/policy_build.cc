// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "calibrate/calibrate.h"
#include "cli/build_file.h"
#include "cli/build_report.h"
#include "cli/output.h"
#include "cli/policy_actions.h"
#include "cli/policy_calib.h"
#include "cli/scratch_folder.h"
#include "models/family.h"

namespace tessera {
namespace {

// Weights come from a checkpoint or from a seed.
Status check_weights(const PolicyOptions& o) {
  if (o.model.empty() == (o.flags.random < 0))
    return usage_error(cat("policy ", o.action, " wants --model DIR or --random SEED: give one of the two"));
  if (!o.config.empty() && o.flags.random < 0)
    return usage_error("--config has sizes of random weights; a checkpoint has its own config.json: leave it out");
  return {};
}

// --calib holds observations, of which every graph gets what it would read.
Status take_observations(BuildOptions& options, const ScratchFolder& scratch) {
  if (options.calib_path.empty()) return {};
  TS_ASSIGN(const bool ranges, is_ranges_file(options.calib_path));
  std::error_code none;
  if (ranges || std::filesystem::is_directory(options.calib_path, none))
    return usage_error(cat("--calib ", options.calib_path,
                           ": a policy is calibrated with observations, an npz as for policy run --inputs"));
  if (scratch.path().empty()) return machine_error("no scratch folder can be made for calibration data");
  TS_ASSIGN(options.calib_of, trace_observations(options, options.calib_path, scratch.path()));
  return {};
}

}  // namespace

Status policy_build(const PolicyOptions& o, const Common& common) {
  TS_TRY(check_weights(o));
  BuildFlags flags = policy_flags(o);
  if (o.images.empty()) flags.sizes.emplace_back("images=u8");
  const std::string model = o.flags.random < 0 ? o.model : o.config;
  const std::string path = !o.output.empty()    ? o.output
                           : o.flags.random < 0 ? model_stem(o.model, flags.family) + ".tess"
                                                : flags.family + ".tess";
  TS_TRY(check_output(path, model));
  TS_ASSIGN(BuildOptions options, build_options(flags, model, {1}, common.quiet || common.json));
  const ScratchFolder scratch;
  TS_TRY(take_observations(options, scratch));
  TS_ASSIGN(const BuiltFile file, build_file(options, path));
  const WrittenEngine written{
      .built = file.built, .options = options, .path = path, .bytes = file.bytes, .write_s = file.write_s};
  if (common.json) {
    print_build_json(written);
  } else {
    print_build_report(written);
  }
  return {};
}

Status policy_weights(const PolicyOptions& o, const Common& common) {
  if (o.flags.random < 0) return usage_error("policy weights wants --random SEED");
  if (o.output.empty()) return usage_error("policy weights wants a folder to write to: -o DIR");
  if (o.type != "bf16" && o.type != "f32") return usage_error(cat("--type ", o.type, ": accepted are bf16 and f32"));
  std::error_code none;
  if (std::filesystem::exists(o.output + "/model.safetensors", none))
    return usage_error(cat("-o ", o.output, ": holds a model.safetensors, which would be overwritten; give another"));
  const std::string family = o.flags.family.empty() ? kPolicyFamily : o.flags.family;
  TS_ASSIGN(const RandomModel model, random_model(family, o.config));
  const auto start = std::chrono::steady_clock::now();
  TS_ASSIGN(const int64_t bytes,
            write_random_checkpoint(model, static_cast<uint64_t>(o.flags.random),
                                    o.type == "f32" ? SafetensorsType::F32 : SafetensorsType::BF16, o.output));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  int64_t parameters = 0;
  for (const RandomTensor& t : model.tensors) parameters += elements(t.shape);
  if (common.json) {
    print_json({{"folder", o.output},
                {"seed", o.flags.random},
                {"type", o.type},
                {"tensors", model.tensors.size()},
                {"parameters", parameters},
                {"bytes", bytes},
                {"seconds", seconds}});
  } else {
    fmt::print("{}: {} of random weights (seed {}), {} parameters in {}, {}, {:.1f} s\n", o.output,
               plural(static_cast<int64_t>(model.tensors.size()), "tensor"), o.flags.random, parameters, o.type,
               megabytes(bytes), seconds);
  }
  return {};
}

}  // namespace tessera
